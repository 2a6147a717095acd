"""Run one of several gateways of a host.

Command: ``python -m realtime_tts.server.host.gateway_process --control FD --directory PATH``. The host process
(`server/host/process.py`) starts it, and it ends at once when the host ends. It receives clients' connections from the
host and from the other gateways, and connects to the workers directly.
"""

from __future__ import annotations

import argparse
import asyncio
import os

from realtime_tts.contract.watch import end_tasks, until, watch
from realtime_tts.errors import RealtimeTTSError
from realtime_tts.server.app import create_app
from realtime_tts.server.host.handover import ConnectionReceiver
from realtime_tts.server.host.link import HostLink, receiver_path
from realtime_tts.server.host.messages import GatewayFailed, Report, Serving
from realtime_tts.server.logs import configure_logging
from realtime_tts.server.metrics import count_as
from realtime_tts.server.run import GatewayServer, describe, serve_at
from realtime_tts.workers.client import EngineClient


async def run(control: int, directory: str) -> None:
    """Serve until the host ends this process, or its connection is lost.

    Args:
        control: descriptor of a socket to the host process.
        directory: directory of the sockets of the host's gateways.
    """
    link = await HostLink.open(control, directory)
    listening = asyncio.create_task(link.listen(), name="listen to host")
    listening.add_done_callback(_host_is_gone)
    try:
        await _serve(link, directory)
    except RealtimeTTSError as error:
        link.send(GatewayFailed(error.code, error.message))
    finally:
        listening.remove_done_callback(_host_is_gone)
        await end_tasks(listening)


async def _serve(link: HostLink, directory: str) -> None:
    begin = link.begin
    settings = begin.settings
    configure_logging(settings.server.log_level, settings.server.log_format)
    count_as(link.index)
    app = create_app(settings, EngineClient(link), link)
    sources = [ConnectionReceiver(receiver_path(directory, "gateway", link.index))]
    if begin.address.metrics_port is not None:
        sources.append(ConnectionReceiver(receiver_path(directory, "metrics", link.index)))
    server = GatewayServer(app, sources[0], begin.address)
    reporting = watch(_report(link, server), "report to host", server.stop)
    try:
        await serve_at(server, sources[1:], lambda server, _: link.send(Serving(describe(server))))
    finally:
        await end_tasks(reporting)


async def _report(link: HostLink, server: GatewayServer) -> None:
    await until(lambda: server.started)  # from then on it takes connections
    slots = server.gateway.admission.slots
    await link.report(lambda: Report(server.num_new, server.limiter.num_taken, slots.counts), server.connected)


def _host_is_gone(task: asyncio.Task[None]) -> None:
    os._exit(1)  # the workers end with the host, so no speech could be finished


def main() -> None:
    parser = argparse.ArgumentParser(description="One gateway of a host; started by the host process.")
    parser.add_argument("--control", type=int, required=True, help="descriptor of a socket to the host process")
    parser.add_argument("--directory", required=True, help="where the sockets of the host's gateways lie")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.control, arguments.directory))


if __name__ == "__main__":
    main()

"""What `serve` prints for the person that started it."""

from __future__ import annotations

import socket

import pytest
from gateway_harness import GatewayHarness

from realtime_tts.cli.serve import show
from realtime_tts.contract.watch import until
from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.run import GatewayServer, describe


class BrokenStarter(GatewayHarness):
    """Its caller fails when it is told that the server is ready."""

    def _on_ready(self, server: GatewayServer, url: str) -> None:
        raise LookupError("a mistake of the caller")


def test_what_the_caller_raises_when_the_server_is_ready_comes_out() -> None:
    with pytest.raises(LookupError, match="a mistake of the caller"), BrokenStarter():
        pass


def test_a_person_is_told_where_to_go(gateway: GatewayHarness, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.call(lambda: show(describe(gateway.server)))
    told = capsys.readouterr().err
    assert all(address in told for address in (gateway.url, gateway.ws_url, f"{gateway.url}/docs"))
    assert "fake-voice, 16000 Hz" in told
    assert "slt, rms (default: slt)" in told
    assert "no key is needed" in told


def test_a_person_is_told_how_many_streams_the_device_carries_in_real_time() -> None:
    worker = {"max_streams": 64, "real_time_streams": 3}
    with GatewayHarness(worker=worker, num_workers=2, devices="cpu,cpu") as gateway:
        engine = gateway.gateway.engine
        gateway.run(until(lambda: len(engine.stats) == 2))
        assert gateway.call(lambda: describe(gateway.server))["Device"].endswith(", up to 3 streams in real time")


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    "address", [pytest.param("[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")), "0.0.0.0"]
)
def test_a_person_is_told_where_the_metrics_are(address: str) -> None:
    with GatewayHarness(host="0.0.0.0", api_key_hashes=(create_key()[1],), metrics_address=f"{address}:0") as gateway:
        url = gateway.call(lambda: describe(gateway.server))["Metrics"]
    assert url == f"http://{address.replace('0.0.0.0', '127.0.0.1')}:{gateway.server.address.metrics_port}/metrics"

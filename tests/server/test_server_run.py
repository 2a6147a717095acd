"""What `serve` prints for the person that started it."""

from __future__ import annotations

import pytest
from gateway_harness import GatewayHarness

from realtime_tts.cli.serve import show
from realtime_tts.contract.watch import until
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

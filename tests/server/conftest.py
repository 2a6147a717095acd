"""The gateways that the server's tests talk to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from client_harness import journal
from gateway_harness import GatewayHarness

__all__ = ["journal"]


@pytest.fixture(autouse=True)
def quiet_log(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever clients do, the gateway logs no error and no traceback; its own faults are marked `logs_errors`."""
    yield
    records = [record for phase in ("setup", "call") for record in caplog.get_records(phase)]
    loud = [record.getMessage() for record in records if record.levelno >= logging.ERROR or record.exc_info]
    assert not loud or request.node.get_closest_marker("logs_errors")


@pytest.fixture(scope="session")
def shared_gateway() -> Iterator[GatewayHarness]:
    with GatewayHarness(worker={"patch_delay_s": 0.002}) as harness:
        yield harness


@pytest.fixture
def gateway(shared_gateway: GatewayHarness) -> Iterator[GatewayHarness]:
    """A gateway with default settings; nothing of a test may stay in it."""
    baseline = shared_gateway.usage()
    yield shared_gateway
    assert shared_gateway.settle(baseline) == baseline


@pytest.fixture(scope="session")
def clauses() -> Iterator[GatewayHarness]:
    """A gateway where the same text has the same samples for every client: one seed, and speech by clauses, since live
    speech depends on when its text comes. A pause of the client ends no clause."""
    with GatewayHarness(mode="clause", stall_flush_s=60.0, max_lead_s=60.0, worker={"patch_delay_s": 0.001}) as harness:
        harness.call(lambda: setattr(harness.gateway.catalogue.defaults, "_draw_seed", lambda: 7))
        yield harness


@pytest.fixture
def make_gateway() -> Iterator[Callable[..., GatewayHarness]]:
    """Makes a gateway with settings of the test's own, and checks that nothing stays in it."""
    harnesses: list[GatewayHarness] = []

    def make(**options: object) -> GatewayHarness:
        harness = GatewayHarness(**options).__enter__()  # type: ignore[arg-type]
        harnesses.append(harness)
        return harness

    yield make
    for harness in harnesses:
        harness.__exit__()

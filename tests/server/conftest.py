"""The gateways that the server's tests talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from gateway_harness import GatewayHarness


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

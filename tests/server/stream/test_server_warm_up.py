"""Before a gateway is ready it has had calls of its own, of which nothing is left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from gateway_harness import GatewayHarness

from realtime_tts.server.stream import warm_up
from realtime_tts.session import messages

NUM_CALLS = 2


async def test_a_gateway_has_rehearsed_and_nothing_is_left_of_it(
    make_gateway: Callable[..., GatewayHarness],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    heard: list[messages.ServerMessage] = []
    monkeypatch.setattr(warm_up._NoAccount, "sent", lambda session_account, message, now: heard.append(message))
    caplog.set_level(logging.INFO)
    journal = tmp_path / "journal"
    gateway = make_gateway(worker={"journal": journal})
    assert sum(isinstance(message, messages.ContextDone) for message in heard) == NUM_CALLS
    assert sum(len(message.packets) for message in heard if isinstance(message, messages.AudioPackets)) > NUM_CALLS
    assert not [message for message in heard if isinstance(message, messages.ErrorMessage | messages.ContextFailed)]

    counted = gateway.call(lambda: list(gateway.gateway.metrics.registry.collect()))
    told = {sample.name: sample.value for family in counted for sample in family.samples if family.type != "info"}
    assert told["realtime_tts_sessions_opened_total"] == 0
    assert {name for name, value in told.items() if value and "created" not in name} <= {
        "realtime_tts_lateness_seconds",
        "realtime_tts_late",
    }
    usage = gateway.usage()
    assert (usage.sessions, usage.requests, usage.engine_contexts) == (0, 0, 0)
    assert {record.getMessage() for record in caplog.records if record.name.startswith("realtime_tts.server")} <= {
        "ready",
        "pace",
    }
    assert not journal.exists() or "Generate" not in journal.read_text()

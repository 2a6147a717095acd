"""A fault inside the server costs what it met; a socket that must be closed says how its contexts ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream

from realtime_tts.dialects.native import NativeDialect
from realtime_tts.session.context import Context
from realtime_tts.session.messages import ServerMessage, Words
from realtime_tts.session.session import Session
from realtime_tts.text.planner import Planner

pytestmark = pytest.mark.logs_errors
NEVER = "command never. "
SECRET = "quetzalcoatl"


def broken(*args: object, **kwargs: object) -> Any:
    raise IndexError(SECRET)


@pytest.fixture
def crashes(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was logged at level error; no line of it says what a user said."""
    yield lambda: [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert all(record.exc_info is None for record in caplog.records)
    assert SECRET not in str([record.__dict__ for record in caplog.records])


async def test_a_planner_that_raises_ends_its_context_and_no_other(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch, crashes: Callable[[], list[str]]
) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="well", text="Hello there. ")
        await client.until("audio")
        with monkeypatch.context() as patched:
            patched.setattr(Planner, "pushing", broken)
            await client.send("text", context_id="bad", text="Hello there. ")
            failed = await client.until_terminal("bad")
        assert (failed["type"], failed["code"]) == ("context.failed", "internal_error")
        await client.send("end", context_id="well")
        assert (await client.until_terminal("well"))["type"] == "context.done"
    assert crashes() == ["context_crashed"]


async def test_a_message_that_cannot_be_written_ends_its_context_and_no_other(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch, crashes: Callable[[], list[str]]
) -> None:
    serialize = NativeDialect.serialize

    def brittle(self: NativeDialect, message: ServerMessage) -> Any:
        return broken() if isinstance(message, Words) and message.context_id == "bad" else serialize(self, message)

    monkeypatch.setattr(NativeDialect, "serialize", brittle)
    async with open_stream(gateway.ws_url) as client:
        await client.speak("bad", "Hello there. ")
        await client.speak("well", "Hello there. ")
        failed = await client.until_terminal("bad")
        assert (failed["type"], failed["code"]) == ("context.failed", "internal_error")
        assert (await client.until_terminal("well"))["type"] == "context.done"
    assert crashes() == ["context_crashed"]


async def test_a_message_that_cannot_be_parsed_is_answered(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch, crashes: Callable[[], list[str]]
) -> None:
    async with open_stream(gateway.ws_url) as client:
        with monkeypatch.context() as patched:
            patched.setattr(NativeDialect, "parse", broken)
            await client.send("ping")
            assert (await client.until("error"))["code"] == "internal_error"
        await client.speak("well", "Hello there. ")
        assert (await client.until_terminal("well"))["type"] == "context.done"
    assert crashes() == ["parser_crashed"]


@pytest.mark.parametrize("method", ["receive", "next_deadline", "messages_to_send"])
async def test_a_session_that_raises_is_closed_with_all_that_it_has(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch, crashes: Callable[[], list[str]], method: str
) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text=NEVER)
        await client.until("audio")
        with monkeypatch.context() as patched:
            patched.setattr(Session, method, broken)
            await client.send("ping")
            assert await client.until_closed() == (1011, "internal_error")
    assert set(crashes()) == {"session_crashed"}
    if method == "receive":
        assert (client.contexts["c"].terminal or {})["code"] == "internal_error"


async def test_a_context_that_cannot_even_fail_closes_the_session(
    gateway: GatewayHarness, monkeypatch: pytest.MonkeyPatch, crashes: Callable[[], list[str]]
) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text=NEVER)
        await client.until("audio")
        with monkeypatch.context() as patched:
            patched.setattr(Planner, "pushing", broken)
            patched.setattr(Context, "fail", broken)
            await client.send("text", context_id="c", text="Hello there. ")
            assert await client.until_closed() == (1011, "internal_error")
    assert set(crashes()) == {"session_crashed", "context_crashed"}


@pytest.mark.parametrize(("frame", "is_text", "code"), [("a" * 1_000_000, True, 1009), (b"\xff\xfe", True, 1007)])
async def test_a_frame_that_closes_the_socket_ends_its_contexts_first(
    gateway: GatewayHarness, crashes: Callable[[], list[str]], frame: str | bytes, is_text: bool, code: int
) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text=NEVER)
        await client.until("audio")
        await client.socket.send(frame, text=is_text)
        assert (await client.until_closed())[0] == code
    terminal = client.contexts["c"].terminal
    assert terminal is not None
    assert (terminal["type"], terminal["code"]) == ("context.failed", "invalid_message")
    assert crashes() == []


async def test_a_server_that_is_made_to_exit_ends_its_contexts_first(make_gateway: Callable[..., Any]) -> None:
    gateway = make_gateway()
    async with open_stream(gateway.ws_url) as client, open_stream(gateway.ws_url) as silent:
        await client.send("text", context_id="c", text=NEVER)
        await client.until("audio")
        gateway.call(gateway.server.stop)
        gateway.call(gateway.server.stop)
        assert (await client.until_closed())[0] == 1001
        assert (await silent.until_closed())[0] == 1001
    assert (client.contexts["c"].terminal or {})["type"] == "context.cancelled"


async def test_a_message_may_come_in_parts(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.socket.send(['{"type":', "", '"pi', "", 'ng"}'])
        await client.until("pong")
        await client.socket.send([b'{"type":', b"", b'"ping"}'])
        await client.until("pong")

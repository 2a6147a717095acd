"""Whatever a client sends, it gets a typed answer, and the socket goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_harness import GatewayHarness
from stream_client import StreamClient, open_stream

DEEP = "[" * 5000 + "]" * 5000


def text(**fields: Any) -> str:
    return json.dumps({"type": "text", "context_id": "bad", "text": "Hello there. ", **fields})


BAD_FRAMES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "invalid_message"),
    "not json": ("hello", "invalid_message"),
    "half an object": ('{"type":"text"', "invalid_message"),
    "two objects": ('{"type":"ping"}{"type":"ping"}', "invalid_message"),
    "an array": ('["text"]', "invalid_message"),
    "a string": ('"text"', "invalid_message"),
    "null": ("null", "invalid_message"),
    "NaN": ('{"type":"playback","context_id":"a","played_ms":NaN}', "invalid_message"),
    "Infinity": ('{"type":"playback","context_id":"a","played_ms":Infinity}', "invalid_message"),
    "negative playback": ('{"type":"playback","context_id":"a","played_ms":-1}', "invalid_message"),
    "float overflow": ('{"type":"playback","context_id":"a","played_ms":1e999}', "invalid_message"),
    "deep nesting": (f'{{"type":"text","x":{DEEP}}}', "invalid_message"),
    "huge integer": ('{"type":"playback","context_id":"a","played_ms":' + "9" * 5000 + "}", "invalid_message"),
    "binary garbage": (b"\x00\xff\xfe\x80", "invalid_message"),
    "no type": ("{}", "invalid_message"),
    "type of a wrong type": ('{"type":5}', "invalid_message"),
    "unknown type": ('{"type":"speak"}', "invalid_message"),
    "too large": (text(text="a" * 70_000), "invalid_message"),
    "text missing": ('{"type":"text","context_id":"bad"}', "invalid_message"),
    "text of a wrong type": (text(text=5), "invalid_message"),
    "context missing": ('{"type":"text","text":"Hello."}', "invalid_message"),
    "context empty": (text(context_id=""), "invalid_message"),
    "context too long": (text(context_id="x" * 200), "invalid_message"),
    "context of a wrong type": (text(context_id=["a"]), "invalid_message"),
    "unknown codec": (text(audio={"codec": "mp3"}), "unsupported_audio_format"),
    "unknown rate": (text(audio={"codec": "opus", "sample_rate": 44_100}), "unsupported_audio_format"),
    "negative rate": (text(audio={"codec": "pcm_s16le", "sample_rate": -8000}), "unsupported_audio_format"),
    "odd frame": (text(audio={"frame_ms": 25}), "unsupported_audio_format"),
    "huge bitrate": (text(audio={"bitrate": 10**9}), "unsupported_audio_format"),
    "audio of a wrong type": (text(audio="opus"), "invalid_message"),
    "cfg out of range": (text(params={"cfg": -1}), "invalid_request"),
    "steps out of range": (text(params={"steps": 0}), "invalid_request"),
    "seed out of range": (text(params={"seed": -1}), "invalid_request"),
    "seed of a wrong type": (text(params={"seed": "x"}), "invalid_message"),
    "unknown language": (text(params={"language": "tlh"}), "unsupported_language"),
    "flush of no context": ('{"type":"flush","context_id":"nobody"}', "invalid_request"),
    "end of no context": ('{"type":"end","context_id":"nobody"}', "invalid_request"),
    "resume in the middle": ('{"type":"session.resume","session_id":"s","contexts":{}}', "invalid_message"),
}


async def speaks(client: StreamClient, context_id: str, words: str = "Still here.") -> dict[str, Any]:
    await client.speak(context_id, words)
    done = await client.until_terminal(context_id)
    assert done["type"] == "context.done"
    return done


@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_a_bad_frame_is_answered_and_the_socket_goes_on(gateway: GatewayHarness, name: str) -> None:
    frame, code = BAD_FRAMES[name]
    async with open_stream(gateway.ws_url) as client:
        await client.send("ping")
        await client.until("pong")
        await client.socket.send(frame)
        error = await client.until("error")
        assert error["code"] == code
        assert error["message"]
        assert error["retryable"] is False
        assert (await speaks(client, "after"))["audio_ms"] > 0


async def test_a_frame_far_too_large_closes_the_socket(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.socket.send("a" * 1_000_000)
        assert (await client.until_closed())[0] == 1009


async def test_a_frame_that_is_not_utf8_closes_the_socket(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.socket.send(b"\xff\xfe", text=True)
        assert (await client.until_closed())[0] == 1007


async def test_twenty_bad_messages_in_a_row_close_the_socket(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        for _ in range(19):
            await client.socket.send("nonsense")
        await client.send("ping")  # a good one starts the count again
        for _ in range(20):
            await client.socket.send("nonsense")
        code, reason = await client.until_closed()
    assert (code, reason) == (1008, "too_many_errors")
    assert client.messages[-1]["code"] == "too_many_errors"
    assert len(client.messages) == 19 + 1 + 20 + 1


SILENT_TEXTS = {
    "empty": "",
    "blank": " \n\t ",
    "punctuation": "... !? -- ,,",
    "emoji": "😀 🎉🏽 👩‍👩‍👧",
    "zero width": "\u200b\u200d\ufeff\u2060",
    "control characters": "\x00\x01\x1b\x7f",
}
SPOKEN_TEXTS = {
    "lone surrogate": "Hello \ud800 there.",
    "control characters": "Hel\x00lo the\x1bre.",
    "zero width": "Hel\u200blo th\u200dere.",
    "combining marks": "He" + "\u0301" * 500 + "llo.",
    "special tokens": "<|endoftext|> <slt> </s> [PAD] hello.",
    "markup": "<b>Hello</b> &amp; **there** `code`.",
    "one long word": "a" * 3000,
    "right to left": "Hello \u05e9\u05dc\u05d5\u05dd \u202eolleh\u202c.",
    "no end": "Hello there",
    "digits": "1" * 400,
}


@pytest.mark.parametrize("name", SILENT_TEXTS)
async def test_text_without_words_is_done_at_once(gateway: GatewayHarness, name: str) -> None:
    async with open_stream(gateway.ws_url) as client:
        done = await speaks(client, "quiet", SILENT_TEXTS[name])
        assert done["audio_ms"] <= 500
        assert not client.contexts["quiet"].words


@pytest.mark.parametrize("name", SPOKEN_TEXTS)
async def test_odd_text_is_spoken(gateway: GatewayHarness, name: str) -> None:
    words = SPOKEN_TEXTS[name]
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="odd", text=words)
        await client.send("end", context_id="odd")
        # Long ones are paced by playback, so hearing the first of it must do.
        await client.until("audio")
        await client.send("cancel", context_id="odd")
        await client.until_terminal("odd")
        assert not [message for message in client.messages if message["type"] == "error"]


async def test_a_context_takes_so_much_text_and_no_more(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="long", text="a " * 9_999)
        await client.send("text", context_id="long", text="abc")
        error = await client.until("error")
        assert (error["code"], error["context_id"]) == ("text_too_long", "long")
        await client.send("cancel", context_id="long")
        await client.until_terminal("long")


async def test_a_session_has_so_many_contexts_and_no_more(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        for index in range(17):
            await client.send("text", context_id=f"c{index}", text="Hel")
        error = await client.until("error")
        assert (error["code"], error["context_id"]) == ("too_many_contexts", "c16")
        await client.send("cancel", context_id="c0")
        await client.until_terminal("c0")
        await client.send("text", context_id="c16", text="lo.")
        assert (await client.until("error"))["code"] == "context_closed"
        await client.send("text", context_id="c17", text="Hel")
        await client.until(lambda m: m["type"] == "context.started" and m["context_id"] == "c17")


async def test_text_after_the_end_is_refused(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.speak("c1", "Hello there.")
        await client.send("text", context_id="c1", text="more")
        assert (await client.until("error"))["code"] == "context_closed"
        await client.until_terminal("c1")
        await client.send("text", context_id="c1", text="more")
        assert (await client.until("error"))["code"] == "context_closed"


async def test_an_unknown_voice_is_refused_by_a_message_that_lists_the_voices(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("session.start", voice="alloy")
        await client.send("text", context_id="c1", text="Hello.", voice="alloy")
        for context_id in (None, "c1"):
            error = await client.until("error")
            assert (error["code"], error["field"], error.get("context_id")) == ("voice_not_found", "voice", context_id)
            assert "slt, rms, zero-shot" in error["message"]
        await speaks(client, "c2")

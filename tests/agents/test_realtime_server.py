"""The Realtime server, driven by OpenAI's Python client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import time
from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest
from openai import APIStatusError, AsyncOpenAI
from server_environment import ROOT
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

sys.path.insert(0, str(ROOT / "agents"))

from realtime_caller import SILENCE, Caller, Parrot, calling, serving, sound, until
from realtime_server.client_secrets import MAX_SECRETS, ClientSecrets
from realtime_server.connection import Stages
from realtime_server.core import MAX_ITEM_CHARS
from realtime_server.history import MAX_ITEMS
from realtime_server.models import End, Piece, ScriptedModel
from realtime_server.server import MAX_MESSAGE_BYTES

SENTENCE = "The quick brown fox."
LONG = " ".join([SENTENCE] * 16)
SHORT_PAUSE = {"type": "server_vad", "silence_duration_ms": 5}
MANUAL: dict[str, Any] = {"audio": {"input": {"turn_detection": None}}}


async def ask(caller: Caller, text: str) -> None:
    await caller.send(
        "conversation.item.create",
        item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
    )
    await caller.send("response.create")


def said(caller: Caller) -> list[tuple[str, str]]:
    """Return the messages of the server's conversation."""
    items = [item for item in caller.own.core.items if item["type"] == "message"]
    return [
        (item["role"], item["content"][0].get("transcript") or item["content"][0].get("text", "")) for item in items
    ]


async def test_a_turn(fake_gateway: str) -> None:
    async with serving(fake_gateway, f"say {SENTENCE}") as (url, server), calling(url, server) as caller:
        await caller.say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
        done = (await caller.next("response.done"))["response"]
        kinds = [kind for kind in caller.kinds() if not kind.endswith(".delta")]
        assert kinds[:8] == [
            "session.created",
            "input_audio_buffer.speech_started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.completed",
            "response.created",
        ]
        assert kinds[8:] == [
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        started = await caller.next("input_audio_buffer.speech_started")
        assert started["item_id"] == (await caller.next("input_audio_buffer.committed"))["item_id"]
        assert 150 <= started["audio_start_ms"] <= 250  # 300 ms before the sound at 500 ms
        assert (done["status"], done["usage"]["output_tokens"]) == ("completed", 4)
        assert caller.transcript == SENTENCE
        assert said(caller) == [("user", f"say {SENTENCE}"), ("assistant", SENTENCE)]
        assert len(caller.audio) > 24_000
        [num_samples] = server._parts.recogniser.num_samples  # type: ignore[attr-defined]
        assert 16_000 * 1.2 <= num_samples <= 16_000 * 1.5  # padding, sound, and 200 ms of the quiet after it


@pytest.mark.parametrize("barge_in", ["hold", "now"])
async def test_an_interrupted_turn_keeps_the_words_that_were_heard(fake_gateway: str, barge_in: str) -> None:
    async with (
        serving(fake_gateway, f"say {LONG}", f"say {SENTENCE}", barge_in=barge_in) as (url, server),
        calling(url, server) as caller,
    ):
        await caller.say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
        await until(lambda: len(caller.audio) > 48_000)  # a second
        item_id = (await caller.next("response.output_audio.delta"))["item_id"]
        await caller.say(sound(800))
        await caller.next("input_audio_buffer.speech_started", 2)
        interrupted = (await caller.next("response.done"))["response"]
        assert (interrupted["status"], interrupted["status_details"]["reason"]) == ("cancelled", "turn_detected")
        words = list(caller.own.core.items.speeches[item_id].source.words)
        for heard_ms in (700, 300):
            await caller.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=heard_ms)
        assert (await caller.next("conversation.item.truncated", 2))["audio_end_ms"] == 300
        kept = LONG[: max(word.end for word in words if word.end_ms <= 300.5)]
        assert said(caller)[1] == ("assistant", kept)
        await caller.say(*[SILENCE] * 8)
        answer = (await caller.next("response.done", 2))["response"]
        assert answer["output"][0]["content"][0]["transcript"] == SENTENCE
        assert said(caller)[1:] == [("assistant", kept), ("user", f"say {SENTENCE}"), ("assistant", SENTENCE)]


async def test_without_truncate_an_interrupted_turn_keeps_what_was_played(fake_gateway: str) -> None:
    async with serving(fake_gateway, f"say {LONG}") as (url, server), calling(url, server) as caller:
        await caller.say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
        await until(lambda: len(caller.audio) > 48_000)
        await caller.send("response.cancel")
        done = (await caller.next("response.done"))["response"]
        assert done["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        [(_, _), (_, kept)] = said(caller)
        assert LONG.startswith(kept)
        assert 0 < len(kept) <= len(caller.transcript)


class Talkative(ScriptedModel):
    """Language model that writes sentences, at twice the speed of speech, until `enough` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.enough = asyncio.Event()

    async def write(self, messages: list[Any], options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        while not self.enough.is_set():
            sentence = f" {SENTENCE}" if self.text else SENTENCE
            self.text += sentence
            yield sentence
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.enough.wait(), 0.5)
        yield End((0, 0))


async def test_after_a_nod_the_speech_goes_on_and_loses_nothing(fake_gateway: str) -> None:
    model = Talkative()  # its speech does not end before the nod, however slow the machine is
    async with serving(fake_gateway, "Hello", model=model) as (url, server), calling(url, server) as caller:
        await caller.say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
        await until(lambda: caller.audio)
        await caller.say(sound(200))
        await until(lambda: caller.own._held_ms is not None)
        await caller.say(*[SILENCE] * 3)
        await until(lambda: caller.own._held_ms is None)
        model.enough.set()
        await caller.next("response.done")
        assert len(caller.all("input_audio_buffer.speech_started")) == 1
        assert caller.transcript == model.text
        audio_ms = len(caller.audio) / 48
        assert audio_ms == pytest.approx(caller.own.core._last[1].sent_ms)  # type: ignore[index]


async def test_a_function_call(fake_gateway: str) -> None:
    async with serving(fake_gateway, 'call weather {"city": "Rome"}') as (url, server), calling(url, server) as caller:
        tool = {"type": "function", "name": "weather", "description": "Weather", "parameters": {"type": "object"}}
        await caller.update(tools=[tool], tool_choice="auto")
        await caller.say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
        done = (await caller.next("response.done"))["response"]
        [call] = done["output"]
        assert (call["type"], call["name"], call["arguments"]) == ("function_call", "weather", '{"city": "Rome"}')
        deltas = "".join(event["delta"] for event in caller.all("response.function_call_arguments.delta"))
        assert deltas == (await caller.next("response.function_call_arguments.done"))["arguments"] == call["arguments"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "say It is sunny."}
        await caller.send("conversation.item.create", item=output)
        await caller.send("response.create")
        answer = (await caller.next("response.done", 2))["response"]
        assert answer["output"][0]["content"][0]["transcript"] == "It is sunny."


async def test_manual_turns(fake_gateway: str) -> None:
    async with serving(fake_gateway, f"say {SENTENCE}") as (url, server), calling(url, server) as caller:
        await caller.update(**MANUAL)
        await caller.say(sound(500))
        await caller.send("input_audio_buffer.clear")
        await caller.say(sound(1000))
        await caller.send("input_audio_buffer.commit")
        await caller.send("response.create")  # it waits for the recogniser
        await caller.next("response.done")
        assert said(caller) == [("user", f"say {SENTENCE}"), ("assistant", SENTENCE)]
        [num_samples] = server._parts.recogniser.num_samples  # type: ignore[attr-defined]
        assert num_samples == pytest.approx(16_000, abs=700)  # the resampler keeps its last samples
        assert not caller.all("input_audio_buffer.speech_started")


@pytest.mark.parametrize(("name", "bytes_per_s"), [("audio/pcmu", 8_000), ("audio/pcma", 8_000)])
async def test_telephone_audio_both_ways(fake_gateway: str, name: str, bytes_per_s: int) -> None:
    async with serving(fake_gateway, f"say {SENTENCE}") as (url, server), calling(url, server) as caller:
        await caller.update(audio={"input": {"format": {"type": name}}, "output": {"format": {"type": name}}})
        quiet = bytes([0xFF if name == "audio/pcmu" else 0xD5]) * 8_000
        loud = bytes(np.random.default_rng(3).choice(np.frombuffer(b"\x00\x80\x10\x90", np.uint8), 6_400))
        audio = base64.b64encode(quiet + loud + quiet).decode()
        await caller.send("input_audio_buffer.append", audio=audio)
        await caller.next("response.done")
        speech_ms = caller.own.core._last[1].sent_ms  # type: ignore[index]
        assert len(caller.audio) == pytest.approx(speech_ms * bytes_per_s / 1000)


async def test_text_without_speech(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        await caller.update(output_modalities=["text"])
        await ask(caller, f"say {SENTENCE}")
        done = (await caller.next("response.done"))["response"]
        assert done["output"][0]["content"][0]["text"] == SENTENCE
        assert "".join(event["delta"] for event in caller.all("response.output_text.delta")) == SENTENCE
        assert not caller.audio


async def test_a_response_outside_the_conversation(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "say Yes."}]}
        response = {"conversation": "none", "input": [item], "output_modalities": ["text"], "metadata": {"a": "b"}}
        await caller.send("response.create", response=response)
        done = (await caller.next("response.done"))["response"]
        assert done["output"][0]["content"][0]["text"] == "Yes."
        assert (done["metadata"], done.get("conversation_id")) == ({"a": "b"}, None)
        assert caller.own.core.items == []


async def test_a_response_to_an_item_of_the_conversation(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        for number, text in enumerate(("say One.", "say Two.")):
            content = [{"type": "input_text", "text": text}]
            item = {"id": f"item_{number}", "type": "message", "role": "user", "content": content}
            await caller.send("conversation.item.create", item=item)
        response = {"conversation": "none", "output_modalities": ["text"]}
        reference = {"type": "item_reference", "id": "item_0"}
        await caller.send("response.create", response={**response, "input": [reference]})
        done = (await caller.next("response.done"))["response"]
        assert done["output"][0]["content"][0]["text"] == "One."
        await caller.send("response.create", response={**response, "input": [{**reference, "id": "item_2"}]})
        error = (await caller.next("error"))["error"]
        assert (error["code"], error["param"]) == ("invalid_value", "response.input[0].id")


async def test_a_limit_of_tokens_leaves_the_response_incomplete(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        await caller.update(max_output_tokens=3)
        await ask(caller, f"say {SENTENCE}")
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["status_details"]["reason"]) == ("incomplete", "max_output_tokens")
        assert done["output"][0]["content"][0]["transcript"] == "The quick brown"


async def test_a_noise_gets_no_response(fake_gateway: str) -> None:
    async with serving(fake_gateway, "", f"say {SENTENCE}") as (url, server), calling(url, server) as caller:
        await caller.say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
        await caller.next("conversation.item.input_audio_transcription.completed")
        assert not caller.all("response.created")
        await caller.say(sound(800), *[SILENCE] * 8)
        await caller.next("response.done")
        assert len(caller.all("response.created")) == 1


async def test_items_can_be_retrieved_inserted_and_deleted(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        for name, after in (("b", None), ("c", None), ("a", "root")):
            item = {"id": name, "type": "message", "role": "user", "content": [{"type": "input_text", "text": name}]}
            place = {} if after is None else {"previous_item_id": after}
            await caller.send("conversation.item.create", item=item, **place)
        await caller.send("conversation.item.delete", item_id="b")
        await caller.send("conversation.item.retrieve", item_id="c")
        assert (await caller.next("conversation.item.retrieved"))["item"]["content"][0]["text"] == "c"
        added = caller.all("conversation.item.added")
        assert [(event["item"]["id"], event.get("previous_item_id")) for event in added] == [
            ("b", None),
            ("c", "b"),
            ("a", None),
        ]
        assert said(caller) == [("user", "a"), ("user", "c")]


class Broken(ScriptedModel):
    async def write(self, messages: list[Any], options: dict[str, Any]) -> Any:
        yield "The quick brown "
        raise OSError("the model has no more memory")


class Fading(ScriptedModel):
    """Fails once so much was sent that the speech waits for playback."""

    def __init__(self, caller: list[Caller]) -> None:
        super().__init__()
        self._caller = caller

    async def write(self, messages: list[Any], options: dict[str, Any]) -> Any:
        [caller] = self._caller
        yield LONG
        await until(lambda: len(caller.audio) >= 24_000 * 2)
        raise OSError("the model has no more memory")


class Lingering(ScriptedModel):
    """Takes its time to stop, and fails at it."""

    def __init__(self) -> None:
        super().__init__(100.0)
        self.stopped = asyncio.Event()
        self.num_stops = 0

    async def write(self, messages: list[Any], options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        try:
            yield f"{LONG} "
            await asyncio.Event().wait()
        finally:
            self.num_stops += 1
            await self.stopped.wait()
            raise OSError("the connection broke")


class Deaf(Parrot):
    async def recognise(self, samples: Any, language: str | None) -> str:
        raise OSError("no recogniser")


async def test_a_model_that_fails_ends_its_response_alone(fake_gateway: str) -> None:
    async with serving(fake_gateway, "", model=Broken()) as (url, server), calling(url, server) as caller:
        for number in (1, 2):
            await ask(caller, "Hello")
            done = (await caller.next("response.done", number))["response"]
            assert (done["status"], done["status_details"]["error"]["code"]) == ("failed", "model_failed")


async def test_speech_of_a_model_that_fails_ends_at_the_speech_server(fake_gateway: str) -> None:
    callers: list[Caller] = []
    async with serving(fake_gateway, "", model=Fading(callers)) as (url, server), calling(url, server) as caller:
        callers.append(caller)
        await ask(caller, "Hello")
        assert (await caller.next("response.done"))["response"]["status"] == "failed"
        await until(lambda: not caller.own._speech._live and not caller.own._speech._awaited)


async def test_an_answer_that_is_slow_to_stop_does_not_disturb_the_next(fake_gateway: str) -> None:
    model = Lingering()
    async with serving(fake_gateway, "", model=model) as (url, server), calling(url, server) as caller:
        await ask(caller, "Hello")
        first = (await caller.next("response.created"))["response"]["id"]
        await until(lambda: len(caller.audio) >= 0.9 * 24_000 * 2)  # the speech waits for playback
        await caller.send("response.cancel")
        await ask(caller, "Hello")
        second = (await caller.next("response.created", 2))["response"]["id"]
        await until(lambda: any(e["response_id"] == second for e in caller.all("response.output_audio.delta")))
        assert model.num_stops == 1
        model.stopped.set()
        await until(lambda: sum(e["response_id"] == second for e in caller.all("response.output_audio.delta")) > 50)
        await caller.send("response.cancel")
        await caller.next("response.done", 2)
        ended = [(e["response"]["id"], e["response"]["status"]) for e in caller.all("response.done")]
        assert ended == [(first, "cancelled"), (second, "cancelled")]
        assert [e["response_id"] for e in caller.all("response.output_item.added")] == [first, second]
        spoken = next(e for e in caller.all("response.output_audio.delta") if e["response_id"] == second)
        [sample, *_] = np.frombuffer(base64.b64decode(spoken["delta"]), np.int16)
        assert sample % 1000 == 0  # the beginning of an answer; that of the first one was reached at 0.9 s


async def test_a_recogniser_that_fails_is_told(fake_gateway: str) -> None:
    async with serving(fake_gateway, recogniser=Deaf("")) as (url, server), calling(url, server) as caller:
        await caller.say(*[SILENCE] * 5, sound(800), *[SILENCE] * 8)
        failed = await caller.next("conversation.item.input_audio_transcription.failed")
        assert failed["error"]["code"] == "recognition_failed"


@pytest.mark.parametrize("voice", ["rms", {"id": "rms"}])
async def test_a_voice_is_a_name_or_an_object_with_its_id(fake_gateway: str, voice: Any) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        await caller.update(audio={"output": {"voice": voice}})
        await ask(caller, f"say {SENTENCE}")
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["audio"]["output"]["voice"]) == ("completed", "rms")


async def test_an_unknown_voice_fails_the_response(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        await caller.update(audio={"output": {"voice": "no-such-voice"}})
        await ask(caller, f"say {SENTENCE}")
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["status_details"]["error"]["code"]) == ("failed", "voice_not_found")
        await caller.update(audio={"output": {"voice": "marin"}})  # OpenAI's voices are the default voice
        await ask(caller, f"say {SENTENCE}")
        assert (await caller.next("response.done", 2))["response"]["status"] == "completed"


ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}
BAD: list[tuple[str | dict[str, Any], str, str | None]] = [
    ("{", "invalid_json", None),
    ("[]", "invalid_json", None),
    ("[" * 60_000, "invalid_json", None),
    ({}, "invalid_value", "type"),
    ({"type": "session.destroy"}, "invalid_value", "type"),
    ({"type": "session.update"}, "missing_required_parameter", "session"),
    ({"type": "session.update", "session": {"type": "realtime", "colour": 1}}, "unknown_parameter", "session.colour"),
    (
        {
            "type": "session.update",
            "session": {"type": "realtime", "audio": {"input": {"format": {"type": "audio/mp3"}}}},
        },
        "invalid_value",
        "session.audio.input.format.type",
    ),
    (
        {
            "type": "session.update",
            "session": {
                "type": "realtime",
                "audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}},
            },
        },
        "invalid_value",
        "session.audio.input.turn_detection.threshold",
    ),
    (
        {"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text", "audio"]}},
        "invalid_value",
        "session.output_modalities",
    ),
    (
        {"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"speed": 9}}}},
        "invalid_value",
        "session.audio.output.speed",
    ),
    ({"type": "input_audio_buffer.append", "audio": "?"}, "invalid_value", "audio"),
    ({"type": "input_audio_buffer.append", "audio": "AAAA"}, "invalid_value", "audio"),
    ({"type": "input_audio_buffer.commit"}, "input_audio_buffer_commit_empty", None),
    ({"type": "conversation.item.create", "item": {"type": "poem"}}, "invalid_value", "item"),
    ({"type": "conversation.item.create", "item": {**ITEM, "role": []}}, "invalid_value", "item"),
    (
        {"type": "conversation.item.create", "item": {**ITEM, "content": [{"type": "input_image"}]}},
        "invalid_value",
        "item.content[0].type",
    ),
    (
        {"type": "conversation.item.create", "item": ITEM, "previous_item_id": "x"},
        "item_create_invalid_previous_item_id",
        "previous_item_id",
    ),
    (
        {
            "type": "conversation.item.create",
            "item": {**ITEM, "content": [{"type": "input_text", "text": "x" * MAX_ITEM_CHARS}]},
        },
        "string_above_max_length",
        "item",
    ),
    ({"type": "conversation.item.retrieve", "item_id": "x"}, "item_retrieve_invalid_item_id", "item_id"),
    ({"type": "conversation.item.delete", "item_id": "x"}, "item_delete_invalid_item_id", "item_id"),
    (
        {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 0},
        "item_truncate_invalid_item_id",
        "item_id",
    ),
    ({"type": "response.cancel"}, "response_cancel_not_active", None),
    ({"type": "output_audio_buffer.clear"}, "invalid_value", "type"),
]


async def test_each_mistake_has_its_error_and_the_session_goes_on(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        for number, (event, code, param) in enumerate(BAD, 1):
            if isinstance(event, dict):
                event = {**event, "event_id": f"mine_{number}"}
            await caller.connection.send_raw(event if isinstance(event, str) else json.dumps(event))
            error = (await caller.next("error", number))["error"]
            assert (error["code"], error.get("param")) == (code, param), error
            assert error["type"] == "invalid_request_error"
            assert error.get("event_id") == (f"mine_{number}" if isinstance(event, dict) else None)
        await ask(caller, f"say {SENTENCE}")
        assert (await caller.next("response.done"))["response"]["status"] == "completed"


async def test_a_second_response_and_audio_beyond_the_end_are_refused(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        await ask(caller, f"say {SENTENCE}")
        await caller.send("response.create")
        assert (await caller.next("error"))["error"]["code"] == "conversation_already_has_active_response"
        item_id = (await caller.next("response.done"))["response"]["output"][0]["id"]
        await caller.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=60_000)
        assert (await caller.next("error", 2))["error"]["param"] == "audio_end_ms"
        await caller.send("conversation.item.truncate", item_id=item_id, content_index=1, audio_end_ms=10)
        assert (await caller.next("error", 3))["error"]["param"] == "content_index"


# ---- hostile clients ----------------------------------------------------------------------------------------------


async def test_audio_that_never_ends_is_bounded(fake_gateway: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realtime_server.core.MAX_MS", 2_000.0)
    async with serving(fake_gateway, "say Yes.") as (url, server), calling(url, server) as caller:
        await caller.say(*[sound(1000)] * 5)  # one sound: a turn each 2 s
        await caller.next("input_audio_buffer.committed", 2)
        assert caller.own._ear.buffered_ms <= 2_500
        await caller.update(**MANUAL)
        await caller.send("input_audio_buffer.clear")
        await caller.say(*[sound(1000)] * 3)
        error = (await caller.next("error"))["error"]
        assert (error["code"], error["param"]) == ("input_audio_buffer_full", "audio")
        assert caller.own._ear.buffered_ms <= 2_000


async def test_quiet_audio_is_not_kept(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        await caller.say(*[SILENCE] * 600)
        await caller.send("conversation.item.retrieve", item_id="x")
        await caller.next("error")
        assert caller.own._ear.buffered_ms < 500


async def test_old_items_are_deleted(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        for _ in range(MAX_ITEMS + 5):
            await caller.send("conversation.item.create", item=ITEM)
        await caller.next("conversation.item.added", MAX_ITEMS + 5)
        assert len(caller.own.core.items) == MAX_ITEMS


async def test_recordings_that_wait_are_bounded(fake_gateway: str) -> None:
    class Slow(Parrot):
        async def recognise(self, samples: Any, language: str | None) -> str:
            return await asyncio.Future()

    async with serving(fake_gateway, recogniser=Slow("")) as (url, server), calling(url, server) as caller:
        await caller.update(**MANUAL)
        for _ in range(6):
            await caller.say(sound(300))
            await caller.send("input_audio_buffer.commit")
        assert (await caller.next("error", 2))["error"]["code"] == "rate_limit_exceeded"
        assert len(caller.all("input_audio_buffer.committed")) == 4


async def test_a_message_that_is_too_large_ends_the_session(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), connect(f"{url}/realtime") as socket:
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": "A" * MAX_MESSAGE_BYTES}))
        await asyncio.wait_for(socket.wait_closed(), 20)
        assert socket.close_code == 1009
        await until(lambda: not server.connections)


async def test_sessions_are_counted_and_freed(fake_gateway: str) -> None:
    async with serving(fake_gateway, "", max_calls=1) as (url, server):
        async with calling(url, server):
            with pytest.raises(InvalidStatus) as refused:
                await connect(f"{url}/realtime")
            assert refused.value.response.status_code == 503
            assert json.loads(refused.value.response.body)["error"]["code"] == "too_many_sessions"
        await until(lambda: not server.connections and server._num_calls == 0)
        async with calling(url, server) as caller:
            await ask(caller, f"say {LONG}")
            await until(lambda: caller.audio)
        await until(lambda: not server.connections and server._num_calls == 0)


async def test_a_client_that_breaks_off_frees_its_session(fake_gateway: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(fake_gateway, "") as (url, server), calling(url, server) as caller:
        await ask(caller, f"say {LONG}")
        await until(lambda: caller.audio)
        caller.connection._connection.transport.abort()
        await until(lambda: not server.connections and server._num_calls == 0)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_without_a_key_pages_of_other_sites_cannot_connect(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, _):
        with pytest.raises(InvalidStatus, match="403"):
            await connect(f"{url}/realtime", origin=Origin("https://elsewhere.example.org"))


async def test_a_key_is_required_if_there_is_one(fake_gateway: str) -> None:
    async with serving(fake_gateway, "", key="secret") as (url, server):
        with pytest.raises(InvalidStatus, match="401"):
            await connect(f"{url}/realtime")
        async with calling(url, server, key="secret"):
            pass
        protocols = [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.secret")]
        async with connect(f"{url}/realtime", subprotocols=protocols) as socket:
            assert socket.subprotocol == "realtime"


async def test_a_key_that_is_not_utf8_is_wrong(fake_gateway: str) -> None:
    async with serving(fake_gateway, "", key="secret") as (url, _):
        reader, writer = await asyncio.open_connection(*url.split("/")[2].split(":"))
        writer.write(b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\r\n\r\n")
        assert b" 401 " in await reader.readline()
        writer.close()


async def test_a_client_secret_opens_sessions_with_its_settings_until_it_expires(fake_gateway: str) -> None:
    async with serving(fake_gateway, "", key="secret") as (url, server):
        api = AsyncOpenAI(api_key="secret", base_url=url.replace("ws:", "http:"))
        session: Any = {"type": "realtime", "instructions": "Be brief."}
        made = await api.realtime.client_secrets.create(session=session, expires_after={"seconds": 60})
        assert made.value.startswith("ek_")
        assert (made.session.type, made.session.instructions) == ("realtime", "Be brief.")
        async with calling(url, server, key=made.value) as caller:
            assert (await caller.next("session.updated"))["session"]["instructions"] == "Be brief."
        protocols = [Subprotocol("realtime"), Subprotocol(f"openai-insecure-api-key.{made.value}")]
        async with connect(f"{url}/realtime", subprotocols=protocols, origin=Origin("https://a.example.org")):
            pass
        for key, wrong in (
            ("wrong", {}),
            (made.value, {}),  # which makes no further ones
            ("secret", {"session": {"type": "transcription"}}),
            ("secret", {"session": {**session, "output_modalities": ["text", "audio"]}}),
            ("secret", {"session": {**session, "audio": {"input": {"turn_detection": SHORT_PAUSE}}}}),
            ("secret", {"expires_after": {"seconds": 9}}),
        ):
            with pytest.raises(APIStatusError) as refused:
                await api.with_options(api_key=key, max_retries=0).realtime.client_secrets.create(**wrong)
            assert refused.value.status_code == (400 if key == "secret" else 401)
        default = await api.realtime.client_secrets.create()
        assert server._secrets.session_of(default.value, time.monotonic() + 599) == {}
        assert server._secrets.session_of(made.value, time.monotonic() + 61) is None
        await api.close()


async def test_without_a_key_an_unknown_client_secret_is_refused(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server):
        with pytest.raises(InvalidStatus, match="401"):
            await connect(f"{url}/realtime", additional_headers={"Authorization": "Bearer ek_of_another_time"})
        async with calling(url, server, key=server._secrets.issue({}, time.monotonic() + 60, time.monotonic())):
            pass


def test_client_secrets_are_bounded() -> None:
    issued = ClientSecrets()
    values = [issued.issue({"number": number}, 60.0, 0.0) for number in range(MAX_SECRETS + 1)]
    assert issued.session_of(values[0], 0.0) is None
    assert issued.session_of(values[1], 0.0) == {"number": 1}
    issued.issue({}, 120.0, 61.0)
    assert len(issued._issued) == 1


async def test_a_malformed_address_of_the_speech_server_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="ws://host:port"):
        async with serving("ws://127.0.0.1:99999", ""):
            pass


async def test_without_a_speech_server_a_session_is_refused() -> None:
    async with serving("ws://127.0.0.1:1", "") as (url, _):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"{url}/realtime")
        assert refused.value.response.status_code == 503
        assert json.loads(refused.value.response.body)["error"]["code"] == "connection_failed"


async def test_a_speech_server_that_goes_ends_the_session(fake_gateway: str) -> None:
    async with serving(fake_gateway, "") as (url, server), connect(f"{url}/realtime") as socket:
        await socket.recv()
        await next(iter(server.connections))._speech.close()
        await socket.send(json.dumps({"type": "conversation.item.create", "item": {**ITEM, "id": "one"}}))
        await socket.send(json.dumps({"type": "response.create"}))
        kinds: list[str] = []
        try:
            while "response.done" not in kinds:
                kinds.append(json.loads(await socket.recv())["type"])
        except ConnectionClosed:
            pass
        assert kinds[-1] == "response.done"


def test_the_trace_separates_the_servers_own_time() -> None:
    stages = Stages(500.0, {"speech end": 0.0, "detected": 0.52, "transcript": 0.6, "model": 0.61})
    stages.at |= {"token": 0.9, "audio": 1.0}
    assert stages.own_ms == pytest.approx(20 + 10 + 100)
    assert str(stages) == (
        "to first audio 1000 ms: detected +520, transcript +80, model +10, token +290, audio +100; "
        "of this the server's own 130 ms"
    )

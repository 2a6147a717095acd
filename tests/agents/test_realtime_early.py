"""Answers of the Realtime server that are begun in a pause: spoken when the turn ends, and dropped if it goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from client_fake_server import Connection, scripted
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from realtime_caller import SILENCE, Caller, Parrot, calling, serving, sound, until
from realtime_server.early import EarlyAnswer
from realtime_server.models import Piece, ScriptedModel

SENTENCE = "Sure, let me look at it."
TURN = [*[SILENCE] * 5, sound(800)]
PAUSE, REST = [SILENCE] * 3, [SILENCE] * 4  # an answer is begun in the pause; with the rest the turn is over


class Model(ScriptedModel):
    """Scripted model that keeps what it was asked, and how often it has written an answer to its end."""

    def __init__(self) -> None:
        super().__init__(1000.0)
        self.asked: list[list[Any]] = []
        self.num_written = 0

    async def write(self, messages: list[Any], options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        self.asked.append(messages)
        async for piece in super().write(messages, options):
            yield piece
        self.num_written += 1


def early(caller: Caller) -> EarlyAnswer:
    found = caller.own._early
    assert found is not None
    return found


def contents(messages: list[Any]) -> list[Any]:
    return [message["content"] for message in messages]


async def pause(caller: Caller, model: Model) -> None:
    """Let the caller speak and pause until the answer to it is written."""
    await caller.say(*TURN, *PAUSE)
    await until(lambda: model.num_written == 1)
    assert caller.kinds() == ["session.created", "input_audio_buffer.speech_started"]
    assert caller.own.core.items == []


async def test_an_answer_that_is_begun_in_the_pause_is_spoken_when_the_turn_ends(fake_gateway: str) -> None:
    model = Model()
    async with serving(fake_gateway, f"say {SENTENCE}", model=model) as (url, server), calling(url, server) as caller:
        await pause(caller, model)
        draft = early(caller).draft
        assert draft is not None
        assert draft.text == SENTENCE
        await caller.say(*REST)
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["usage"]["output_tokens"]) == ("completed", 6)
        assert caller.transcript == SENTENCE
        assert draft.done is not None
        assert draft.done.draft_used is not None  # it was one
        assert contents(model.asked[0]) == [f"say {SENTENCE}"]
        assert len(model.asked) == len(server._parts.recogniser.num_samples) == 1  # type: ignore[attr-defined]
        items = caller.own.core.items
        assert [item["content"][0]["transcript"] for item in items] == [f"say {SENTENCE}", SENTENCE]


async def test_an_answer_is_dropped_if_the_user_goes_on(fake_gateway: str) -> None:
    model = Model()
    heard = ["say This is never heard.", f"say {SENTENCE}"]
    async with serving(fake_gateway, *heard, model=model) as (url, server), calling(url, server) as caller:
        await pause(caller, model)
        dropped = early(caller).draft
        assert dropped is not None
        await caller.say(sound(300), *PAUSE, *REST)
        await caller.next("response.done")
        assert (await dropped.cancel()).played_ms == 0
        assert dropped.done is None
        assert [contents(messages) for messages in model.asked] == [[heard[0]], [heard[1]]]
        assert len(caller.all("response.created")) == len(caller.all("input_audio_buffer.committed")) == 1
        items = caller.own.core.items
        assert [item["content"][0]["transcript"] for item in items] == [heard[1], SENTENCE]
        assert caller.transcript == SENTENCE


async def test_a_function_is_called_after_the_turn_is_over(fake_gateway: str) -> None:
    model = Model()
    async with (
        serving(fake_gateway, 'call weather {"a": 1}', model=model) as (url, server),
        calling(url, server) as caller,
    ):
        await pause(caller, model)
        await caller.say(*REST)
        done = (await caller.next("response.done"))["response"]
        assert [(call["name"], call["arguments"]) for call in done["output"]] == [("weather", '{"a": 1}')]
        assert len(model.asked) == 1


async def test_text_after_a_call_keeps_its_place(fake_gateway: str) -> None:
    class Mixed(Model):
        async def write(self, messages: list[Any], options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
            async for piece in super().write([{"role": "user", "content": "say One moment."}], options):
                if isinstance(piece, str):
                    yield piece
            async for piece in super().write([{"role": "user", "content": "call look {}"}], options):
                yield piece
            self.num_written -= 1

    model = Mixed()
    async with serving(fake_gateway, "Hello", model=model) as (url, server), calling(url, server) as caller:
        await pause(caller, model)
        await caller.say(*REST)
        done = (await caller.next("response.done"))["response"]
        assert [item["type"] for item in done["output"]] == ["message", "function_call"]
        assert caller.transcript == "One moment."


@pytest.mark.parametrize("change", ["instructions", "item"])
async def test_a_conversation_that_changes_meanwhile_is_answered_anew(fake_gateway: str, change: str) -> None:
    model = Model()
    async with serving(fake_gateway, f"say {SENTENCE}", model=model) as (url, server), calling(url, server) as caller:
        await pause(caller, model)
        if change == "instructions":
            await caller.update(instructions="Be brief.")
        else:
            content = [{"type": "input_text", "text": "Be brief."}]
            item = {"type": "message", "role": "system", "content": content}
            await caller.send("conversation.item.create", item=item)
        await caller.say(*REST)
        await caller.next("response.done")
        assert caller.transcript == SENTENCE
        expected = [[f"say {SENTENCE}"], ["Be brief.", f"say {SENTENCE}"]]
        assert [contents(messages) for messages in model.asked] == expected
        assert len(caller.all("response.done")) == 1


async def test_a_model_that_fails_in_the_pause_fails_the_response_once(fake_gateway: str) -> None:
    class Broken(Model):
        async def write(self, messages: list[Any], options: dict[str, Any]) -> AsyncGenerator[Piece, None]:
            self.num_written += 1
            yield "The quick "
            raise OSError("no more memory")

    model = Broken()
    async with serving(fake_gateway, "Hello", model=model) as (url, server), calling(url, server) as caller:
        await pause(caller, model)
        await caller.say(*REST)
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["status_details"]["error"]["code"]) == ("failed", "model_failed")
        await caller.say(sound(800), *PAUSE, *REST)
        await caller.next("response.done", 2)
        assert model.num_written == 2


async def test_an_unknown_voice_fails_the_response_and_not_the_pause(fake_gateway: str) -> None:
    model = Model()
    async with serving(fake_gateway, f"say {SENTENCE}", model=model) as (url, server), calling(url, server) as caller:
        await caller.update(audio={"output": {"voice": "no-such-voice"}})
        await caller.say(*TURN, *PAUSE)
        await until(lambda: model.asked and early(caller)._writing.done())
        assert not caller.all("response.created")
        await caller.say(*REST)
        done = (await caller.next("response.done"))["response"]
        assert (done["status"], done["status_details"]["error"]["code"]) == ("failed", "voice_not_found")


async def test_an_answer_whose_draft_was_refused_is_begun_again() -> None:
    async def script(connection: Connection) -> None:
        await connection.begin()
        refused = await connection.read("text")
        assert refused["draft"]
        error = {"code": "overloaded", "message": "no room", "retryable": True}
        await connection.send("error", context_id=refused["context_id"], **error)
        context_id = (await connection.read("text"))["context_id"]
        await connection.accept(context_id)
        await connection.audio(1, 0)
        await connection.read("end")
        await connection.done(context_id, 2, 1, len(SENTENCE))

    async with (
        scripted(script) as (tts_url, _),
        serving(tts_url, f"say {SENTENCE}") as (url, server),
        calling(url, server) as caller,
    ):
        await caller.say(*TURN, *PAUSE)
        await until(lambda: caller.own._early is not None and early(caller).draft is not None)
        await until(lambda: early(caller).draft.spoken is not None)  # type: ignore[union-attr]
        await caller.say(*REST)
        assert (await caller.next("response.done"))["response"]["status"] == "completed"


class Slow(Parrot):
    """Recogniser that works until it is told to stop."""

    def __init__(self, *heard: str) -> None:
        super().__init__(*heard)
        self.may_answer = asyncio.Event()

    async def recognise(self, samples: Any, language: str | None) -> str:
        text = await super().recognise(samples, language)
        await self.may_answer.wait()
        return text


async def test_a_recogniser_has_one_pause_of_a_session_at_a_time(fake_gateway: str) -> None:
    recogniser = Slow("say First.", f"say {SENTENCE}")
    async with serving(fake_gateway, recogniser=recogniser) as (url, server), calling(url, server) as caller:
        await caller.say(*TURN, *[*PAUSE, sound(200)] * 5, *PAUSE, *REST)
        await caller.next("input_audio_buffer.committed")
        await until(lambda: len(recogniser.num_samples) == 2)  # the first pause, and the turn
        recogniser.may_answer.set()
        await caller.next("response.done")
        assert caller.transcript == SENTENCE
        assert len(recogniser.num_samples) == 2


async def test_a_transcript_that_comes_after_the_end_of_its_turn_is_used(fake_gateway: str) -> None:
    recogniser, model = Slow(f"say {SENTENCE}"), Model()
    async with (
        serving(fake_gateway, recogniser=recogniser, model=model) as (url, server),
        calling(url, server) as caller,
    ):
        await caller.say(*TURN, *PAUSE, *REST)
        await caller.next("input_audio_buffer.committed")
        recogniser.may_answer.set()
        await caller.next("response.done")
        assert caller.transcript == SENTENCE
        assert len(recogniser.num_samples) == len(model.asked) == 1


async def test_a_turn_that_begins_before_the_answer_drops_it(fake_gateway: str) -> None:
    """The user pauses for long enough to end the turn, and goes on before the transcript comes."""
    recogniser, model = Slow("First.", f"say {SENTENCE}"), Model()
    async with (
        serving(fake_gateway, recogniser=recogniser, model=model) as (url, server),
        calling(url, server) as caller,
    ):
        await caller.say(*TURN, *PAUSE, *REST, sound(300))
        await caller.next("input_audio_buffer.speech_started", 2)
        recogniser.may_answer.set()
        await caller.say(*PAUSE, *REST)
        await caller.next("response.done")
        assert [contents(messages) for messages in model.asked] == [["First.", f"say {SENTENCE}"]]
        assert len(caller.all("response.created")) == 1
        assert caller.transcript == SENTENCE


async def test_an_audio_buffer_that_is_cleared_takes_the_answer_with_it(fake_gateway: str) -> None:
    model = Model()
    async with (
        serving(fake_gateway, "say Never.", f"say {SENTENCE}", model=model) as (url, server),
        calling(url, server) as caller,
    ):
        await pause(caller, model)
        await caller.send("input_audio_buffer.clear")
        await caller.say(*REST)  # the turn goes on in an empty buffer
        await caller.next("response.done")
        items = caller.own.core.items
        assert [item["content"][0]["transcript"] for item in items] == [f"say {SENTENCE}", SENTENCE]
        assert caller.transcript == SENTENCE


async def test_without_eagerness_nothing_is_begun_before_the_end(fake_gateway: str) -> None:
    model = Model()
    async with (
        serving(fake_gateway, f"say {SENTENCE}", model=model, eager_ms=0.0) as (url, server),
        calling(url, server) as caller,
    ):
        await caller.say(*TURN, *PAUSE)
        await caller.update(instructions="")
        assert caller.own._early is None
        await caller.say(*REST)
        await caller.next("response.done")
        assert caller.transcript == SENTENCE


async def test_a_client_that_goes_in_the_pause_leaves_nothing_running(fake_gateway: str) -> None:
    recogniser = Slow("Hello")
    async with serving(fake_gateway, recogniser=recogniser) as (url, server):
        async with calling(url, server) as caller:
            await caller.say(*TURN, *PAUSE)
            await until(lambda: recogniser.num_samples)
            tasks = early(caller).tasks
        await until(lambda: not server.connections)
        assert all(task.done() for task in tasks)

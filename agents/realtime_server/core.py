"""Session of OpenAI's Realtime API: a client's events in, events and orders out. Pure: no I/O, time is passed in.

`Core.receive` takes a client's messages; `transcribed`, `begin_message`, `spoke` and so on report results of orders.
Afterwards `events` has what to send and `orders` what to do.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hold_policy import HoldPolicy
from realtime_tts_client import Word
from realtime_tts_client.decoding import FloatSamples

from realtime_server.ear import FORMATS, MAX_MS, START_MS, TRACK, Ear, Samples
from realtime_server.events import Fields, Refusal, check, check_item, parse
from realtime_server.history import Items, Speech, Spoken, chat_messages
from realtime_server.orders import BeginEarly, Generate, Judge, Order, Transcribe
from realtime_server.settings import (
    DEFAULT_LIMITS,
    LONGEST_PAUSE_MS,
    OPENAI_VOICES,
    chat_options,
    check_settings,
    default_settings,
    merged,
    updated,
)

BargeIn = Literal["hold", "now"]
JUDGE_AFTER_MS = 192.0  # of quiet, a model says whether the turn is over
MIN_COMMIT_MS = 100.0
TRACK_LAG_MS = 100.0  # of a listener behind the audio sent over a track: network and jitter buffer
MAX_ITEM_CHARS = 65_536
MAX_PENDING = 4  # recordings that wait for the recogniser


@dataclass(frozen=True)
class _Kept:
    """Text and words of speech that is over."""

    text: str
    words: list[Word]


@dataclass
class _Response:
    """Response being made. `input`: items in place of the conversation's. `is_part`: it belongs to the conversation."""

    fields: Fields
    settings: Fields
    input: list[Fields] | None
    is_part: bool
    is_begun: bool = False
    message: Fields | None = None
    speech: Speech | None = None
    calls: dict[int, Fields] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return str(self.fields["id"])


class Core:
    """One session.

    Args:
        new_id: returns a new id for a prefix.
        voice: default voice; for names of OpenAI's voices, too.
        barge_in: `hold`: a sound of the caller holds the speech, and interrupts it once it has lasted. `now`: a sound
            interrupts at once.
        has_track: audio goes over media tracks, and the client cannot tell what it has played.
        judges: a model can say whether a turn is over; otherwise `semantic_vad` waits for 500 ms of quiet.
        eager_ms: quiet after which an answer is begun, though the turn may go on; 0: never.
    """

    def __init__(
        self,
        ear: Ear,
        new_id: Callable[[str], str],
        *,
        model: str = "realtime-tts",
        instructions: str = "",
        voice: str | None = None,
        barge_in: BargeIn = "hold",
        has_track: bool = False,
        judges: bool = False,
        eager_ms: float = 0.0,
    ) -> None:
        self.events: list[Fields] = []
        self.orders: list[Order] = []
        self.items = Items()
        self.session = default_settings(new_id("sess"), model, instructions, voice)
        self._ear, self._new_id, self._voice = ear, new_id, voice
        self._barge_in, self._has_track, self._judges = barge_in, has_track, judges
        self._lag_ms = TRACK_LAG_MS if has_track else 0.0
        self._eager_ms = eager_ms
        ear.activity.stop_ms = DEFAULT_LIMITS.silence_duration_ms
        self._policy = HoldPolicy()
        self._turn_id: str | None = None  # item of the user's turn that has begun
        self._pause = 0  # number of pauses judged
        self._is_judged = False
        self._is_early = False  # an answer was begun in the present pause
        self._pending: set[str] = set()  # recordings at the recogniser
        self._is_unanswered = False  # a turn of the user waits for a response
        self._response: _Response | None = None
        self._last: tuple[str, Speech] | None = None  # item and speech that may be playing
        self._emit("session.created", session=self.session)

    # ---- from the client -----------------------------------------------------------------------------------------

    def receive(self, raw: str | bytes, now: float) -> Iterator[None]:
        """Process a message. Yield after each second of audio, so that other sessions can run."""
        event: Fields = {}
        try:
            event = parse(raw)
            check(event)
            steps = getattr(self, f"_on_{event['type'].replace('.', '_')}")(event, now)
            if steps is not None:
                yield from steps
        except Refusal as refusal:
            self._emit("error", error=refusal.fields(event.get("event_id")))

    def _on_session_update(self, event: Fields, now: float) -> None:
        session = updated(self.session, event["session"])
        audio = session["audio"]["input"]
        if (detection := audio["turn_detection"]) is not None:
            self._ear.threshold = detection.get("threshold", DEFAULT_LIMITS.threshold)
            by_judge_ms = (
                LONGEST_PAUSE_MS[detection["eagerness"]] if self._judges and "eagerness" in detection else None
            )
            silence_ms = detection.get("silence_duration_ms", DEFAULT_LIMITS.silence_duration_ms)
            self._ear.activity.stop_ms = by_judge_ms or silence_ms
        if not self._has_track and audio["format"] != self.session["audio"]["input"]["format"]:
            self._ear.set_format(audio["format"]["type"])
        self.session = session
        self._emit("session.updated", session=self.session)

    def _on_input_audio_buffer_append(self, event: Fields, now: float) -> Iterator[None]:
        samples, rate_hz = self._ear.decoded(event["audio"]), self._ear.rate_hz
        if self._detection is None and self._ear.buffered_ms + len(samples) * 1000 / rate_hz > MAX_MS:
            message = f"at most {MAX_MS / 1000:.0f} s of audio wait for a commit"
            raise Refusal("input_audio_buffer_full", message, "audio")
        for start in range(0, len(samples), rate_hz):
            self.hear(samples[start : start + rate_hz], now)
            yield

    def hear(self, samples: FloatSamples, now: float) -> None:
        """Process samples of the user, in the rate of the ear."""
        detection = self._detection
        for has_changed in self._ear.add(samples, detection is not None):
            if detection is not None:
                self._on_window(detection, has_changed, now)
            else:
                self._ear.drop_until(self._ear.position_ms - MAX_MS)  # of a track, which cannot be refused

    def _on_input_audio_buffer_commit(self, event: Fields, now: float) -> None:
        if self._ear.buffered_ms < MIN_COMMIT_MS:
            message = f"a commit needs {MIN_COMMIT_MS:.0f} ms of audio, the buffer has {self._ear.buffered_ms:.0f} ms"
            raise Refusal("input_audio_buffer_commit_empty", message)
        self._commit(self._turn_id or self._new_id("item"))

    def _on_input_audio_buffer_clear(self, event: Fields, now: float) -> None:
        self._ear.take()
        self._turn_id = None
        self._discard_early()
        self._emit("input_audio_buffer.cleared")

    def _on_conversation_item_create(self, event: Fields, now: float) -> None:
        item = copy.deepcopy(event["item"])
        check_item(item)
        audio = [part for part in item.get("content", ()) if part.pop("audio", None) and not part.get("transcript")]
        recordings = [part["audio"] for part in event["item"].get("content", ()) if part.get("audio")]
        if audio and len(item["content"]) > 1:
            raise Refusal("invalid_value", "an item with audio to recognise has one content part", "item.content")
        if len(json.dumps(item)) > MAX_ITEM_CHARS:
            raise Refusal("string_above_max_length", f"an item has at most {MAX_ITEM_CHARS} characters", "item")
        item.setdefault("id", self._new_id("item"))
        if self.items.find(item["id"]) is not None:
            raise Refusal("item_create_duplicate_id", f"item {item['id']} exists", "item.id")
        if item["type"] == "function_call":
            item.setdefault("call_id", self._new_id("call"))
        item |= {"object": "realtime.item", "status": "completed"}
        samples = self._ear.whole(recordings[0]) if audio else None
        if samples is not None and len(self._pending) >= MAX_PENDING:
            raise Refusal("rate_limit_exceeded", f"at most {MAX_PENDING} recordings wait for the recogniser")
        after = event.get("previous_item_id")
        if after is not None and after != "root" and self.items.find(after) is None:
            raise Refusal("item_create_invalid_previous_item_id", f"no item {after}", "previous_item_id")
        self._add(item, after)
        self._emit("conversation.item.done", item=item, previous_item_id=self.items.id_before(item))
        if samples is not None:
            self._transcribe(item, samples)

    def _on_conversation_item_retrieve(self, event: Fields, now: float) -> None:
        item = self.items.existing(event["item_id"], "retrieve")
        self._emit("conversation.item.retrieved", item=item)

    def _on_conversation_item_delete(self, event: Fields, now: float) -> None:
        self.items.drop(self.items.existing(event["item_id"], "delete"))
        self._emit("conversation.item.deleted", item_id=event["item_id"])

    def _on_conversation_item_truncate(self, event: Fields, now: float) -> None:
        item = self.items.existing(event["item_id"], "truncate")
        speech = self.items.speeches.get(item["id"])
        if speech is None or event["content_index"] != 0:
            message = f"only audio of the assistant can be truncated; item {item['id']} has none at this content_index"
            raise Refusal("invalid_value", message, "item_id" if speech is None else "content_index")
        if not 0 <= event["audio_end_ms"] <= speech.sent_ms + 1:
            message = f"audio_end_ms must be 0 to {speech.sent_ms:.0f}, the audio sent, got {event['audio_end_ms']}"
            raise Refusal("invalid_value", message, "audio_end_ms")
        self._cut(item, speech, event["audio_end_ms"])
        self._emit_truncated(item["id"], event["audio_end_ms"])

    def _on_response_create(self, event: Fields, now: float) -> None:
        self._respond(event.get("response") or {})

    def _on_response_cancel(self, event: Fields, now: float) -> None:
        response = self._response
        if response is None or event.get("response_id") not in (None, response.id):
            raise Refusal("response_cancel_not_active", "the response is over, or there was none")
        self._interrupt("client_cancelled", now)

    def _on_output_audio_buffer_clear(self, event: Fields, now: float) -> None:
        if not self._has_track:
            raise Refusal("invalid_value", "output_audio_buffer.clear is for WebRTC", "type")
        self._interrupt("client_cancelled", now)

    # ---- the user's turns ----------------------------------------------------------------------------------------

    @property
    def _detection(self) -> Fields | None:
        found: Fields | None = self.session["audio"]["input"]["turn_detection"]
        return found

    def _bot_speaks(self, now: float) -> bool:
        if self._response is not None:
            return True
        return self._last is not None and self._last[1].clock.position_ms(now) < self._last[1].sent_ms

    def _on_window(self, detection: Fields, has_changed: bool, now: float) -> None:
        """Begin or end the user's turn after a window of audio; hold and release the bot."""
        ear, policy = self._ear, self._policy
        sound = ear.activity
        if self._turn_id is None:
            holds = self._barge_in == "hold" and detection["interrupt_response"]
            action = policy.update(sound, self._bot_speaks(now)) if holds else None
            if action == "hold" or action == "release":
                self.orders.append(action)
            padding_ms = detection.get("prefix_padding_ms", DEFAULT_LIMITS.prefix_padding_ms)
            if action == "cancel" or (sound.speaking and not (holds and (policy.is_held or policy.is_nod))):
                ear.drop_until(ear.sound_at_ms - padding_ms)
                self._begin_turn(detection, now)
            else:
                ear.drop_until((ear.sound_at_ms if sound.speaking else ear.position_ms - START_MS) - padding_ms)
        elif has_changed or ear.buffered_ms > MAX_MS:
            self._end_turn(detection)
        else:
            if self._judges and detection["type"] == "semantic_vad":
                self._ask_judge(sound.quiet_ms)
            if sound.quiet_ms == 0:
                self._discard_early()
            elif self._eager_ms and sound.quiet_ms >= self._eager_ms and detection["create_response"]:
                self._begin_early()

    def _begin_turn(self, detection: Fields, now: float) -> None:
        self._turn_id = self._new_id("item")
        self._is_judged = self._is_early = False
        self._emit("input_audio_buffer.speech_started", audio_start_ms=int(self._ear.start_ms), item_id=self._turn_id)
        if detection["interrupt_response"]:
            self._interrupt("turn_detected", now)

    def _end_turn(self, detection: Fields) -> None:
        assert self._turn_id is not None
        item_id = self._turn_id
        self._emit("input_audio_buffer.speech_stopped", audio_end_ms=int(self._ear.position_ms), item_id=item_id)
        if len(self._pending) >= MAX_PENDING:  # the recogniser is slower than the user
            self._ear.take()
            self._turn_id = None
            self._emit_failed_transcription(item_id, "the recogniser is too slow")
            return
        self._is_unanswered = self._is_unanswered or detection["create_response"]
        self._commit(item_id)

    def _ask_judge(self, quiet_ms: float) -> None:
        if quiet_ms == 0:
            self._is_judged = False
        elif quiet_ms >= JUDGE_AFTER_MS and not self._is_judged:
            self._is_judged = True
            self._pause += 1
            self.orders.append(Judge(self._ear.kept(), self._pause))

    def judged(self, pause: int, is_over: bool) -> None:
        """Report the answer to `Judge`. It has no effect if the user has gone on meanwhile."""
        if is_over and pause == self._pause and self._is_judged and self._turn_id and self._detection is not None:
            self._ear.activity.change()
            self._end_turn(self._detection)

    def _begin_early(self) -> None:
        if not self._is_early and not self._pending and self._response is None and self._turn_id is not None:
            self._is_early = True
            self.orders.append(BeginEarly(self._turn_id, self._ear.kept(), self._language))

    def _discard_early(self) -> None:
        if self._is_early:
            self._is_early = False
            self.orders.append("discard")

    def early_answer(self, item_id: str, text: str) -> Generate | None:
        """Return the order that the end of the turn gives if nothing changes until then; None for a noise."""
        item = _message(item_id, "user", {"type": "input_audio", "transcript": text}, "completed")
        return self._order("", self.session, [*self.items, item]) if text else None

    def _commit(self, item_id: str) -> None:
        if len(self._pending) >= MAX_PENDING:
            raise Refusal("rate_limit_exceeded", f"at most {MAX_PENDING} recordings wait for the recogniser")
        samples, self._turn_id = self._ear.take(), None
        item = _message(item_id, "user", {"type": "input_audio", "transcript": None}, "completed")
        previous = self.items[-1]["id"] if self.items else None
        self._emit("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous)
        self._add(item)
        self._emit("conversation.item.done", item=item, previous_item_id=previous)
        self._transcribe(item, samples)

    @property
    def _language(self) -> str | None:
        language: str | None = (self.session["audio"]["input"].get("transcription") or {}).get("language")
        return language

    def _transcribe(self, item: Fields, samples: Samples) -> None:
        self._pending.add(item["id"])
        self.orders.append(Transcribe(item["id"], samples, self._language))

    def transcribed(self, item_id: str, text: str, duration_s: float) -> None:
        """Report what the user said; empty for a noise, which gets no response."""
        self._pending.discard(item_id)
        if (item := self.items.find(item_id)) is not None:
            item["content"][0]["transcript"] = text
            fields = {"item_id": item_id, "content_index": 0, "transcript": text}
            kind = "conversation.item.input_audio_transcription"
            if text:
                self._emit(f"{kind}.delta", item_id=item_id, content_index=0, delta=text)
            self._emit(f"{kind}.completed", **fields, usage={"type": "duration", "seconds": duration_s})
        self._after_transcript()

    def not_transcribed(self, item_id: str, message: str) -> None:
        """Report that the recogniser failed."""
        self._pending.discard(item_id)
        self._emit_failed_transcription(item_id, message)
        self._after_transcript()

    def _emit_failed_transcription(self, item_id: str, message: str) -> None:
        error = {"type": "server_error", "code": "recognition_failed", "message": message, "param": None}
        kind = "conversation.item.input_audio_transcription.failed"
        self._emit(kind, item_id=item_id, content_index=0, error=error)

    def _after_transcript(self) -> None:
        if self._pending:
            return
        if self._response is not None:
            if not self._response.is_begun:
                self._generate(self._response)
        elif self._is_unanswered and self._turn_id is None:
            self._is_unanswered = False
            if self.items and self.items[-1].get("role") == "user" and chat_messages("", self.items[-1:]):
                self._respond({})

    # ---- responses -----------------------------------------------------------------------------------------------

    def _respond(self, asked: Fields) -> None:
        if self._response is not None:
            message = f"response {self._response.id} is active; wait for its end, or cancel it"
            raise Refusal("conversation_already_has_active_response", message)
        given = asked.get("input")
        items = None if given is None else [self._input_item(item, index) for index, item in enumerate(given)]
        own = {name: value for name, value in asked.items() if name in self.session and value is not None}
        settings = merged(self.session, own)
        check_settings(settings, "response")
        is_part = asked.get("conversation") != "none"
        fields: Fields = {
            "id": self._new_id("resp"),
            "object": "realtime.response",
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "conversation_id": self.session["id"].replace("sess", "conv") if is_part else None,
            "output_modalities": settings["output_modalities"],
            "max_output_tokens": settings["max_output_tokens"],
            "audio": {"output": {name: settings["audio"]["output"][name] for name in ("format", "voice")}},
            "metadata": asked.get("metadata"),
            "usage": None,
        }
        self._response = _Response(fields, settings, items, is_part)
        self._is_unanswered = False
        self._emit("response.created", response=fields)
        if not self._pending:
            self._generate(self._response)

    def _input_item(self, item: Fields, index: int) -> Fields:
        """Return an item of a response's input: itself, or that of the conversation to which it refers."""
        path = f"response.input[{index}]"
        if item.get("type") != "item_reference":
            check_item(item, path)
            return item
        if (found := self.items.find(str(item.get("id")))) is None:
            raise Refusal("invalid_value", f"no item {str(item.get('id'))[:80]!r}", f"{path}.id")
        return found

    def _generate(self, response: _Response) -> None:
        response.is_begun = True
        items = self.items if response.input is None else response.input
        self.orders.append(self._order(response.id, response.settings, items))

    def _order(self, response_id: str, settings: Fields, items: list[Fields]) -> Generate:
        output = settings["audio"]["output"]
        speaks = settings["output_modalities"] == ["audio"]
        voice = self._voice if output["voice"] in ("default", *OPENAI_VOICES) else output["voice"]
        audio = FORMATS[TRACK if self._has_track else output["format"]["type"]] if speaks else None
        messages = chat_messages(settings["instructions"], items)
        return Generate(response_id, messages, chat_options(settings), audio, voice, output["speed"])

    def begin_message(self, source: Spoken | None) -> None:
        """Report that the model writes a message. `source`: its text and words if it is spoken."""
        response = self._active()
        part: Fields = {"type": "output_text", "text": ""}
        if source is not None:
            part = {"type": "output_audio", "transcript": ""}
            response.speech = Speech(source, response.id)
        item = _message(self._new_id("item"), "assistant", part, "in_progress")
        response.message = item
        self._begin_item(response, item)
        shown = {"type": "text", "text": ""} if source is None else {"type": "audio", "transcript": ""}
        self._emit("response.content_part.added", **self._place(response, item), content_index=0, part=shown)
        if response.speech is not None:
            self.items.speeches[item["id"]] = response.speech
            self._last = item["id"], response.speech

    def wrote(self, delta: str) -> None:
        """Report text of a message that is not spoken."""
        response = self._active()
        assert response.message is not None
        response.message["content"][0]["text"] += delta
        self._emit(
            "response.output_text.delta", **self._place(response, response.message), content_index=0, delta=delta
        )

    def spoke(self, payload: bytes | None, duration_ms: float, now: float) -> None:
        """Report audio of the message: `payload` is sent to the client, None if it was played here."""
        response = self._active()
        speech, item = response.speech, response.message
        assert speech is not None
        assert item is not None
        speech.sent_ms += duration_ms
        speech.clock.take(duration_ms, now)
        place = {**self._place(response, item), "content_index": 0}
        if payload is None and speech.sent_ms == duration_ms:
            self._emit("output_audio_buffer.started", response_id=response.id)
        if text := speech.new_text():
            self._emit("response.output_audio_transcript.delta", **place, delta=text)
        if payload is not None:
            self._emit("response.output_audio.delta", **place, delta=base64.b64encode(payload).decode())

    def ahead_ms(self, now: float) -> float:
        """Return how far the audio sent of the message is ahead of the listener."""
        speech = self._active().speech
        return speech.sent_ms - speech.clock.position_ms(now) if speech is not None else 0.0

    def word_end_ms(self) -> float:
        """Return the end of the word in which the audio sent ends, in ms of the message."""
        speech = self._response.speech if self._response is not None else None
        return speech.word_end_ms() if speech is not None else 0.0

    def called(self, index: int, call_id: str, name: str, arguments: str) -> None:
        """Report a piece of the model's function call number `index`. Only the first piece has id and name."""
        response = self._active()
        if index not in response.calls:
            made: Fields = {"id": self._new_id("item"), "object": "realtime.item", "type": "function_call"}
            made |= {"status": "in_progress", "call_id": call_id or self._new_id("call"), "name": name, "arguments": ""}
            response.calls[index] = made
            self._begin_item(response, made)
        item = response.calls[index]
        item["arguments"] += arguments
        if arguments:
            place = {**self._place(response, item), "call_id": item["call_id"]}
            self._emit("response.function_call_arguments.delta", **place, delta=arguments)

    def played_out(self, response_id: str) -> None:
        """Report that a track has played all of a response; without effect if it was interrupted."""
        if self._last is not None and self._last[1].response_id == response_id:
            self._emit("output_audio_buffer.stopped", response_id=response_id)

    def written(self) -> None:
        """Report that the model has written all, though not all may be spoken."""
        response = self._active()
        for item in response.calls.values():
            if item["status"] == "in_progress":
                item["status"] = "completed"
                place = {**self._place(response, item), "call_id": item["call_id"], "name": item["name"]}
                self._emit("response.function_call_arguments.done", **place, arguments=item["arguments"])
                self._end_item(response, item)

    def finish(self, usage: tuple[int, int], is_cut_short: bool = False) -> None:
        """Report that all was written and spoken. `usage`: tokens in and out. `is_cut_short`: by their limit."""
        response = self._active()
        if response.speech is not None:
            response.speech.is_whole = True
        response.fields["usage"] = _usage(*usage)
        details = {"type": "incomplete", "reason": "max_output_tokens"} if is_cut_short else None
        self._end_response("incomplete" if is_cut_short else "completed", details)

    def fail(self, code: str, message: str) -> None:
        """Report that the response failed."""
        error = {"type": "server_error", "code": code, "message": message}
        self._end_response("failed", {"type": "failed", "error": error})

    def _interrupt(self, reason: str, now: float) -> None:
        """End the active response and playback; the conversation keeps the words that were heard."""
        if self._last is not None:
            item_id, speech = self._last
            position_ms, item = max(0.0, speech.clock.position_ms(now) - self._lag_ms), self.items.find(item_id)
            is_playing = not speech.is_whole or position_ms < speech.sent_ms
            if is_playing and speech.cut_ms is None and item is not None:
                self._cut(item, speech, position_ms)
                if self._has_track:
                    self._emit_truncated(item_id, int(position_ms))
                    self._emit("output_audio_buffer.cleared", response_id=speech.response_id)
            self._last = None
        self._policy.is_held = False
        self.orders.append("stop")
        if self._response is not None:
            self._end_response("cancelled", {"type": "cancelled", "reason": reason})

    def _end_response(self, status: str, details: Fields | None) -> None:
        response = self._active()
        item_status = "completed" if status == "completed" else "incomplete"
        if response.message is not None:
            self._end_message(response, response.message, item_status)
        for item in response.calls.values():
            if item["status"] == "in_progress":
                item["status"] = "incomplete"
                self._end_item(response, item)
                self.items.drop(item)  # its arguments are not complete
        self._response = None
        response.fields |= {"status": status, "status_details": details}
        response.fields["usage"] = response.fields["usage"] or _usage(0, 0)
        self._emit("response.done", response=response.fields)

    def _end_message(self, response: _Response, item: Fields, status: str) -> None:
        item["status"] = status
        place = {**self._place(response, item), "content_index": 0}
        speech = response.speech
        if speech is None:
            text = item["content"][0]["text"]
            self._emit("response.output_text.done", **place, text=text)
            self._emit("response.content_part.done", **place, part={"type": "text", "text": text})
        else:
            if speech.is_whole and (rest := speech.rest_of_text()):
                self._emit("response.output_audio_transcript.delta", **place, delta=rest)
            speech.source = _Kept(speech.source.text, list(speech.source.words))
            if speech.cut_ms is None and not speech.is_whole:
                speech.cut_ms = speech.sent_ms  # it failed
            text = item["content"][0]["transcript"] = speech.heard
            self._emit("response.output_audio.done", **place)
            self._emit("response.output_audio_transcript.done", **place, transcript=text)
            self._emit("response.content_part.done", **place, part={"type": "audio", "transcript": text})
        self._end_item(response, item)

    def _cut(self, item: Fields, speech: Speech, position_ms: float) -> None:
        speech.cut_ms = position_ms
        item["content"][0]["transcript"] = speech.heard

    # ---- items ---------------------------------------------------------------------------------------------------

    def _begin_item(self, response: _Response, item: Fields) -> None:
        response.fields["output"].append(item)
        place = self._place(response, item)
        del place["item_id"]
        self._emit("response.output_item.added", **place, item=item)
        if response.is_part:
            self._add(item)

    def _end_item(self, response: _Response, item: Fields) -> None:
        place = self._place(response, item)
        del place["item_id"]
        self._emit("response.output_item.done", **place, item=item)
        if self.items.find(item["id"]) is not None:
            before = self.items.id_before(item)
            self._emit("conversation.item.done", item=item, previous_item_id=before)

    def _add(self, item: Fields, after: str | None = None) -> None:
        before = self.items.add(item, after)
        self._emit("conversation.item.added", item=item, previous_item_id=before)

    # ---- events --------------------------------------------------------------------------------------------------

    def _active(self) -> _Response:
        assert self._response is not None, "reports are of the active response"
        return self._response

    @staticmethod
    def _place(response: _Response, item: Fields) -> Fields:
        index = next(i for i, one in enumerate(response.fields["output"]) if one is item)
        return {"response_id": response.id, "item_id": item["id"], "output_index": index}

    def _emit_truncated(self, item_id: str, audio_end_ms: int) -> None:
        self._emit("conversation.item.truncated", item_id=item_id, content_index=0, audio_end_ms=audio_end_ms)

    def _emit(self, kind: str, **fields: Any) -> None:
        self.events.append({"type": kind, "event_id": self._new_id("event"), **copy.deepcopy(fields)})


def _message(item_id: str, role: str, part: Fields, status: str) -> Fields:
    fields = {"id": item_id, "object": "realtime.item", "type": "message", "status": status}
    return {**fields, "role": role, "content": [part]}


def _usage(num_in: int, num_out: int) -> Fields:
    return {
        "total_tokens": num_in + num_out,
        "input_tokens": num_in,
        "output_tokens": num_out,
        "input_token_details": {"text_tokens": num_in, "audio_tokens": 0, "cached_tokens": 0},
        "output_token_details": {"text_tokens": num_out, "audio_tokens": 0},
    }

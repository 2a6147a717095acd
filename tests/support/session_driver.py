"""A session with everything around it replaced by something transparent: tests drive its clock and its engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.contract.speech_params import SpeechParams, with_defaults
from realtime_tts.errors import InvalidRequest, RealtimeTTSError, VoiceNotFound
from realtime_tts.session.messages import NOTHING_PLAYED_MS, AudioPackets, PlaybackChanged, ServerMessage, Text
from realtime_tts.session.session import Session
from realtime_tts.session.settings import Choices, ContextSettings, SessionConfig

MS_PER_CHAR = 50
FRAME_MS = 20
PARKED = PlaybackChanged("c", NOTHING_PLAYED_MS, paused=True)


@dataclass(frozen=True)
class FakeWord:
    text: str
    start: int
    end: int
    weight: float
    spoken_start: int = 0
    spoken_end: int = 0


@dataclass(frozen=True)
class FakeSegment:
    index: int
    text: str
    start: int
    end: int
    words: tuple[FakeWord, ...]
    final: bool = True
    silence_ms: float = 0.0
    added_chars: int = 0
    speed: float = 1.0
    volume: float = 1.0


class FakePlanner:
    """A segment ends after every full stop, and at flush, end or a stall of `stall_s`. Emoji are skipped.

    Live, it is given from its second word on, to the end of the last word that has ended; words follow one behind.
    """

    def __init__(self, stall_s: float | None = None, live: bool = False) -> None:
        self._text = ""
        self._cut = 0
        self._index = 0
        self._skipped: list[tuple[int, int]] = []
        self._stall_s = stall_s
        self._due: float | None = None
        self._live, self._num_given = live, 0  # words of the pending segment

    def push(self, delta: str, now: float) -> list[FakeSegment]:
        self._text += delta
        segments = []
        while (stop := self._text.find(".", self._cut)) >= 0:
            segments += self._take(stop + 1)
        pending = self._stall_s is not None and self._cut < len(self._text)
        self._due = now + (self._stall_s or 0) if pending else None
        return segments + self._give_open()

    def flush(self, now: float) -> list[FakeSegment]:
        self._due = None
        return self._take(len(self._text))

    def end(self, now: float) -> list[FakeSegment]:
        return self.flush(now)

    def tick(self, now: float) -> list[FakeSegment]:
        return self.flush(now) if self._due is not None and now >= self._due else []

    def pushing(self, delta: str, now: float) -> Iterator[list[FakeSegment]]:
        yield from filter(None, [self.push(delta, now)])

    def flushing(self, now: float) -> Iterator[list[FakeSegment]]:
        yield from filter(None, [self.flush(now)])

    def ending(self, now: float) -> Iterator[list[FakeSegment]]:
        yield from filter(None, [self.end(now)])

    def ticking(self, now: float) -> Iterator[list[FakeSegment]]:
        yield from filter(None, [self.tick(now)])

    def take_ignored(self) -> list[tuple[int, int]]:
        return []

    def take_skipped(self) -> list[tuple[int, int]]:
        taken, self._skipped = self._skipped, []
        return taken

    def next_deadline(self) -> float | None:
        return self._due

    def _take(self, end: int) -> list[FakeSegment]:
        start, self._cut, self._num_given = self._cut, end, 0
        words = self._words(start, end)
        skipped = re.finditer(r"[^\w\s.,!?…]+", self._text[start:end])
        self._skipped += [(start + m.start(), start + m.end()) for m in skipped]
        if not words:
            return []
        self._index += 1
        return [FakeSegment(self._index - 1, self._text[start:end], start, end, words)]

    def _give_open(self) -> list[FakeSegment]:
        if not self._live:
            return []
        ended = [word for word in self._words(self._cut, len(self._text)) if word.end < len(self._text)]
        if len(ended) < 2 or len(ended) == self._num_given:
            return []
        self._num_given, end = len(ended), ended[-1].end
        return [FakeSegment(self._index, self._text[self._cut : end], self._cut, end, tuple(ended[:-1]), final=False)]

    def _words(self, start: int, end: int) -> tuple[FakeWord, ...]:
        return tuple(
            FakeWord(m.group(), start + m.start(), start + m.end(), len(m.group()), m.start(), m.end())
            for m in re.finditer(r"\w+", self._text[start:end])
        )


DEFAULTS = SpeechParams(seed=7, cfg=2.0, steps=10, language="en", mode="clause", sentence_pause_ms=0.0)


def resolve(defaults: Choices, overrides: Choices) -> ContextSettings:
    """Accept every voice except "nobody", and no step count below 2."""
    voice = overrides.voice or defaults.voice or "amber"
    if voice == "nobody":
        raise VoiceNotFound("no such voice", field="voice")
    params = with_defaults(DEFAULTS | defaults.params | overrides.params)
    if params["steps"] < 2:
        raise InvalidRequest("steps must be 2 or more", field="params.steps")
    audio = overrides.audio or defaults.audio or AudioFormat()
    return ContextSettings(voice, audio, params)


def numbered_packets(first: int, num_packets: int) -> Packets:
    """Packets of 20 ms, whose payload counts them."""
    return Packets(tuple(index.to_bytes(4, "big") for index in range(first, first + num_packets)), first * 960, 960)


def one_by_one(messages: Iterable[ServerMessage]) -> list[ServerMessage]:
    """The messages as a client gets them, each packet on its own."""
    single: list[ServerMessage] = []
    for message in messages:
        if isinstance(message, AudioPackets):
            single += [message.between(place, place + 1) for place in range(len(message.packets))]
        else:
            single.append(message)
    return single


class Closed(NamedTuple):
    """The end of a session, after its events."""

    code: int
    reason: str


class Driver:
    """A session, its clock, and all that it has said; speaks for the engine on demand."""

    def __init__(
        self,
        config: SessionConfig,
        stall_s: float | None = None,
        refuse: Callable[[], RealtimeTTSError | None] = lambda: None,
        charge: Callable[[int], RealtimeTTSError | None] = lambda num_chars: None,
    ) -> None:
        self.now = 1000.0
        self.sent: list[ServerMessage] = []
        self.did: list[Any] = []
        self._pts: dict[str, int] = {}
        self.session = Session(
            "s1",
            config,
            resolve=resolve,
            make_planner=lambda settings: FakePlanner(stall_s, settings.params["mode"] == "live"),
            refuse=refuse,
            charge=charge,
            now=self.now,
        )

    def receive(self, *messages: Any) -> list[ServerMessage]:
        for message in messages:
            self.session.receive(message, self.now)
        return self.drain()

    def drain(self) -> list[ServerMessage]:
        """What is sent now."""
        sent = one_by_one(self.session.messages_to_send(self.now))
        self.sent += sent
        self.did += self.session.events()
        if self.session.closing is not None and not self.done(Closed):
            self.did.append(Closed(*self.session.closing))
        return sent

    def wait(self, seconds: float) -> list[ServerMessage]:
        """Let time pass, with a tick at every deadline; what is sent meanwhile."""
        end, sent = self.now + seconds, []
        while (due := self.session.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.session.tick(self.now)
            sent += self.drain()
        self.now = end
        self.session.tick(end)
        return sent + self.drain()

    def say(self, context_id: str, text: str) -> list[ServerMessage]:
        return self.receive(Text(context_id, text))

    def give(self, context_id: str, num_packets: int = 1) -> list[ServerMessage]:
        """Packets of 20 ms, whose payload counts them."""
        self._deliver(context_id, num_packets)
        return self.drain()

    def speak(self, context_id: str, segment_index: int, audio_ms: float) -> list[ServerMessage]:
        """A whole segment at once."""
        self._deliver(context_id, round(audio_ms / FRAME_MS))
        self.session.contexts.segment_progress(context_id, segment_index, audio_ms, True, self.now)
        return self.drain()

    def _deliver(self, context_id: str, num_packets: int) -> None:
        first = self._pts.get(context_id, 0)
        self._pts[context_id] = first + num_packets
        self.session.contexts.audio(context_id, numbered_packets(first, num_packets), self.now)

    def finish(self, context_id: str) -> list[ServerMessage]:
        self.session.contexts.audio_finished(context_id, self.now)
        return self.drain()

    def of(self, kind: type[Any], context_id: str | None = None) -> list[Any]:
        """All messages of a type that were sent so far."""
        found = [m for m in self.sent if isinstance(m, kind)]
        return found if context_id is None else [m for m in found if m.context_id == context_id]

    def done(self, kind: type[Any]) -> list[Any]:
        """All events of a type so far."""
        return [event for event in self.did if isinstance(event, kind)]

    def sent_ms(self, context_id: str) -> float:
        return FRAME_MS * len(self.of(AudioPackets, context_id))

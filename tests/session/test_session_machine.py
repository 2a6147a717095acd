"""Whatever clients, engines, clocks and networks do, in any order, a session keeps its promises.

The machine plays all of them: a client that checks every message it gets, an engine that speaks at random speeds, a
network that loses what is in flight, and a clock. At the end everything is brought to its conclusion, and each context
must have had exactly one.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from session_config import session_config
from session_driver import MS_PER_CHAR, FakePlanner, FakeSegment, numbered_packets, one_by_one, resolve

from realtime_tts.contract.speech_params import MODES, SpeechParams
from realtime_tts.dialects.native import NativeDialect
from realtime_tts.errors import EngineLost
from realtime_tts.session.connection import SessionState
from realtime_tts.session.messages import (
    AudioPackets,
    CancelRequest,
    ClientMessage,
    Commit,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    Crashed,
    DraftSpeech,
    End,
    EndOfSegments,
    ErrorMessage,
    ExtendSpeech,
    Flush,
    Flushed,
    Hold,
    Leave,
    Ping,
    PlaybackChanged,
    PlaybackReport,
    PriorityChanged,
    Release,
    Resume,
    ServerMessage,
    SessionResumed,
    StartSpeech,
    StopSpeech,
    Text,
    WarningMessage,
    Words,
)
from realtime_tts.session.session import Session

FRAME_MS = 20
PICKS = st.integers(0, 4)
TEXTS = st.lists(st.sampled_from(["One", " two", " three", ".", " ", "🙂", "\n", "é,", ""]), max_size=8).map("".join)
REFUSALS = {
    "context_closed",
    "too_many_contexts",
    "text_too_long",
    "invalid_request",
    "invalid_message",
    "too_many_errors",
}
SMALL_STEPS = {"realtime_tts.session.contexts.PLAN_CHARS": 9, "realtime_tts.session.context_text.SLICE_CHARS": 4}
CONFIG = session_config(max_contexts=2, max_text_chars=200, max_session_bytes=4_000_000, retain_s=60)


@dataclass
class Heard:
    """What the client has of one context."""

    text: str = ""
    last_sequence: int = -1
    started: bool = False
    num_packets: int = 0
    word_end: int = 0
    word_start_ms: float = 0.0
    word_end_ms: float = 0.0
    is_live: bool = False
    num_flushes: int = 0
    num_flushed: int = 0
    terminal: ServerMessage | None = None
    overclaimed: bool = False  # has acknowledged more than it had: may lose what it lacks
    cancelled: bool = False
    is_draft: bool = False
    lost: bool = False  # cannot be resumed: only its terminal message may still come

    def take(self, message: ServerMessage) -> None:
        if self.lost:
            assert isinstance(message, ContextDone | ContextCancelled | ContextFailed)
            assert self.terminal is None
            self.terminal = message
            return
        assert self.terminal is None, f"{message} after {self.terminal}"
        assert message.sequence == self.last_sequence + 1
        self.last_sequence = message.sequence
        assert self.started == (not isinstance(message, ContextStarted))
        self.started = True
        if self.is_draft:
            assert isinstance(message, ContextStarted | ContextCancelled | ContextFailed)
        if isinstance(message, AudioPackets):
            assert message.packets.pts_samples == self.num_packets * 960
            assert int.from_bytes(message.packets.payloads[0], "big") == self.num_packets
            self.num_packets += 1
        elif isinstance(message, Words):
            self._take_words(message)
        elif isinstance(message, Flushed):
            self.num_flushed += 1
            assert message.flush_id == str(self.num_flushed)
        elif isinstance(message, ContextDone | ContextCancelled | ContextFailed):
            self._take_terminal(message)

    def take_warning(self, message: WarningMessage) -> None:
        assert self.started
        for start, end in message.spans:
            assert set(self.text[start:end]) == {"🙂"}

    def _take_words(self, message: Words) -> None:
        if message.previous_end_ms is not None:
            assert message.previous_end_ms >= self.word_start_ms
            self.word_end_ms = message.previous_end_ms
        for word in message.words:
            assert self.text[word.start : word.end] == word.text
            assert word.start >= self.word_end
            assert word.start_ms >= (self.word_start_ms if word.measured else self.word_end_ms)
            assert word.end_ms >= max(word.start_ms, self.word_end_ms)
            # Of a text that is still being written a word may be known later than the packet in which it begins.
            assert self.is_live or word.start_ms >= self.num_packets * FRAME_MS - FRAME_MS
            self.word_end, self.word_start_ms, self.word_end_ms = word.end, word.start_ms, word.end_ms

    def _take_terminal(self, message: ContextDone | ContextCancelled | ContextFailed) -> None:
        self.terminal = message
        if isinstance(message, ContextDone):
            assert message.characters == len(self.text)
            if not self.cancelled:  # of late: what it then lacks after a resume is not sent again
                assert message.audio_ms == self.num_packets * FRAME_MS
                assert self.num_flushed == self.num_flushes
        else:
            assert message.spoken_text == self.text[: message.spoken_chars]
            assert not message.spoken_text.endswith("🙂")


@dataclass
class Speech:
    """What the engine has of one context."""

    segments: deque[FakeSegment] = field(default_factory=deque)
    ended: bool = False
    over: bool = False
    num_started: int = 0
    segment_ms: float = 0.0
    made_ms: float = 0.0
    num_packets: int = 0

    @property
    def is_open(self) -> bool:
        """More text of the last segment is to come."""
        return bool(self.segments) and not self.segments[-1].final


class BrittlePlanner(FakePlanner):
    """Raises whenever it is told to, once."""

    def __init__(self, faults: list[str], live: bool) -> None:
        super().__init__(0.7, live)
        self.faults = faults

    def push(self, delta: str, now: float) -> list[FakeSegment]:
        self.break_down()
        return super().push(delta, now)

    def flush(self, now: float) -> list[FakeSegment]:
        self.break_down()
        return super().flush(now)

    def take_ignored(self) -> list[tuple[int, int]]:
        return []

    def take_skipped(self) -> list[tuple[int, int]]:
        self.break_down()
        return super().take_skipped()

    def break_down(self) -> None:
        if self.faults:
            raise IndexError(self.faults.pop())


class SessionMachine(RuleBasedStateMachine):
    config = CONFIG

    def __init__(self) -> None:
        super().__init__()
        self.now = 50_000.0
        self.faults: list[str] = []  # that the planners still have in store
        self.num_faults = self.num_crashes = 0
        self.session = Session(
            "s",
            self.config,
            resolve=resolve,
            make_planner=lambda settings: BrittlePlanner(self.faults, settings.params["mode"] == "live"),
            now=self.now,
        )
        self.client: dict[str, Heard] = {}
        self.engine: dict[str, Speech] = {}
        self.in_flight: deque[ServerMessage] = deque()
        self.cancelled: set[str] = set()  # by the client, and the server has been told
        self.closed: tuple[int, str] | None = None
        self.connected = True
        self.writable = True
        self.last_sent_at = self.now

    # ---- plumbing ------------------------------------------------------------------------------------------------

    def drain(self) -> int:
        """Messages onto the wire, events to the engine; how many there were."""
        messages = self.session.messages_to_send(self.now) if self.connected and self.writable else []
        for message in messages:
            NativeDialect().serialize(message)
            assert not (isinstance(message, AudioPackets) and message.context_id in self.cancelled), (
                "audio after cancel"
            )
        self.check_lead({message.context_id for message in messages if isinstance(message, AudioPackets)})
        if messages:
            self.last_sent_at = self.now
        self.in_flight += one_by_one(messages)
        events = self.session.events()
        for event in events:
            self.perform(event)
        self.closed = self.session.closing
        return len(messages) + len(events)

    def check_lead(self, context_ids: set[str]) -> None:
        """What has just been sent is not further ahead of playback than allowed; an acknowledgement may be, later."""
        for context_id in context_ids:
            context = self.session.contexts.get(context_id)
            if context is not None:
                clock = context.sender.clock
                assert clock.sent_ms - clock.position_ms(self.now) <= CONFIG.max_lead_s * 1000 + 0.1

    def perform(self, event: object) -> None:
        assert self.closed is None
        if isinstance(event, Crashed):
            assert isinstance(event.error, IndexError)
            self.num_crashes += 1
            return
        assert isinstance(
            event,
            StartSpeech | DraftSpeech | ExtendSpeech | EndOfSegments | StopSpeech | PlaybackChanged | PriorityChanged,
        )
        if isinstance(event, DraftSpeech):
            assert event.segment.final
            assert event.context_id not in self.engine
            self.engine[event.context_id] = Speech()
        if isinstance(event, StartSpeech):
            assert not self.client[event.context_id].is_draft
            speech = self.engine.setdefault(event.context_id, Speech())
            assert event.segment.index == speech.num_started
            assert not self.config.in_turn or event.context_id == next(iter(self.session.contexts.open))
            assert not speech.ended
            assert not speech.is_open
            speech.num_started += 1
            speech.segments.append(event.segment)
        speech = self.engine[event.context_id]
        assert not speech.over, f"{event} for a context that is over"
        if isinstance(event, ExtendSpeech):
            before = speech.segments[-1]
            assert not before.final
            assert event.segment.index == before.index
            assert event.segment.text.startswith(before.text)
            assert event.segment.words[: len(before.words)] == before.words
            speech.segments[-1] = event.segment
        elif isinstance(event, EndOfSegments):
            assert not speech.is_open
            speech.ended = True
        elif isinstance(event, StopSpeech):
            speech.over = True

    def deliver(self) -> None:
        while self.in_flight:
            message = self.in_flight.popleft()
            if isinstance(message, ErrorMessage):
                assert message.code in REFUSALS
            elif isinstance(message, WarningMessage):
                self.client[message.context_id].take_warning(message)
            elif hasattr(message, "sequence"):
                self.client[message.context_id].take(message)

    def take_resumed(self, message: SessionResumed) -> None:
        for found in message.contexts:
            heard = self.client[found.context_id]
            if found.state == "lost":
                assert heard.overclaimed
                heard.lost = True
            elif found.state == "unknown":
                assert not heard.started
                del self.client[found.context_id]
            else:
                assert found.received_chars == len(heard.text)
                assert found.num_flushes == heard.num_flushes
                assert found.draft == heard.is_draft

    def name(self, pick: int) -> str:
        """One of the youngest contexts, or one that does not exist yet."""
        names = [*self.engine, *(name for name in self.client if name not in self.engine)]
        youngest = sorted(names, key=lambda name: int(name[1:]), reverse=True)
        new = f"c{int(youngest[0][1:]) + 1 if youngest else 0}"
        return [new, *youngest][pick % (len(youngest[:4]) + 1)]

    def say(self, *messages: ClientMessage) -> None:
        for message in messages:
            self.session.receive(message, self.now)
        self.drain()

    def run_clock(self, seconds: float) -> None:
        """Wake the session at its deadlines, as an event loop would; each must achieve something."""
        end = self.now + seconds
        for _ in range(20_000):
            due = self.session.next_deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            unplanned = self.num_unplanned()
            self.session.tick(self.now)
            achieved = self.drain() or self.num_unplanned() < unplanned
            after = self.session.next_deadline()
            assert achieved or after is None or after > self.now, "a deadline is due and stays due"
        else:
            raise AssertionError("too many deadlines")
        self.now = end
        self.session.tick(end)
        self.drain()

    def num_unplanned(self) -> int:
        texts = [context.text for context in self.session.contexts.open.values()]
        return sum(context_text.num_chars - context_text._num_read + len(context_text._marks) for context_text in texts)

    @property
    def is_open(self) -> bool:
        return self.closed is None and self.connected

    # ---- the client ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS, text=TEXTS, mode=st.sampled_from(MODES))
    def send_text(self, pick: int, text: str, mode: str = "clause") -> None:
        name = self.name(pick)
        context = self.session.contexts.open.get(name)
        fits = context is None or (not context.ended and context.text.num_chars + len(text) <= CONFIG.max_text_chars)
        used = name in self.session.contexts.ended
        if not used and fits and (context or len(self.session.contexts.open) < CONFIG.max_contexts):
            self.client.setdefault(name, Heard(is_live=mode == "live")).text += text
        self.say(Text(name, text, params=SpeechParams(mode=mode)))

    @precondition(lambda self: self.is_open)
    @rule(text=TEXTS, mode=st.sampled_from(MODES))
    def begin_draft(self, text: str, mode: str) -> None:
        name = self.name(0)
        used = name in self.session.contexts.ended
        if not used and len(self.session.contexts.open) < CONFIG.max_contexts:
            self.client[name] = Heard(text, is_live=mode == "live", is_draft=True)
        self.say(Text(name, text, params=SpeechParams(mode=mode), draft=True))

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS, text=st.one_of(TEXTS, st.none()))
    def commit(self, pick: int, text: str | None) -> None:
        name = self.name(pick)
        context = self.session.contexts.open.get(name)
        if context is not None and context.draft_at is not None:
            heard = self.client[name]
            heard.text, heard.is_draft = heard.text if text is None else text, False
        self.say(Commit(name, text))

    @precondition(lambda self: self.is_open)
    @rule(audio_ms=st.floats(100, 8000), done=st.booleans())
    def a_whole_sentence_is_spoken(self, audio_ms: float, done: bool) -> None:
        self.send_text(0, "One two three four. ")
        self.send_end(1)
        self.speak(1, audio_ms, done)

    @precondition(lambda self: self.is_open)
    @rule(parts=st.lists(st.tuples(st.sampled_from([" five", " six.", " s", "even"]), st.floats(1, 900)), max_size=6))
    def a_sentence_is_spoken_while_it_is_written(self, parts: list[tuple[str, float]]) -> None:
        self.send_text(0, "One two three four", "live")
        for text, audio_ms in parts:
            self.speak(1, audio_ms, done=True)
            self.send_text(1, text)

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS)
    def send_flush(self, pick: int) -> None:
        name = self.name(pick)
        if name in self.session.contexts.open:
            self.client[name].num_flushes += not self.client[name].is_draft
            self.say(Flush(name, str(self.client[name].num_flushes)))
        else:
            self.say(Flush(name))

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS)
    def send_end(self, pick: int) -> None:
        name = self.name(pick)
        self.say(End(name))

    @precondition(lambda self: self.is_open)
    @rule(pick=st.one_of(PICKS, st.none()))
    def send_cancel(self, pick: int | None) -> None:
        name = None if pick is None else self.name(pick)
        self.session.receive(CancelRequest(name), self.now)
        self.cancelled |= {name} if name else set(self.client)
        self.cancelled &= set(self.client)
        for cancelled in self.cancelled:
            self.client[cancelled].cancelled = True
        assert not self.cancelled & set(self.session.contexts.open)
        self.drain()

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS, played_ms=st.one_of(st.floats(), st.floats(0, 5000)))
    def send_playback(self, pick: int, played_ms: float) -> None:
        name = self.name(pick)
        if name in self.client and self.client[name].num_packets * FRAME_MS < played_ms < math.inf:
            self.client[name].overclaimed = True
        self.say(PlaybackReport(name, played_ms))

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS, at=st.sampled_from(["word", "now"]), played_ms=st.one_of(st.none(), st.floats(0, 5000)))
    def send_hold(self, pick: int, at: Literal["word", "now"], played_ms: float | None) -> None:
        name = self.name(pick)
        if played_ms is not None and name in self.client and self.client[name].num_packets * FRAME_MS < played_ms:
            self.client[name].overclaimed = True
        self.say(Hold(name, at, played_ms))
        held = self.session.contexts.open.get(name)
        assert held is None or (held.sender.clock.held_at is None) is (held.draft_at is not None)
        assert held is None or held.sender.next_send_at(self.now, 0) in (None, self.now)

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS, clause_after_ms=st.sampled_from([0.0, 2000.0]))
    def send_release(self, pick: int, clause_after_ms: float) -> None:
        self.say(Release(self.name(pick), clause_after_ms))

    @precondition(lambda self: self.is_open)
    @rule(pick=PICKS)
    def acknowledge_truthfully(self, pick: int) -> None:
        name = self.name(pick)
        if name in self.client:
            self.say(PlaybackReport(name, self.client[name].num_packets * FRAME_MS))

    @precondition(lambda self: self.is_open)
    @rule()
    def receive_everything(self) -> None:
        self.deliver()
        self.say(Ping())

    @rule()
    def break_a_planner(self) -> None:
        self.faults.append("a planner's")
        self.num_faults += 1

    # ---- the engine ----------------------------------------------------------------------------------------------

    @rule(pick=PICKS, audio_ms=st.floats(1, 3000), done=st.booleans())
    def speak(self, pick: int, audio_ms: float, done: bool) -> None:
        name = self.name(pick)
        speech = self.engine.get(name)
        if speech is not None and speech.segments:
            self.make_audio(name, speech, audio_ms, done)

    def make_audio(self, name: str, speech: Speech, audio_ms: float, done: bool) -> None:
        """Speak no more of an open segment than its text gives, and not its end. Every other engine measures."""
        segment = speech.segments[0]
        if not segment.final:
            text_ms = MS_PER_CHAR * len(segment.text) - speech.segment_ms
            audio_ms, done = min(audio_ms, max(0.0, text_ms)), False
        speech.segment_ms += audio_ms
        speech.made_ms += audio_ms
        position = min(speech.segment_ms / MS_PER_CHAR, len(segment.text))
        reached = (speech.segment_ms, position) if int(name[1:]) % 2 else None
        self.give_packets(name, speech, int(speech.made_ms / FRAME_MS))
        self.session.contexts.segment_progress(name, segment.index, speech.segment_ms, done, self.now, reached)
        if done:
            speech.segments.popleft()
            speech.segment_ms = 0.0
        self.drain()

    @rule(pick=PICKS)
    def finish_speech(self, pick: int) -> None:
        name = self.name(pick)
        speech = self.engine.get(name)
        if speech is not None:
            self.complete(name, speech)

    def complete(self, name: str, speech: Speech) -> None:
        if speech.ended and not speech.segments and not speech.over:
            self.give_packets(name, speech, -int(-speech.made_ms // FRAME_MS))
            self.session.contexts.audio_finished(name, self.now)
            self.drain()

    @rule(pick=PICKS)
    def fail_speech(self, pick: int) -> None:
        name = self.name(pick)
        speech = self.engine.get(name)
        if speech is not None and not speech.over:
            self.session.contexts.failed(name, EngineLost("the worker is gone"), self.now)
            self.drain()

    def give_packets(self, name: str, speech: Speech, num_packets: int) -> None:
        packets = numbered_packets(speech.num_packets, num_packets - speech.num_packets)
        self.session.contexts.audio(name, packets, self.now)
        speech.num_packets = max(speech.num_packets, num_packets)

    # ---- clock and network ---------------------------------------------------------------------------------------

    @rule(seconds=st.floats(0, 0.9))
    def wait_a_moment(self, seconds: float) -> None:
        self.run_clock(seconds)

    @rule(seconds=st.floats(1, 6))
    def wait(self, seconds: float) -> None:
        if self.connected:
            self.deliver()
        self.run_clock(seconds)

    @precondition(lambda self: self.is_open)
    @rule(writable=st.booleans())
    def block_or_unblock(self, writable: bool) -> None:
        self.writable = writable
        self.session.writable(writable, self.now)
        self.last_sent_at = self.now
        self.drain()

    @precondition(lambda self: self.is_open)
    @rule(data=st.data())
    def lose_connection(self, data: st.DataObject) -> None:
        num_arrived = data.draw(st.integers(0, len(self.in_flight)))
        lost = len(self.in_flight) - num_arrived
        for _ in range(lost):
            self.in_flight.pop()
        self.deliver()
        self.connected = False
        self.session.connection_lost(self.now)
        self.drain()

    @precondition(lambda self: self.closed is None and not self.connected)
    @rule()
    def reconnect(self) -> None:
        wanted = {name: heard.last_sequence for name, heard in self.client.items() if heard.terminal is None}
        self.session.resume(Resume("s", wanted), self.now)
        self.connected = self.writable = True
        self.last_sent_at = self.now
        self.drain()
        resumed = self.in_flight.popleft()
        assert isinstance(resumed, SessionResumed)
        self.take_resumed(resumed)

    # ---- promises ------------------------------------------------------------------------------------------------

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.session.contexts.num_bytes <= CONFIG.max_session_bytes
        assert len(self.session.contexts.open) <= CONFIG.max_contexts

    @invariant()
    def every_fault_is_reported_once(self) -> None:
        assert self.num_crashes == self.num_faults - len(self.faults)

    @invariant()
    def is_never_silent_for_long_with_an_open_context(self) -> None:
        if self.is_open and self.writable and len(self.session.contexts.open):
            assert self.now - self.last_sent_at < 4

    @invariant()
    def closes_only_for_a_reason(self) -> None:
        if self.closed is not None:
            assert self.session.state is SessionState.CLOSED
            assert self.closed[1] in ("slow_consumer", "resume_window_over", "too_many_errors")

    def teardown(self) -> None:
        """Bring everything to its end and count."""
        if self.closed is None:
            if not self.connected:
                self.reconnect()
            self.block_or_unblock(True)
            drafts = [name for name, context in self.session.contexts.open.items() if context.draft_at is not None]
            for name in drafts:
                self.client[name].is_draft = False
            self.say(*map(Commit, drafts), *[End(name) for name in self.session.contexts.open], Leave())
            while len(self.session.contexts.open):
                before = self.now
                self.run_clock(0)
                for name, speech in list(self.engine.items()):  # text that waits is planned as segments are spoken
                    while speech.segments and not speech.over:
                        self.make_audio(name, speech, 100.0, True)
                        self.run_clock(0)
                    self.complete(name, speech)
                self.say(*[PlaybackReport(name, heard.num_packets * FRAME_MS) for name, heard in self.client.items()])
                self.run_clock(1)
                self.deliver()
                assert self.now - before < 60
                assert self.now < 60_000, "a context never ends"
            self.run_clock(30)
            self.deliver()
            assert all(heard.terminal is not None or heard.lost for heard in self.client.values())
            assert self.closed == (1000, "client_left")
        assert all(speech.over for speech in self.engine.values())


class InTurnMachine(SessionMachine):
    """One context is spoken after the other."""

    config = replace(CONFIG, in_turn=True)


class FinalRefusalsMachine(SessionMachine):
    """A context whose message is refused has failed."""

    config = replace(CONFIG, errors_end="context")


SessionMachine.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
InTurnMachine.TestCase.settings = settings(SessionMachine.TestCase.settings, max_examples=40)
FinalRefusalsMachine.TestCase.settings = settings(SessionMachine.TestCase.settings, max_examples=30)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes several turns of planning is seldom written by chance."""
    for name, value in SMALL_STEPS.items():
        monkeypatch.setattr(name, value)


class TestSessionMachine(SessionMachine.TestCase):  # type: ignore[name-defined,misc]
    pass


class TestFinalRefusalsMachine(FinalRefusalsMachine.TestCase):  # type: ignore[name-defined,misc]
    pass


class TestInTurnMachine(InTurnMachine.TestCase):  # type: ignore[name-defined,misc]
    pass

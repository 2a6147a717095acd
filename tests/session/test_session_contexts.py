"""The life of contexts: opening, text, flush, end, cancel, failure; what client and engine are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from session_config import session_config
from session_driver import Closed, Driver, numbered_packets

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.errors import EngineLost, InvalidMessage, Overloaded, RateLimited
from realtime_tts.session.connection import MAX_REFUSED, SessionState
from realtime_tts.session.contexts import MAX_REMEMBERED
from realtime_tts.session.messages import (
    AudioPackets,
    CancelAcknowledged,
    CancelRequest,
    Commit,
    ContextCancelled,
    ContextDone,
    ContextFailed,
    ContextStarted,
    End,
    EndOfSegments,
    ErrorMessage,
    Flush,
    Flushed,
    KeepAlive,
    Leave,
    Ping,
    PlaybackReport,
    Pong,
    PriorityChanged,
    Resume,
    SessionResumed,
    SessionStarted,
    StartSession,
    StartSpeech,
    StopSpeech,
    Text,
    WarningMessage,
    Words,
)


def test_a_whole_context_in_order(driver: Driver) -> None:
    driver.say("c", "Hello there. ")
    driver.receive(End("c"))
    driver.speak("c", 0, 60)
    driver.finish("c")
    kinds = [type(m) for m in driver.sent]
    assert kinds == [SessionStarted, ContextStarted, Words, AudioPackets, AudioPackets, AudioPackets, ContextDone]
    assert [m.sequence for m in driver.sent[1:]] == [0, 1, 2, 3, 4, 5]
    assert [m.packets.pts_samples for m in driver.of(AudioPackets)] == [0, 960, 1920]
    done = driver.of(ContextDone)[0]
    assert (done.audio_ms, done.characters) == (60, 13)
    assert [type(e) for e in driver.did if not type(e).__name__.startswith("Playback")] == [
        StartSpeech,
        EndOfSegments,
        StopSpeech,
    ]


def test_ttfa_counts_from_the_first_text_that_is_not_blank(driver: Driver) -> None:
    driver.say("c", "")
    driver.wait(1)
    driver.say("c", "  ")
    driver.wait(1)
    driver.say("c", "Hi.")
    driver.wait(0.25)
    driver.receive(End("c"))
    driver.speak("c", 0, 20)
    driver.finish("c")
    assert driver.of(ContextDone)[0].ttfa_ms == pytest.approx(250)


def test_session_start_sets_defaults_and_text_overrides_them(driver: Driver) -> None:
    pcm, opus = AudioFormat("pcm_s16le", 16_000), AudioFormat("opus", 24_000)
    driver.receive(StartSession("ruby", pcm, SpeechParams(cfg=1.5, steps=4)))
    driver.receive(Text("c1", "One."), Text("c2", "Two.", "onyx", opus, SpeechParams(steps=9, seed=3, language="de")))
    first, second = [e.settings for e in driver.done(StartSpeech)]
    assert (first.voice, first.audio, second.voice, second.audio) == ("ruby", pcm, "onyx", opus)
    assert first.params.items() >= {"cfg": 1.5, "steps": 4, "seed": 7}.items()
    assert second.params.items() >= {"cfg": 1.5, "steps": 9, "seed": 3, "language": "de"}.items()
    assert len(driver.of(SessionStarted)) == 1


def test_without_session_start_the_defaults_are_announced_before_the_first_context(driver: Driver) -> None:
    assert [type(m) for m in driver.say("c", "Hi")] == [SessionStarted, ContextStarted]
    started = driver.of(SessionStarted)[0]
    assert (started.session_id, started.model, started.voice) == ("s1", "starter", "amber")
    assert started.limits["max_text_chars"] == 20_000


def test_session_start_may_be_repeated_until_the_first_context(driver: Driver) -> None:
    driver.receive(StartSession("ruby"), StartSession("onyx"))
    assert [m.voice for m in driver.of(SessionStarted)] == ["ruby", "onyx"]
    driver.say("c", "Hi.")
    driver.receive(StartSession("jade"))
    assert driver.of(ErrorMessage)[-1].code == "invalid_message"
    assert driver.done(StartSpeech)[0].settings.voice == "onyx"


def test_a_refused_session_start_leaves_the_old_defaults(driver: Driver) -> None:
    driver.receive(StartSession("ruby"), StartSession("nobody"), StartSession(params=SpeechParams(steps=0)))
    assert [m.code for m in driver.of(ErrorMessage)] == ["voice_not_found", "invalid_request"]
    driver.say("c", "Hi.")
    assert driver.done(StartSpeech)[0].settings.voice == "ruby"


def test_an_invalid_choice_is_refused_and_opens_nothing(driver: Driver) -> None:
    driver.receive(Text("c", "Hi.", params=SpeechParams(steps=0)))
    assert driver.of(ErrorMessage)[0].field == "params.steps"
    assert driver.of(ContextStarted) == []
    driver.say("d", "Hi.")
    assert driver.of(ContextStarted)[0].number == 1


def test_text_waits_for_a_sentence_end_or_a_flush(driver: Driver) -> None:
    driver.say("c", "Half a sen")
    assert driver.done(StartSpeech) == []
    driver.receive(Flush("c", "f1"))
    assert [e.segment.text for e in driver.done(StartSpeech)] == ["Half a sen"]
    assert driver.of(Flushed) == []
    driver.speak("c", 0, 40)
    assert [(m.flush_id, m.audio_ms) for m in driver.of(Flushed)] == [("f1", 40)]
    assert isinstance(driver.sent[-1], Flushed)


def test_flushes_are_answered_one_by_one_each_after_its_own_text(driver: Driver) -> None:
    driver.say("c", "One. ")
    driver.receive(Flush("c", "a"))
    driver.say("c", "Two. ")
    driver.receive(Flush("c", "b"), Flush("c", "c"))
    driver.speak("c", 0, 40)
    assert [m.flush_id for m in driver.of(Flushed)] == ["a"]
    driver.speak("c", 1, 40)
    assert [(m.flush_id, m.audio_ms) for m in driver.of(Flushed)] == [("a", 40), ("b", 80), ("c", 80)]


def test_a_flush_with_nothing_pending_is_answered_at_once(driver: Driver) -> None:
    driver.say("c", "   ")
    driver.receive(Flush("c"))
    assert [m.flush_id for m in driver.of(Flushed)] == [None]


def test_flush_and_end_may_follow_the_end(driver: Driver) -> None:
    driver.say("c", "Hi.")
    driver.receive(End("c"), End("c"), Flush("c", "late"))
    assert driver.of(ErrorMessage) == []
    assert len(driver.done(EndOfSegments)) == 1
    driver.speak("c", 0, 40)
    driver.finish("c")
    assert [type(m) for m in driver.sent[-2:]] == [Flushed, ContextDone]


@pytest.mark.parametrize("text", ["", "   \n", "🙂🙂", "…!?"])
def test_nothing_to_speak_is_done_at_once_and_never_reaches_the_engine(driver: Driver, text: str) -> None:
    driver.say("c", text)
    driver.receive(End("c"))
    done = driver.of(ContextDone)[0]
    assert (done.audio_ms, done.characters, done.ttfa_ms) == (0, len(text), None)
    assert driver.did == []
    assert driver.receive(CancelRequest("c")) == [CancelAcknowledged("c", "done", 0, "", 0)]


def test_a_client_is_told_what_is_not_spoken_when_it_is_found_out(driver: Driver) -> None:
    driver.say("c", "Well 🙂🙂 then. And 🙂")
    first = driver.of(WarningMessage)
    assert [(m.context_id, m.code, m.spans) for m in first] == [("c", "unspeakable_text", ((5, 7),))]
    assert isinstance(driver.sent[1], ContextStarted)  # it comes after the start of its context
    driver.receive(End("c"))
    assert [m.spans for m in driver.of(WarningMessage)] == [((5, 7),), ((18, 19),)]


def test_a_context_of_nothing_speakable_is_warned_of_and_has_no_audio(driver: Driver) -> None:
    driver.receive(Text("c", "…🙂 🙂!"), End("c"))
    kinds = [type(m) for m in driver.sent]
    assert kinds == [SessionStarted, ContextStarted, WarningMessage, ContextDone]
    assert driver.of(WarningMessage)[0].spans == ((1, 2), (3, 4))
    assert driver.of(ContextDone)[0].characters == 5
    assert driver.receive(CancelRequest("c")) == [CancelAcknowledged("c", "done", 0, "", 0)]


def test_a_failure_before_anything_speakable_has_spoken_nothing(driver: Driver) -> None:
    driver.receive(Text("c", "🙂🙂"), Flush("c"))
    driver.session.close(driver.now, 1008, "test")
    driver.drain()
    cancelled = driver.of(ContextCancelled)[0]
    assert (cancelled.spoken_text, cancelled.spoken_chars) == ("", 0)


def test_what_is_found_out_while_the_connection_is_lost_is_told_after_the_resume(
    make_driver: Callable[..., Driver],
) -> None:
    driver = make_driver(stall_s=0.4)
    driver.session.receive(Text("c", "Well 🙂"), driver.now)
    driver.session.connection_lost(driver.now)
    driver.wait(1)
    driver.session.resume(Resume("s1", {"c": -1}), driver.now)
    driver.drain()
    driver.receive(End("c"))
    assert [type(m) for m in driver.sent] == [SessionResumed, ContextStarted, WarningMessage]
    assert driver.of(WarningMessage)[0].spans == ((5, 6),)


def test_a_warning_lists_so_many_places_and_no_more(driver: Driver) -> None:
    driver.receive(Text("c", "🙂 " * 1000), End("c"))
    driver.wait(0)
    [warning] = driver.of(WarningMessage)
    assert warning.spans == tuple((2 * i, 2 * i + 1) for i in range(16))


def test_a_stalled_text_is_spoken_when_the_planner_says_so(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(stall_s=0.4)
    driver.say("c", "An unfinished")
    driver.wait(0.39)
    assert driver.done(StartSpeech) == []
    driver.wait(0.02)
    assert len(driver.done(StartSpeech)) == 1


def test_text_after_the_end_is_refused(driver: Driver) -> None:
    driver.say("c", "Hi.")
    driver.receive(End("c"), Text("c", "more"))
    error = driver.of(ErrorMessage)[0]
    assert (error.code, error.context_id) == ("context_closed", "c")


@pytest.mark.parametrize("message", [Text("c", "x"), Flush("c"), End("c")])
def test_messages_for_a_context_that_is_over_are_refused(driver: Driver, message: Text | Flush | End) -> None:
    driver.say("c", "Hi.")
    driver.receive(CancelRequest("c"), message)
    assert driver.of(ErrorMessage)[0].code == "context_closed"
    assert len(driver.of(ContextStarted)) == 1


@pytest.mark.parametrize("message", [Flush("x"), End("x")])
def test_flush_and_end_of_an_unknown_context_are_refused(driver: Driver, message: Flush | End) -> None:
    driver.receive(message)
    error = driver.of(ErrorMessage)[0]
    assert (error.code, error.field, error.context_id) == ("invalid_request", "context_id", "x")


@pytest.mark.parametrize("context_id", ["", "x" * 129])
def test_a_context_id_has_a_length(driver: Driver, context_id: str) -> None:
    driver.say(context_id, "Hi.")
    assert driver.of(ErrorMessage)[0].code == "invalid_message"


def test_text_beyond_the_limit_is_refused_whole_and_the_context_goes_on(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_text_chars=10)
    driver.say("big", "x" * 11)
    assert driver.of(ContextStarted) == []
    driver.say("c", "123456. ")
    driver.say("c", "789")
    assert [m.code for m in driver.of(ErrorMessage)] == ["text_too_long", "text_too_long"]
    driver.say("c", "9.")
    driver.receive(End("c"))
    driver.speak("c", 0, 20)
    driver.speak("c", 1, 20)
    driver.finish("c")
    assert driver.of(ContextDone)[0].characters == 10


def test_contexts_at_a_time_are_limited_and_free_again_when_one_is_over(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_contexts=2)
    driver.receive(Text("a", "A."), Text("b", "B."), Text("c", "C."))
    assert driver.of(ErrorMessage)[0].code == "too_many_contexts"
    driver.receive(CancelRequest("a"), Text("d", "D."))
    assert [m.context_id for m in driver.of(ContextStarted)] == ["a", "b", "d"]
    assert len(driver.session.contexts.open) == 2


def test_what_follows_of_a_text_that_was_one_too_many_does_not_open_in_mid_sentence(
    make_driver: Callable[..., Driver],
) -> None:
    driver = make_driver(max_contexts=1)
    driver.receive(Text("a", "A."), Text("b", "I do "), CancelRequest("a"), Text("b", "not agree."), End("b"))
    assert [m.code for m in driver.of(ErrorMessage)] == ["too_many_contexts", "context_closed", "context_closed"]
    assert [m.context_id for m in driver.of(ContextStarted)] == ["a"]
    driver.receive(CancelRequest("b"))
    assert driver.of(CancelAcknowledged)[-1].state == "failed"


@pytest.mark.parametrize(
    ("opening", "code"),
    [
        (Text("b", "I do hope that I never have to ", voice="nobody"), "voice_not_found"),
        (Text("b", "I do hope that I never have to ", params=SpeechParams(steps=0)), "invalid_request"),
        (Text("b", "I do hope that I never have to "), "rate_limited"),
        (Text("b", 41 * "x"), "text_too_long"),
    ],
)
def test_what_follows_of_a_refused_opening_does_not_open_the_context_in_mid_sentence(opening: Text, code: str) -> None:
    def charge(num_chars: int) -> RateLimited | None:
        return RateLimited("too much") if num_chars > 20 else None

    driver = Driver(session_config(max_text_chars=40), charge=charge)
    driver.receive(opening, Text("b", "agree."), End("b"))
    assert [m.code for m in driver.of(ErrorMessage)] == [code, "context_closed", "context_closed"]
    assert driver.of(ContextStarted) == []
    driver.receive(Text("c", "I do agree."))
    assert [m.context_id for m in driver.of(ContextStarted)] == ["c"]


def test_what_follows_of_an_opening_that_cannot_be_parsed_does_not_open_the_context(driver: Driver) -> None:
    error = InvalidMessage("steps must be a whole number", field="params.steps")
    error.context_id = "b"
    driver.session.reject(error, driver.now)
    driver.receive(Text("b", "not agree."))
    assert [m.code for m in driver.of(ErrorMessage)] == ["invalid_message", "context_closed"]
    assert driver.of(ContextStarted) == []


def test_an_id_is_not_used_twice(driver: Driver) -> None:
    driver.say("c", "")
    driver.receive(End("c"), Text("c", "again"))
    assert driver.of(ErrorMessage)[0].code == "context_closed"


def test_a_newer_context_goes_first_until_it_is_over(driver: Driver) -> None:
    driver.receive(Text("a", "A."), Text("b", "B."))
    assert driver.done(PriorityChanged) == [PriorityChanged("a", 1)]
    assert [e.priority for e in driver.done(StartSpeech)] == [0, 0]
    driver.receive(Text("a", " More."))
    assert driver.done(StartSpeech)[-1].priority == 1
    driver.receive(CancelRequest("b"))
    assert driver.done(PriorityChanged)[-1] == PriorityChanged("a", 0)


def test_cancel_drops_what_waits_and_tells_the_engine(driver: Driver) -> None:
    driver.say("c", "One two three four.")
    driver.speak("c", 0, 8000)
    assert driver.sent_ms("c") == 3000
    driver.wait(1)
    before = len(driver.of(AudioPackets))
    driver.receive(CancelRequest("c"))
    assert isinstance(driver.sent[-1], ContextCancelled)
    assert driver.done(StopSpeech) == [StopSpeech("c")]
    driver.give("c", 5)
    driver.session.contexts.segment_progress("c", 0, 9000, True, driver.now)
    driver.session.contexts.audio_finished("c", driver.now)
    driver.session.contexts.failed("c", EngineLost("gone"), driver.now)
    driver.wait(10)
    assert len(driver.of(AudioPackets)) == before
    assert isinstance(driver.sent[-1], ContextCancelled)


def test_cancelled_tells_which_words_were_heard_to_their_end(driver: Driver) -> None:
    driver.say("c", "  One two, three.")
    driver.speak("c", 0, 1100)  # 3 + 3 + 5 letters: 300, 300 and 500 ms
    driver.wait(0.65)
    driver.receive(CancelRequest("c"))
    cancelled = driver.of(ContextCancelled)[0]
    assert cancelled.played_ms == pytest.approx(650)
    assert (cancelled.spoken_text, cancelled.spoken_chars) == ("  One two", 9)


def test_acknowledgements_decide_what_was_heard(driver: Driver) -> None:
    driver.say("c", "One two three.")
    driver.speak("c", 0, 1100)
    driver.wait(0.65)
    driver.receive(PlaybackReport("c", 320))
    driver.receive(CancelRequest("c"))
    cancelled = driver.of(ContextCancelled)[0]
    assert (cancelled.played_ms, cancelled.spoken_text) == (320, "One")


def test_a_cancel_before_any_audio_has_heard_nothing(driver: Driver) -> None:
    driver.session.receive(Text("c", "One."), driver.now)
    driver.receive(CancelRequest("c"))
    assert [type(m) for m in driver.sent] == [SessionStarted, ContextStarted, ContextCancelled]
    assert [m.sequence for m in driver.sent[1:]] == [0, 1]
    assert driver.of(ContextCancelled)[0].spoken_text == ""


def test_a_cancel_before_any_segment_is_not_sent_to_the_engine(driver: Driver) -> None:
    driver.say("c", "not yet")
    driver.receive(CancelRequest("c"))
    assert driver.did == []


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancel_of_an_unknown_context_is_harmless(driver: Driver, times: int) -> None:
    answers = driver.receive(*[CancelRequest("x")] * times)
    assert answers == [CancelAcknowledged("x", "unknown")] * times


def test_a_cancel_of_a_done_context_tells_what_was_heard_and_then_stands(driver: Driver) -> None:
    driver.say("c", "One two three. 🙂")
    driver.receive(End("c"))
    driver.speak("c", 0, 1100)
    driver.finish("c")
    assert len(driver.of(ContextDone)) == 1
    driver.wait(0.65)
    [answer] = driver.receive(CancelRequest("c"))
    assert answer == CancelAcknowledged("c", "done", pytest.approx(650), "One two", 7, pytest.approx(0.1))
    driver.wait(5)
    assert driver.receive(CancelRequest("c")) == [answer]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("One two three. ?!", "One two three. ?!"),
        ("One 🙂 two three.", "One 🙂 two three."),
        ("One two three. 🙂", "One two three. "),
        ("One two three🙂. 🙂!", "One two three"),
    ],
)
def test_a_done_context_was_heard_up_to_what_nothing_speaks(driver: Driver, text: str, spoken: str) -> None:
    driver.say("c", text)
    driver.receive(End("c"))
    driver.speak("c", 0, 1100)
    driver.finish("c")
    driver.wait(2)
    [answer] = driver.receive(CancelRequest("c"))
    assert (answer.spoken_text, answer.spoken_chars) == (spoken, len(spoken))


def test_cancel_without_an_id_ends_everything(driver: Driver) -> None:
    driver.say("done", "Done.")
    driver.receive(End("done"))
    driver.speak("done", 0, 500)
    driver.finish("done")
    driver.receive(Text("gone", "x"), CancelRequest("gone"), Text("a", "A."), Text("b", "B."))
    answers = driver.receive(CancelRequest())
    assert [(type(m), m.context_id) for m in answers] == [
        (ContextCancelled, "a"),
        (ContextCancelled, "b"),
        (CancelAcknowledged, "done"),
        (CancelAcknowledged, None),
    ]
    assert answers[-1].state == "all"
    assert len(driver.session.contexts.open) == 0


def test_a_cancel_of_a_context_long_over_says_how_it_ended(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver()
    for index in range(20):
        driver.say(f"c{index}", "")
        driver.receive(End(f"c{index}"))
    assert driver.receive(CancelRequest("c0")) == [CancelAcknowledged("c0", "done")]
    driver.receive(PlaybackReport("c0", 10))
    assert driver.of(ErrorMessage) == []


def test_failure_is_terminal_and_says_where_a_retry_can_begin(driver: Driver) -> None:
    driver.say("c", "One two three.")
    driver.speak("c", 0, 1100)
    driver.say("c", " Four.")
    driver.give("c", 2)
    driver.session.contexts.failed("c", EngineLost("the worker is gone"), driver.now)
    [failed] = driver.drain()
    assert isinstance(failed, ContextFailed)
    assert (failed.code, failed.retryable, failed.audio_ms) == ("engine_lost", True, 1140)
    assert (failed.spoken_text, failed.spoken_chars) == ("One two three", 13)
    assert driver.done(StopSpeech) == [StopSpeech("c")]
    assert driver.receive(CancelRequest("c"))[0].state == "failed"


def test_a_word_whose_end_is_measured_after_its_audio_left_was_sent_before_a_failure(driver: Driver) -> None:
    contexts = driver.session.contexts
    driver.say("c", "One two three.")
    contexts.audio("c", numbered_packets(0, 20), driver.now)
    contexts.segment_progress("c", 0, 400, False, driver.now, reached=(240, 5))
    driver.drain()
    two = driver.of(Words)[-1].words[-1]
    assert (two.text, driver.sent_ms("c")) == ("two", 400)
    assert two.end_ms > 400
    driver.session.writable(False, driver.now)
    contexts.audio("c", numbered_packets(20, 8), driver.now)
    contexts.segment_progress("c", 0, 560, False, driver.now, reached=(380, 8))
    contexts.failed("c", EngineLost("the worker is gone"), driver.now)
    driver.session.writable(True, driver.now)
    driver.drain()
    [failed] = driver.of(ContextFailed)
    assert (failed.audio_ms, failed.spoken_text) == (400, "One two")


def test_a_cancel_after_the_audio_is_complete_is_not_sent_to_the_engine(driver: Driver) -> None:
    driver.say("c", "One.")
    driver.receive(End("c"))
    driver.speak("c", 0, 6000)
    driver.finish("c")
    driver.receive(CancelRequest("c"))
    assert driver.done(StopSpeech) == [StopSpeech("c")]
    assert len(driver.of(ContextCancelled)) == 1
    assert driver.of(ContextDone) == []


def test_a_caller_that_loses_a_packet_is_told(driver: Driver) -> None:
    driver.say("c", "One.")
    with pytest.raises(ValueError, match="expected 0"):
        driver.session.contexts.audio("c", Packets((b"",), 960, 960), driver.now)


def test_a_caller_that_finishes_too_early_or_twice_is_told(driver: Driver) -> None:
    driver.say("c", "One.")
    with pytest.raises(ValueError, match="after EndOfSegments"):
        driver.session.contexts.audio_finished("c", driver.now)
    driver.receive(End("c"))
    driver.speak("c", 0, 6000)
    driver.finish("c")
    with pytest.raises(ValueError, match="once"):
        driver.session.contexts.audio_finished("c", driver.now)


def test_progress_of_a_segment_that_was_never_started_is_a_callers_mistake(driver: Driver) -> None:
    driver.say("c", "One.")
    with pytest.raises(ValueError, match="unknown segment 1"):
        driver.session.contexts.segment_progress("c", 1, 10, False, driver.now)


def test_audio_without_bound_fails_its_context(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_queued_s=4)
    driver.say("c", "One.")
    driver.give("c", 360)
    assert driver.of(ContextFailed)[0].code == "internal_error"
    assert driver.session.contexts.num_bytes < 100_000


def test_ping_is_answered(driver: Driver) -> None:
    assert driver.receive(Ping("7"), Ping()) == [Pong("7"), Pong(None)]


def test_a_resume_on_a_session_that_speaks_is_refused(driver: Driver) -> None:
    driver.receive(Resume("s1"))
    assert driver.of(ErrorMessage)[0].code == "invalid_message"


def test_twenty_mistakes_in_a_row_close_the_socket(driver: Driver) -> None:
    driver.say("c", "Hi.")
    for _ in range(19):
        driver.session.reject(InvalidMessage("bad"), driver.now)
    driver.receive(Ping())
    for _ in range(19):
        driver.receive(End("nothing"))
    assert driver.session.state is SessionState.CONNECTED
    driver.session.reject(InvalidMessage("bad"), driver.now)
    sent = driver.drain()
    assert [m.code for m in sent] == ["invalid_message", "too_many_errors", "too_many_errors"]
    assert isinstance(sent[-1], ContextFailed)
    assert driver.did[-2:] == [StopSpeech("c"), Closed(1008, "too_many_errors")]
    assert driver.receive(Ping()) == []
    assert driver.session.next_deadline() is None


def test_lost_races_and_limits_are_no_mistakes(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_contexts=1)
    driver.receive(Text("a", "A."), CancelRequest("a"), Text("b", "B."))
    driver.receive(*[Text("a", "more")] * 50, *[Text("c", "C.")] * 50)
    assert len(driver.of(ErrorMessage)) == 100
    assert driver.session.state is SessionState.CONNECTED


def test_keepalive_names_the_open_contexts(driver: Driver) -> None:
    driver.say("a", "still writ")
    assert driver.wait(2.9) == []
    assert driver.wait(0.2) == [KeepAlive(("a",))]
    assert driver.wait(6) == [KeepAlive(("a",))] * 2
    driver.receive(CancelRequest("a"))
    assert driver.wait(10) == []


def test_a_cancel_by_the_client_is_told_from_the_end_of_a_session(driver: Driver) -> None:
    driver.say("a", "Hello there. ")
    driver.say("b", "Hello there. ")
    driver.receive(CancelRequest("a"))
    driver.session.close(driver.now, 1001, "draining")
    driver.drain()
    assert [(m.context_id, m.by_client) for m in driver.of(ContextCancelled)] == [("a", True), ("b", False)]


def test_a_context_beyond_capacity_is_over_and_the_session_goes_on() -> None:
    driver = Driver(session_config(), refuse=lambda: Overloaded("full") if is_full else None)
    is_full = True
    driver.receive(Text("a", "Hel"), Text("a", "lo."), End("a"), Text("b", ""))
    codes = [(m.code, m.context_id, m.retry_after_s) for m in driver.of(ErrorMessage)]
    closed = ("context_closed", "a", None)
    assert codes == [("overloaded", "a", 1.0), closed, closed, ("overloaded", "b", 1.0)]
    is_full = False
    driver.say("c", "Hello.")
    assert [m.number for m in driver.of(ContextStarted)] == [1]
    driver.receive(CancelRequest("a"))
    assert driver.of(CancelAcknowledged)[0].state == "failed"


def test_text_that_is_refused_is_not_charged() -> None:
    charged: list[int] = []
    refusal: Overloaded | None = None
    config = session_config(max_text_chars=10, max_contexts=2)
    driver = Driver(config, refuse=lambda: refusal, charge=charged.append)
    driver.receive(Text("long", "x" * 11), Text("voiceless", "Hi.", voice="nobody"))
    driver.receive(Text("a", "Hi."), Text("a", "x" * 8), End("a"), Text("a", "more"))
    refusal = Overloaded("full")
    driver.receive(Text("b", "Hello."), Text("b", "More."))
    refusal = None
    driver.receive(Text("c", "Hi.", draft=True), Text("d", "Hello."))
    refusal = Overloaded("full")
    driver.receive(Commit("c", "x" * 11), Commit("c"))
    assert [error.code for error in driver.of(ErrorMessage)] == [
        *("text_too_long", "voice_not_found", "text_too_long", "context_closed"),
        *("overloaded", "context_closed", "too_many_contexts", "text_too_long"),
    ]
    assert [failed.code for failed in driver.of(ContextFailed)] == ["overloaded"]
    assert charged == [len("Hi."), 0]


def test_refused_contexts_are_evicted() -> None:
    has_room = False
    driver = Driver(session_config(), refuse=lambda: None if has_room else Overloaded("full"))
    for number in range(3 * MAX_REMEMBERED):
        has_room = number % (MAX_REFUSED - 1) == 0  # too many in a row would close the session
        name = "n" * 100 + str(number)
        driver.say(name, "Hello. ")
        if has_room:
            driver.receive(CancelRequest(name))
    assert driver.session.state is SessionState.CONNECTED
    assert driver.session.contexts.num_bytes <= MAX_REMEMBERED * 500


def test_a_client_whose_contexts_are_refused_again_and_again_is_closed() -> None:
    is_full = False
    driver = Driver(session_config(), refuse=lambda: Overloaded("full") if is_full else None)
    for name in "ab":  # a context that has found room makes good what was before
        is_full = True
        for number in range(MAX_REFUSED - 1):
            driver.say(f"{name}{number}", "Hello. ")
        is_full = False
        driver.say(name, "Hello. ")
    assert driver.session.state is SessionState.CONNECTED
    is_full = True
    for number in range(MAX_REFUSED):
        driver.say(f"c{number}", "Hello. ")
    assert driver.done(Closed) == [Closed(1013, "overloaded")]


# ---- what a dialect may need ---------------------------------------------------------------------------------------


def test_a_client_that_leaves_gets_the_end_first(driver: Driver) -> None:
    driver.say("c", "Hello. ")
    driver.receive(End("c"), Leave(), Text("d", "Late."))
    assert [(m.code, m.context_id) for m in driver.of(ErrorMessage)] == [("context_closed", "d")]
    driver.speak("c", 0, 4000)
    driver.finish("c")
    assert driver.done(Closed) == []  # the last second waits until it may be sent
    driver.wait(2)
    assert isinstance(driver.sent[-1], ContextDone)
    assert driver.done(Closed) == [Closed(1000, "client_left")]


def test_a_client_may_leave_at_once_or_with_nothing_open(make_driver: Callable[..., Driver]) -> None:
    busy, idle = make_driver(), make_driver()
    busy.say("c", "Hello. ")
    busy.receive(Leave(at_once=True))
    assert [m.by_client for m in busy.of(ContextCancelled)] == [False]
    assert busy.did[-2:] == [StopSpeech("c"), Closed(1000, "client_left")]
    idle.receive(Leave())
    assert idle.did == [Closed(1000, "client_left")]


def test_a_server_that_shuts_down_says_so_to_a_client_that_leaves(driver: Driver) -> None:
    driver.say("c", "Hello. ")
    driver.receive(Leave())
    driver.session.drain(driver.now)
    driver.receive(Text("d", "Late."), CancelRequest("c"))
    assert [m.code for m in driver.of(ErrorMessage)] == ["draining"]
    assert driver.done(Closed) == [Closed(1001, "draining")]


def test_a_frame_that_cannot_be_read_may_still_name_its_context(driver: Driver) -> None:
    for context_id, told in (("c", "c"), ("x" * 500, None), (None, None)):
        error = InvalidMessage("no")
        error.context_id = context_id
        driver.session.reject(error, driver.now)
        assert driver.drain()[-1].context_id == told


def test_contexts_may_be_spoken_in_turn(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(in_turn=True)
    driver.receive(Text("a", "One. "), End("a"), Text("b", "Two. "), End("b"), Text("c", "Three. "), End("c"))
    assert [(e.context_id, e.priority) for e in driver.done(StartSpeech)] == [("a", 0)]
    assert driver.done(PriorityChanged) == []
    driver.speak("a", 0, 20)
    driver.finish("a")
    driver.wait(0)
    assert [(e.context_id, e.priority) for e in driver.done(StartSpeech)] == [("a", 0), ("b", 0)]
    driver.receive(CancelRequest("b"))
    driver.wait(0)
    driver.speak("c", 0, 20)
    driver.finish("c")
    ends = [m.context_id for m in driver.sent if isinstance(m, ContextDone | ContextCancelled)]
    assert ends == ["a", "b", "c"]


def test_a_context_whose_turn_has_not_come_sets_no_deadline(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(in_turn=True, stall_s=0.5)
    driver.receive(Text("a", "One. "), Text("b", "Two. More"))
    driver.wait(0)
    assert driver.session.next_deadline() > driver.now
    driver.receive(CancelRequest("a"))
    assert driver.session.next_deadline() <= driver.now


def test_where_an_error_ends_its_context_a_refused_message_fails_its_context() -> None:
    driver = Driver(session_config(errors_end="context", max_text_chars=9))
    driver.receive(Text("a", "Hello. "), Text("b", "Yes. "))
    [failed] = driver.receive(Text("a", "there. "))
    assert (type(failed), failed.context_id, failed.code) == (ContextFailed, "a", "text_too_long")
    assert [event.context_id for event in driver.done(StopSpeech)] == ["a"]
    [late] = driver.receive(Text("a", "x"))
    assert (type(late), late.code) == (ErrorMessage, "context_closed")
    assert len(driver.session.contexts.open) == 1


def test_where_an_error_ends_its_context_a_context_that_could_not_open_never_does() -> None:
    driver = Driver(session_config(errors_end="context", max_contexts=1))
    driver.receive(Text("a", "Hello. "))
    [full] = driver.receive(Text("b", "there. "))
    assert (type(full), full.code) == (ErrorMessage, "too_many_contexts")
    driver.receive(CancelRequest("a"))
    [late] = driver.receive(Text("b", "more. "))
    assert late.code == "context_closed"


def test_where_an_error_ends_its_context_text_after_the_end_is_only_refused() -> None:
    driver = Driver(session_config(errors_end="context"))
    driver.receive(Text("a", "Hello. "), End("a"))
    [refused] = driver.receive(Text("a", "more"))
    assert (type(refused), refused.code) == (ErrorMessage, "context_closed")
    assert len(driver.session.contexts.open) == 1

"""The history of an interrupted turn keeps the words that were heard."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from livekit import rtc
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT, TimedString
from livekit.agents.voice import io
from livekit.plugins.realtime_tts import HeardOutput, keep_what_was_heard

RATE_HZ = 8000


class Loudspeaker(io.AudioOutput):
    """Takes everything; a test says how far it has played."""

    def __init__(self) -> None:
        super().__init__(label="loudspeaker", capabilities=io.AudioOutputCapabilities(pause=True), sample_rate=RATE_HZ)
        self.samples: list[int] = []
        self.num_cleared = self.num_pauses = self.num_resumes = 0
        self.on_taken: Callable[[], None] = lambda: None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.samples += np.frombuffer(frame.data, np.int16).tolist()
        self.on_taken()

    def pause(self) -> None:
        self.num_pauses += 1

    def resume(self) -> None:
        self.num_resumes += 1

    def flush(self) -> None:
        super().flush()

    def clear_buffer(self) -> None:
        self.num_cleared += 1


def frame(duration_s: float, *words: tuple[str, float, float]) -> rtc.AudioFrame:
    num_samples = int(duration_s * RATE_HZ)
    made = rtc.AudioFrame(bytes(2 * num_samples), RATE_HZ, 1, num_samples)
    made.userdata[USERDATA_TIMED_TRANSCRIPT] = [
        TimedString(text, start_time=start, end_time=end) for text, start, end in words
    ]
    return made


async def interrupted_at(
    output: HeardOutput, speaker: Loudspeaker, *frames: rtc.AudioFrame, position_s: float, shown: str | None = "shown"
) -> str | None:
    for one in frames:
        await output.capture_frame(one)
    output.flush()
    output.clear_buffer()
    speaker.on_playback_finished(playback_position=position_s, interrupted=True, synchronized_transcript=shown)
    return (await output.wait_for_playout()).synchronized_transcript


WORDS = (("Hello,", 0.0, 0.3), (" dear", 0.3, 0.5), (" listener.", 0.5, 1.0))


@pytest.fixture
def speaker() -> Loudspeaker:
    return Loudspeaker()


@pytest.fixture
def output(speaker: Loudspeaker) -> HeardOutput:
    return HeardOutput(speaker)


@pytest.mark.parametrize(
    ("position_s", "heard"),
    [
        (0.0, ""),
        (0.29, ""),
        (0.3, "Hello,"),
        (0.499, "Hello, dear"),
        (0.9, "Hello, dear"),
        (1.2, "Hello, dear listener."),
    ],
)
async def test_a_word_counts_once_its_end_was_played(
    output: HeardOutput, speaker: Loudspeaker, position_s: float, heard: str
) -> None:
    assert await interrupted_at(output, speaker, frame(1.2, *WORDS), position_s=position_s) == heard


async def test_words_of_audio_that_was_never_played_do_not_count(output: HeardOutput, speaker: Loudspeaker) -> None:
    ahead = frame(0.1, *WORDS, (" More", 1.0, 1.2))
    assert await interrupted_at(output, speaker, ahead, position_s=0.1) == ""


async def test_a_word_ends_where_the_next_one_begins_unless_there_is_a_pause(
    output: HeardOutput, speaker: Loudspeaker
) -> None:
    words = ("One", 0.0, 0.2), (" two,", 0.4, 0.8), (" three", 0.7, 0.9), (" four", 1.5, 1.8)
    await output.capture_frame(frame(2.0, *words))
    assert [end_s for _, end_s in output._pieces] == [0.4, 0.7, 0.9, 1.8]


async def test_audio_that_a_pause_threw_away_moves_the_words_with_it(output: HeardOutput, speaker: Loudspeaker) -> None:
    """0.3 s were played, 0.2 s dropped, and 0.5 s played: at 1.0 s of the audio, though 0.8 s were heard."""
    await output.capture_frame(frame(1.2, *WORDS))
    speaker.on_playback_progressed(started_at=1.0, offset=0.0, duration=0.3)
    speaker.on_playback_progressed(started_at=5.0, offset=0.5, duration=0.5)
    assert await interrupted_at(output, speaker, position_s=0.8) == "Hello, dear listener."


async def test_a_second_stream_in_one_turn_counts_from_where_it_begins(
    output: HeardOutput, speaker: Loudspeaker
) -> None:
    more = frame(1.0, (" And", 0.0, 0.4), (" more.", 0.4, 0.9))
    heard = await interrupted_at(output, speaker, frame(1.2, *WORDS), more, position_s=1.7)
    assert heard == "Hello, dear listener. And"


async def test_every_turn_begins_anew(output: HeardOutput, speaker: Loudspeaker) -> None:
    await interrupted_at(output, speaker, frame(1.2, *WORDS), position_s=1.2)
    assert await interrupted_at(output, speaker, frame(1.0, (" Next", 0.0, 0.4)), position_s=0.5) == " Next"
    assert speaker.num_cleared == 2


async def test_a_turn_that_was_heard_whole_is_left_as_it_is(output: HeardOutput, speaker: Loudspeaker) -> None:
    await output.capture_frame(frame(1.2, *WORDS))
    output.flush()
    speaker.on_playback_finished(playback_position=1.2, interrupted=False, synchronized_transcript="all of it")
    event = await output.wait_for_playout()
    assert (event.synchronized_transcript, event.interrupted) == ("all of it", False)


# ---- pauses ----------------------------------------------------------------------------------------------------------


def ramp(start: int, *words: tuple[str, float, float]) -> rtc.AudioFrame:
    """40 ms, whose samples count on from `start`."""
    num_samples = RATE_HZ // 25
    made = frame(num_samples / RATE_HZ, *words)
    counted = np.arange(start, start + num_samples).astype(np.int16)
    return rtc.AudioFrame(counted.tobytes(), RATE_HZ, 1, num_samples, userdata=made.userdata)


async def capture(output: HeardOutput, duration_s: float) -> None:
    """Give a turn of `WORDS`, all of them with the first frame, as a session does."""
    try:
        for start in range(0, round(duration_s * RATE_HZ), RATE_HZ // 25):
            await output.capture_frame(ramp(start, *(() if start else WORDS)))
    finally:
        output.flush()


async def until(condition: Callable[[], object]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.002)

    await asyncio.wait_for(poll(), 20)


def pause_at(output: HeardOutput, speaker: Loudspeaker, position_s: float, *, resume_next: bool = False) -> None:
    """Pause once the loudspeaker was given so much. `resume_next`: resume when it is given more."""

    def look() -> None:
        if len(speaker.samples) >= position_s * RATE_HZ:
            speaker.on_taken = resume if resume_next else lambda: None
            output.pause()

    def resume() -> None:
        speaker.on_taken = lambda: None
        output.resume()

    speaker.on_taken = look


@pytest.mark.parametrize(("given_s", "end_s"), [(0.04, 0.3), (0.28, 0.3), (0.32, 0.5), (0.6, 1.0), (1.08, 1.08)])
async def test_a_pause_begins_where_the_word_ends_and_nothing_is_lost(
    output: HeardOutput, speaker: Loudspeaker, given_s: float, end_s: float
) -> None:
    pause_at(output, speaker, given_s)
    giving = asyncio.create_task(capture(output, 1.2))
    await until(lambda: speaker.num_pauses)
    assert len(speaker.samples) == end_s * RATE_HZ
    assert not giving.done()
    assert speaker.num_resumes == 0
    output.resume()
    await giving
    assert speaker.num_resumes == 1
    assert speaker.samples == list(range(round(1.2 * RATE_HZ)))


async def test_a_pause_waits_until_a_busy_machine_has_played_the_word(
    output: HeardOutput, speaker: Loudspeaker
) -> None:
    """LiveKit's room output discards what it has not played when it is paused."""
    source = SimpleNamespace(queued_duration=0.15)
    speaker._audio_source, speaker._pushed_duration, speaker._source_pushed_duration = source, 0.3, 0.2  # type: ignore[attr-defined]
    pause_at(output, speaker, 0.04)
    giving = asyncio.create_task(capture(output, 1.2))
    await until(lambda: len(speaker.samples) == 0.3 * RATE_HZ)
    await asyncio.sleep(0.5)
    assert speaker.num_pauses == 0
    source.queued_duration, speaker._source_pushed_duration = 0.0, 0.3  # type: ignore[attr-defined]
    await until(lambda: speaker.num_pauses)
    output.resume()
    await giving
    assert speaker.samples == list(range(round(1.2 * RATE_HZ)))


async def test_a_turn_that_is_paused_before_its_first_word_waits(output: HeardOutput, speaker: Loudspeaker) -> None:
    output.pause()
    giving = asyncio.create_task(capture(output, 0.2))
    await until(lambda: speaker.num_pauses)
    assert speaker.samples == []
    output.resume()
    await giving
    assert speaker.samples == list(range(RATE_HZ // 5))


async def test_a_resume_before_the_word_has_ended_pauses_nothing(output: HeardOutput, speaker: Loudspeaker) -> None:
    pause_at(output, speaker, 0.04, resume_next=True)
    await capture(output, 0.4)
    assert (speaker.num_pauses, speaker.num_resumes) == (0, 1)
    assert speaker.samples == list(range(round(0.4 * RATE_HZ)))


async def test_what_was_heard_of_a_paused_turn_ends_with_the_word(output: HeardOutput, speaker: Loudspeaker) -> None:
    """LiveKit cancels the task that gives the audio, then clears the output, then resumes it."""
    pause_at(output, speaker, 0.32)
    giving = asyncio.create_task(capture(output, 1.2))
    await until(lambda: speaker.num_pauses)
    giving.cancel()
    await asyncio.gather(giving, return_exceptions=True)
    output.clear_buffer()
    speaker.on_playback_finished(playback_position=0.5, interrupted=True)
    assert (await output.wait_for_playout()).synchronized_transcript == "Hello, dear"
    next_turn = asyncio.create_task(capture(output, 0.2))
    await until(lambda: speaker.num_pauses == 2)  # still paused: not a sample of the next turn
    assert len(speaker.samples) == RATE_HZ // 2
    output.resume()
    await next_turn


async def test_an_output_that_cannot_pause_gets_all_at_once(speaker: Loudspeaker) -> None:
    speaker._capabilities = io.AudioOutputCapabilities(pause=False)
    output = HeardOutput(speaker)
    for _ in range(3):
        await asyncio.wait_for(output.capture_frame(frame(60.0)), 10)
    assert len(speaker.samples) == 180 * RATE_HZ


async def test_audio_without_words_keeps_livekits_own_account(
    output: HeardOutput, speaker: Loudspeaker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "livekit.plugins.realtime_tts"):
        assert await interrupted_at(output, speaker, frame(1.0), position_s=0.5) == "shown"
    assert "no word times" in caplog.text


def test_a_session_gets_it_once_and_needs_an_output(output: HeardOutput, speaker: Loudspeaker) -> None:
    session = SimpleNamespace(output=SimpleNamespace(audio=None))
    with pytest.raises(RuntimeError, match=r"after session\.start"):
        keep_what_was_heard(session)  # type: ignore[arg-type]
    session.output.audio = speaker
    keep_what_was_heard(session)  # type: ignore[arg-type]
    kept = session.output.audio
    keep_what_was_heard(session)  # type: ignore[arg-type]
    assert isinstance(kept, HeardOutput)
    assert session.output.audio is kept
    assert kept.sample_rate == RATE_HZ

"""The history of an interrupted turn keeps the words that were heard."""

from __future__ import annotations

import logging
from types import SimpleNamespace

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
        self.taken_s = 0.0
        self.num_cleared = 0

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        await super().capture_frame(frame)
        self.taken_s += frame.duration

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

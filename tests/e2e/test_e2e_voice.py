"""What is heard is what was written: recognised by PocketSphinx, streamed against whole-utterance decode."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from offline_model import OfflineModel
from silent_start import assert_sent_from_its_onset
from voices import DEFAULT_VOICE, VOICES

from benchmarks.recognition import Recogniser, word_error_rate
from benchmarks.sentences import held_out
from realtime_tts import TTS


def spoken(tts: TTS, text: str, **options: object) -> np.ndarray:
    return np.concatenate([*tts.generate(text, **options), np.zeros(0, np.float32)])  # type: ignore[arg-type]


def compare_with_offline(tts: TTS, recogniser: Recogniser, sentences: Sequence[str], voice: str) -> tuple[float, float]:
    """Word error rates 0…: streamed, offline."""
    offline = OfflineModel()
    streamed, whole = [], []
    for seed, text in enumerate(sentences):
        streamed.append(recogniser.transcribe(spoken(tts, text, seed=seed, voice=voice), tts.sample_rate))
        whole.append(recogniser.transcribe(offline.speak(text, seed=seed, voice=voice), tts.sample_rate))
    return word_error_rate(sentences, streamed), word_error_rate(sentences, whole)


def test_three_lines_speak_with_the_starter_voice(tts: TTS) -> None:
    samples = np.concatenate(list(tts.generate("Hello, how are you today?")))
    assert 0.8 < samples.size / tts.sample_rate < 5
    assert 0.05 < np.abs(samples).max() <= 1.0


def test_short_sentences_stream_sample_for_sample_as_they_decode_offline(tts: TTS) -> None:
    offline = OfflineModel()
    for seed, text in enumerate(("How are you this morning?", "The keys are on the table.")):
        streamed, whole = spoken(tts, text, seed=seed), offline.speak(text, seed=seed)
        assert_sent_from_its_onset(streamed, whole, tts.sample_rate)


@pytest.mark.slow
def test_a_recogniser_understands_streamed_speech_as_well_as_offline_speech(tts: TTS, recogniser: Recogniser) -> None:
    streamed, whole = compare_with_offline(tts, recogniser, held_out(12), DEFAULT_VOICE)
    assert streamed < 0.3
    assert streamed <= whole + 0.08  # twelve sentences are about a hundred words; the slow test has the real bar


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("voice", VOICES)
def test_word_error_rate_streamed_is_within_two_points_of_offline(
    tts: TTS, recogniser: Recogniser, capsys: pytest.CaptureFixture[str], voice: str
) -> None:
    streamed, whole = compare_with_offline(tts, recogniser, held_out(300), voice)
    with capsys.disabled():
        sys.stdout.write(f"\nword error rate of 300 sentences, {voice}: streamed {streamed:.3f}, offline {whole:.3f}\n")
    assert streamed <= whole + 0.02


def staggered(tts: TTS, texts: Sequence[str], voices: Sequence[str] = VOICES) -> list[np.ndarray]:
    """All texts spoken at once, begun one after the other, each with a seed and a voice of its own."""
    together: dict[int, np.ndarray] = {}

    def speak(index: int) -> None:
        threading.Event().wait(0.15 * index)
        together[index] = spoken(tts, texts[index], seed=index, voice=voices[index % len(voices)])

    threads = [threading.Thread(target=speak, args=(index,)) for index in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [together[index] for index in range(len(texts))]


@pytest.mark.slow
def test_sixteen_staggered_streams_are_each_recognised_as_their_own_text(tts: TTS, recogniser: Recogniser) -> None:
    texts = held_out(16)
    for index, audio in enumerate(staggered(tts, texts)):
        heard = recogniser.transcribe(audio, tts.sample_rate)
        rates = [word_error_rate([other], [heard]) for other in texts]
        assert int(np.argmin(rates)) == index


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_deltas_of_one_character_are_one_message(tts: TTS) -> None:
    sentences = held_out(300)
    text = (" ".join(sentences * 2))[:10_000]
    whole = spoken(tts, text, seed=3)
    pieces = spoken(tts, iter(text), seed=3, mode="clause")
    assert len(pieces) == len(whole)
    assert np.linalg.norm(pieces - whole) <= 0.02 * np.linalg.norm(whole)  # see assert_same in test_e2e_server
    assert len(whole) / tts.sample_rate > 300

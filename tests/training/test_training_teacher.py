"""The new teacher: casting, pronunciation's marks, word times, edges, and its chunks; no weights are needed."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from training.pronunciation import is_spelt
from training.script import cast, is_short
from training.speakers import (
    NAMED_SPEAKERS,
    NUM_MIXTURES,
    NUM_UNSEEN,
    SAMPLE_RATE_HZ,
    all_speakers,
    load_packs,
    mixtures,
    style,
)
from training.teacher import AFTER_S, BEFORE_S, Line, chunk_of, edges, end_of_speech, read_script, word_times
from training.teacher_model import FRAME_SAMPLES


def test_every_named_voice_reads_a_short_text_and_one_of_them_a_long_one() -> None:
    rng = random.Random(0)
    casts = [cast("good day.", rng) for _ in range(200)]
    assert all(speakers[:4] == [0, 1, 2, 3] and len(speakers) <= 5 for speakers in casts)
    long = [cast("a longer text than two words.", rng) for _ in range(2000)]
    assert all(sum(speaker < 4 for speaker in speakers) == 1 for speakers in long)
    assert sum(speakers[0] == 0 for speakers in long) / len(long) == pytest.approx(0.4, abs=0.05)
    assert sum(len(speakers) > 1 for speakers in long) / len(long) == pytest.approx(0.5, abs=0.05)
    assert is_short("yes.")
    assert not is_short("yes, of course.")


def test_mixtures_are_seeded_and_of_one_accent() -> None:
    speakers = mixtures(300, seed=3)
    assert speakers == mixtures(300, seed=3)
    everyone = all_speakers()
    assert len(everyone) == len(NAMED_SPEAKERS) + NUM_MIXTURES + NUM_UNSEEN
    assert len({(each.timbre, each.prosody, each.pitch) for each in everyone}) == len(everyone)
    for speaker in speakers:
        assert sum(weight for _, weight in speaker.timbre) == pytest.approx(1)
        assert sum(weight for _, weight in speaker.prosody) == pytest.approx(1)
        british = {name in ("emma", "isabella", "lewis") for name, _ in speaker.prosody}
        assert british == {speaker.british}
        assert 0.8 <= speaker.speed <= 1.25
        assert 0.83 <= speaker.pitch <= 1.2


def test_a_style_takes_timbre_and_prosody_from_their_packs(tmp_path: Path) -> None:
    values = {name: n + 1.0 for n, name in enumerate(sorted(_pack_files()))}
    for name, value in values.items():
        np.full((510, 256), value, np.float32).tofile(tmp_path / f"{name}.bin")
    packs = load_packs(tmp_path)
    table = style(packs, NAMED_SPEAKERS[0])
    assert table.shape == (510, 256)
    assert (table == values["af_heart"]).all()
    mixed = style(packs, mixtures(1, seed=0)[0])
    assert mixed[0, 0] != mixed[0, 255]
    (tmp_path / "af_heart.bin").unlink()
    with pytest.raises(FileNotFoundError):
        load_packs(tmp_path)


def _pack_files() -> list[str]:
    from training import speakers

    return [*speakers._PACKS.values(), *speakers._TIMBRES.values()]


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("a b c.", [True, True, True]),
        ("it is four p m.", [False, False, False, True, True]),
        ("nine a m", [False, True, True]),
        ("a dog and i.", [False, False, False, False]),
        ("well - yes", [False, False, False]),
    ],
)
def test_letters_that_are_spelt_out_are_told_from_words(text: str, spelt: list[bool]) -> None:
    words = text.split(" ")
    assert [is_spelt(words, index) for index in range(len(words))] == spelt


def test_words_begin_and_end_with_their_phones_and_not_with_marks() -> None:
    phones = "ab, cd."
    durations = np.array([10, 2, 3, 20, 1, 4, 5, 30, 7])  # silence, a, b, comma, space, c, d, stop, silence
    times = word_times(phones, durations) / FRAME_SAMPLES
    assert times.tolist() == [[10, 15], [36, 45]]


def test_edges_keep_their_margins_around_the_sound() -> None:
    audio = torch.zeros(2, 2 * SAMPLE_RATE_HZ)
    audio[0, 12_000:24_000] = 0.5 * torch.sin(torch.arange(12_000) * 0.1)
    starts, ends = edges(audio)
    assert starts[0] == 12_000 - round(BEFORE_S * SAMPLE_RATE_HZ)
    assert ends[0] == 24_000 + round(AFTER_S * SAMPLE_RATE_HZ)
    assert (starts >= 0).all()
    assert (ends <= audio.shape[1]).all()


def _sound(*parts: tuple[float, float]) -> NDArray[np.int16]:
    """Tones of (seconds, level in dB below full scale) one after the other; minus infinity is silence."""
    time_s = np.arange(SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    tones = [
        32767 * 10 ** (level_db / 20) * np.sin(800 * time_s[: round(seconds * SAMPLE_RATE_HZ)])
        for seconds, level_db in parts
    ]
    return np.concatenate(tones).astype(np.int16)


@pytest.mark.parametrize("click_db", [-30, -44, -48])
def test_a_sound_after_the_last_word_and_silence_is_cut(click_db: float) -> None:
    audio = _sound((0.5, -3), (0.3, -math.inf), (0.02, -3 + click_db), (0.1, -math.inf))
    end = end_of_speech(audio, round(0.55 * SAMPLE_RATE_HZ))
    assert end == round(0.62 * SAMPLE_RATE_HZ)
    assert not audio[round(0.51 * SAMPLE_RATE_HZ) : end].any()


@pytest.mark.parametrize("last_word_end_s", [0.64, 0.9])
def test_a_sound_within_the_last_word_is_kept(last_word_end_s: float) -> None:
    audio = _sound((0.5, -3), (0.1, -math.inf), (0.05, -20), (0.1, -math.inf))
    assert end_of_speech(audio, round(last_word_end_s * SAMPLE_RATE_HZ)) == len(audio)


def test_a_sound_that_follows_the_last_word_at_once_is_kept() -> None:
    audio = _sound((0.5, -3), (0.02, -math.inf), (0.05, -20), (0.12, -math.inf))
    assert end_of_speech(audio, round(0.45 * SAMPLE_RATE_HZ)) == len(audio)


def test_a_script_is_read_and_spoken_lines_become_a_chunk(tmp_path: Path) -> None:
    path = tmp_path / "script.tsv"
    path.write_text("0\tyes.\tjˈɛs.\n7\toh no.\tˈO nˈO.\n", encoding="utf-8")
    lines = read_script(path)
    assert lines == [Line(0, "yes.", "jˈɛs."), Line(7, "oh no.", "ˈO nˈO.")]
    spoken = [
        (1, np.ones(3, np.int16), np.array([[0, 1], [1, 3]], np.int32)),
        (0, np.zeros(2, np.int16), np.array([[0, 2]], np.int32)),
    ]
    chunk = chunk_of(lines, spoken)
    assert chunk.texts == ["oh no.", "yes."]
    assert chunk.speakers.tolist() == [7, 0]
    assert [len(part) for part in chunk.utterances()] == [3, 2]
    assert len(chunk.words) == sum(len(text.split(" ")) for text in chunk.texts)
    path.write_text("0 yes.\n")
    with pytest.raises(ValueError):
        read_script(path)

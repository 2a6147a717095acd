"""The comparison of a voice with its teacher: words in one form, figures, tables; the judges are made up."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread

from realtime_tts.model.voxcpm import VoxCPM
from training import compare, judges
from training.compare import Figures, Heard, at_rate, judge_voice, leave_one_out, read_teacher, table
from training.export import export
from training.heard_words import comparable_words, skipped_and_repeated
from training.judges import RATE_HZ, Audio, Judges, load_judges, stand_ins
from training.script import cast_all
from training.speakers import SAMPLE_RATE_HZ
from training.speech_metrics import pitch, pitch_track
from training.starter_config import starter_config, toy_config_map
from training.teacher import AudioChunk
from training.tts_training import initialise


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("the painters will be here tomorrow at eight.", "The painters will be here tomorrow at 8."),
        ("we have been waiting here for almost an hour.", "We've been waiting here for almost an hour."),
        ("it is four p m.", "It's 4 P.M."),
        ("it is not far, and i would not walk.", "It isn't far and I wouldn't walk."),
        ("it's not far.", "It isn't far."),
        ("two hundred and one dollars, okay?", "201 dollars, OK?"),
        ("you can't, you cannot.", "You can not; you can’t."),
        ("twenty-first street", "21st Street"),
    ],
)
def test_one_thing_written_in_two_ways_is_the_same_words(text: str, heard: str) -> None:
    assert comparable_words(text) == comparable_words(heard)


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("you can.", "You can't."),
        ("the bag.", "The bay."),
        ("eight.", "18."),
        ("we have been here.", "We had been here."),
        ("one hundred and a half.", "One hundred a half."),
    ],
)
def test_other_words_stay_other_words(text: str, heard: str) -> None:
    assert comparable_words(text) != comparable_words(heard)


@pytest.mark.parametrize(
    ("heard", "skipped", "repeated"),
    [
        ("he keeps his tools", 0, 0),
        ("he his tools", 1, 0),
        ("", 4, 0),
        ("he keeps keeps his tools", 0, 1),
        ("he keeps his keeps his tools", 0, 2),
        ("he keeps all his tools", 0, 0),
        ("he keeps his fools", 0, 0),
        ("he keeps his tools tools tools", 0, 2),
    ],
)
def test_skipped_and_repeated_words_are_counted(heard: str, skipped: int, repeated: int) -> None:
    assert skipped_and_repeated("he keeps his tools", heard) == (skipped, repeated)


def test_a_transcript_is_compared_after_both_sides_are_normalised() -> None:
    heard = Heard.compare(["we have eight.", "the the bag", "good day."], ["We've 8.", "The bag.", "Good good day."])
    assert heard.errors.errors.tolist() == [0, 1, 1]
    assert (heard.skipped, heard.repeated) == (1, 1)


def made_up_figures(errors: list[str], quality: list[float], lengths: list[float]) -> Figures:
    return Figures(np.array(lengths), np.array(quality), Heard.compare(["one two"] * 4, errors), np.full(4, 0.9))


def test_a_table_holds_the_difference_to_the_teacher_with_its_interval() -> None:
    teacher = made_up_figures(["one two"] * 4, [4.5] * 4, [1.0] * 4)
    model = made_up_figures(["one"] * 4, [3.0, 4.0, 4.0, 5.0], [0.79, 0.8, 1.25, 1.26])
    rows = table("emma", {"teacher": teacher, "model, 4 steps": model}).splitlines()
    assert rows[0] == "### emma"
    assert rows[3] == "| teacher | 4 | 4.50 (4.50) | 0.0 % | – | 100 % | 0.900 | 0 | 0 |"
    # each sentence has the same error: however they are resampled, the difference is the same
    assert rows[4] == "| model, 4 steps | 4 | 4.00 (3.15) | 50.0 % | +50.0 [+50.0, +50.0] | 50 % | 0.900 | 4 | 0 |"
    assert len({row.count("|") for row in rows[1:]}) == 1


def test_a_table_shows_a_dash_for_a_judge_that_is_missing() -> None:
    rows = table("emma", {"teacher": Figures(np.ones(2)), "model": Figures(np.ones(2))}).splitlines()
    assert rows[-1] == "| model | 2 | – | – | – | 100 % | – | – | – |"


def test_a_voice_is_compared_with_the_other_texts_only() -> None:
    others = leave_one_out(np.eye(3, dtype=np.float32))
    assert others[0].tolist() == pytest.approx([0, math.sqrt(0.5), math.sqrt(0.5)])
    assert leave_one_out(np.eye(1, dtype=np.float32)).tolist() == [[1]]


def tone(seconds: float, pitch_hz: float, rate_hz: int) -> np.ndarray:
    return (8000 * np.sin(2 * np.pi * pitch_hz * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.int16)


def test_each_judge_sees_each_recording_and_lengths_are_over_the_teacher_s() -> None:
    long, short = (at_rate(tone(seconds, 200, RATE_HZ), RATE_HZ, RATE_HZ) for seconds in (1.0, 0.7))

    def embed(audio: Audio) -> Audio:
        return np.array([1, 0] if len(audio) == len(long) else [0, 1], np.float32)

    fakes = Judges(quality=lambda audio: len(audio) / RATE_HZ, transcribe=lambda _: "One, two.", embed=embed)
    systems = {"teacher": [long, long], "model": [short, long]}
    figures = judge_voice(fakes, ["one two.", "one two three."], systems, "emma")["model"]
    assert figures.lengths.tolist() == pytest.approx([0.7, 1.0], abs=0.02)
    assert figures.quality is not None
    assert figures.quality.tolist() == pytest.approx([0.7, 1.0])
    assert figures.similarity is not None
    assert figures.similarity.tolist() == [0, 1]
    assert figures.heard is not None
    assert (figures.heard.errors.errors.tolist(), figures.heard.skipped) == ([0, 1], 1)


def test_a_pitch_track_has_a_value_for_each_frame_and_none_in_silence() -> None:
    samples = np.concatenate([tone(0.5, 200, RATE_HZ), np.zeros(RATE_HZ // 2, np.int16)])
    track = pitch_track(samples)
    assert np.nanmedian(track[:40]) == pytest.approx(200, rel=0.02)
    assert np.isnan(track[-40:]).all()
    assert pitch(samples).tolist() == track[~np.isnan(track)].tolist()


def test_a_stand_in_is_there_for_the_block_only_and_for_missing_modules_only() -> None:
    with stand_ins("no_such_package", "no_such_package.parts", "wave", Part=object):
        import wave

        import no_such_package.parts  # type: ignore[import-not-found]

        assert no_such_package.parts.Part is object
        assert hasattr(wave, "open")
    assert not {"no_such_package", "no_such_package.parts"} & set(sys.modules)
    assert isinstance(sys.modules["wave"], types.ModuleType)


def test_a_judge_without_its_packages_is_left_out_with_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def whisper() -> None:
        raise ModuleNotFoundError("No module named 'faster_whisper'")

    loaders = {"quality": lambda: lambda audio: 3.0, "transcribe": whisper, "embed": whisper}
    monkeypatch.setattr(judges, "LOADERS", loaders)
    found = load_judges()
    assert (found.transcribe, found.embed) == (None, None)
    assert found.quality is not None
    assert "left out: whisper (No module named 'faster_whisper')" in capsys.readouterr().err


def test_held_out_texts_are_read_by_every_named_voice_and_by_no_mixture() -> None:
    texts = ["good day.", "a longer text than two words."]
    assert cast_all(texts, seed=0, readers="named") == [[0, 1, 2, 3]] * 2
    assert cast_all(texts, seed=0, readers="training") != [[0, 1, 2, 3]] * 2
    assert cast_all(texts, seed=0, readers="unseen") == [[404], [405]]


@pytest.fixture
def teacher_audio(tmp_path: Path) -> Path:
    """Two texts of two voices, one of a mixture (speaker 7)."""
    spoken = [(0, "yes."), (2, "yes."), (0, "no."), (2, "no."), (7, "no.")]
    parts = [tone(0.7 + 0.1 * n, 200, SAMPLE_RATE_HZ) for n in range(len(spoken))]
    chunk = AudioChunk(
        audio=np.concatenate(parts),
        ends=np.cumsum([len(part) for part in parts]),
        speakers=np.array([speaker for speaker, _ in spoken], np.int32),
        texts=[text for _, text in spoken],
        words=np.zeros((len(spoken), 2), np.int32),
    )
    folder = tmp_path / "eval_audio"
    folder.mkdir()
    chunk.save(folder / "0000-00.npz")
    return folder


def test_the_teacher_s_recordings_are_those_of_named_voices_and_of_the_texts(teacher_audio: Path) -> None:
    found = read_teacher(teacher_audio, None, None)
    assert {voice: list(own) for voice, own in found.items()} == {"heart": ["yes.", "no."], "emma": ["yes.", "no."]}
    assert len(found["emma"]["no."]) == round(SAMPLE_RATE_HZ * 1.0)
    assert {voice: list(own) for voice, own in read_teacher(teacher_audio, None, 1).items()} == {
        "heart": ["yes."],
        "emma": ["yes."],
    }
    with pytest.raises(ValueError, match="no recording"):
        read_teacher(teacher_audio, {"another text."}, None)


@pytest.fixture
def toy_voice(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    model = VoxCPM(starter_config(toy=True))
    initialise(model)
    state = model.state_dict()
    vae = {name.removeprefix("vae."): tensor for name, tensor in state.items() if name.startswith("vae.")}
    tts = {name: tensor for name, tensor in state.items() if not name.startswith("vae.")}
    export(vae, tts, toy_config_map(), tmp_path / "voice")
    return tmp_path / "voice"


@pytest.mark.slow
def test_a_voice_is_compared_from_checkpoint_to_tables_and_files(
    toy_voice: Path,
    teacher_audio: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fakes = Judges(lambda _: 3.5, lambda _: "No.", lambda _: np.array([1, 0], np.float32))
    monkeypatch.setattr(compare, "load_judges", lambda: fakes)
    texts, out = tmp_path / "texts.txt", tmp_path / "out"
    texts.write_text("no.\n")
    paths = ["--voice", str(toy_voice), "--teacher-audio", str(teacher_audio), "--texts", str(texts)]
    compare.main([*paths, "--steps", "2", "3", "--cfg", "1.5", "--out", str(out)])
    printed = capsys.readouterr().out
    names = ["teacher", "teacher through the VAE", "model, 2 steps, CFG 1.5", "model, 3 steps, CFG 1.5"]
    for voice in ("heart", "emma"):
        own = printed[printed.index(f"### {voice}") :].splitlines()[3:7]
        assert [row.split(" | ")[0].removeprefix("| ") for row in own] == names
        assert all("| 1 | 3.50 (3.50) | 0.0 % |" in row and "| 1.000 | 0 | 0 |" in row for row in own)
        assert sorted(path.name for path in (out / voice).glob("*.wav")) == sorted(f"000 {name}.wav" for name in names)
        assert "000 teacher.wav\tno.\tNo.\n" in (out / voice / "texts.tsv").read_text()
        assert imread(out / voice / "spectrograms.png").shape[0] > 300
    assert (out / "tables.md").read_text().count("###") == 2

"""The random checkpoint's text head: it follows the text at one rate, also one that grows, and speech ends with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from realtime_tts.bench import following_head
from realtime_tts.bench.following_head import VOICE
from realtime_tts.bench.texts import SENTENCES, turn
from realtime_tts.contract import frames
from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.engine import Engine
from realtime_tts.model.checkpoint import LoadedModel, load_model


@pytest.fixture(scope="module")
def loaded(tiny_directory: Path) -> LoadedModel:
    return load_model(tiny_directory)


def speak(loaded: LoadedModel, begun: str, whole: str, **fields: object) -> list[frames.Message]:
    """What the engine sends for a text of which the rest comes when no more of the beginning can be spoken."""
    sent: list[frames.Message] = []
    engine = Engine(
        loaded, SchedulerConfig(num_blocks=64, max_streams=1, max_positions=1024, patch_s=0.16), sent.append
    )
    engine.post(frames.Generate("r", "c", begun, paced=False, final=begun == whole, **fields))  # type: ignore[arg-type]
    while engine.step():
        pass
    if begun != whole:
        engine.post(frames.Extend("r", whole, True))
    while engine.step():
        pass
    return sent


@pytest.mark.parametrize("num_begun", [12, 3])
@pytest.mark.parametrize("seed", range(3))
def test_every_patch_speaks_as_many_tokens(loaded: LoadedModel, num_begun: int, seed: int) -> None:
    whole = turn(12, seed)
    *patches, done = speak(loaded, " ".join(whole.split()[:num_begun]), whole, voice=VOICE)
    starts = [token.start for token in loaded.tokenizer.encode_located(whole)]
    rope = loaded.config.base.rope
    assert rope is not None
    per_patch = following_head._frequency(rope, following_head._shift(rope))
    assert isinstance(done, frames.Done)
    assert done.finish_reason == "stop"
    assert done.extensions == (num_begun < 12)
    assert abs(done.num_patches - len(starts) / per_patch) < 2
    assert not any(
        getattr(done, name) for name in ("ends_cut", "ends_continued", "babbles", "skips", "repeats", "stuck")
    )
    for number, patch in enumerate(patches):
        assert isinstance(patch, frames.Audio)
        early, late = np.interp([(number - 1) * per_patch, (number + 1) * per_patch], range(len(starts)), starts)
        assert patch.text_position is not None
        assert early - 1 <= patch.text_position <= late + 1


def test_without_its_voice_speech_ends_by_its_length(loaded: LoadedModel) -> None:
    *_, done = speak(loaded, SENTENCES[0], SENTENCES[0], max_patches=20)
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches) == ("length", 20)

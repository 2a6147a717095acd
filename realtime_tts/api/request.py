"""Arguments of `generate`, read in one place for all its variants."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar, Unpack

from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParams, given
from realtime_tts.speech.recordings import RecordingLike, VoiceRecordings
from realtime_tts.speech.text_source import TextLike

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class SpeechArguments:
    """One text and how to speak it: the arguments of `AsyncTTS.generate`, which documents them."""

    def __init__(
        self,
        text: TextLike,
        *,
        voice: str | None = None,
        reference_audio: RecordingLike | None = None,
        prompt_audio: RecordingLike | None = None,
        prompt_text: str | None = None,
        max_length_s: float | None = None,
        on_skipped: Callable[[Sequence[tuple[int, int]]], None] | None = None,
        **params: Unpack[SpeechParams],
    ) -> None:
        self.text, self.voice = text, voice
        self.recordings = VoiceRecordings(reference_audio, prompt_audio, prompt_text)
        self.params = given(**{"seed": 0, **params})
        self.max_length_s, self.on_skipped = max_length_s, on_skipped


def _with_params() -> inspect.Signature:
    """Return the signature of `SpeechArguments` with the speech parameters by name."""
    own = inspect.signature(SpeechArguments)
    named = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    named += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in SPEECH_PARAMS]
    return own.replace(parameters=named)


SpeechArguments.__signature__ = _with_params()  # type: ignore[attr-defined]


def taking(make: Callable[P, R]) -> Callable[[Callable[[S, R], T]], Callable[Concatenate[S, P], T]]:
    """Turn a method that takes the result of `make` into one that takes the arguments of `make`, for callers, type
    checkers and `help`."""

    def decorate(method: Callable[[S, R], T]) -> Callable[Concatenate[S, P], T]:
        @functools.wraps(method)
        def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return method(self, make(*args, **kwargs))

        own, theirs = inspect.signature(method), inspect.signature(make)
        owner = next(iter(own.parameters.values()))
        parameters = [owner, *theirs.parameters.values()]
        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return call

    return decorate

"""Settings of a context with the parameters that a test names."""

from __future__ import annotations

from typing import Any

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.contract.speech_params import SpeechParams, given, with_defaults
from realtime_tts.session.settings import ContextSettings

DEFAULTS = SpeechParams(seed=3, cfg=2.0, steps=6, language="en", mode="clause", sentence_pause_ms=0.0, openings="off")


def context_settings(**params: Any) -> ContextSettings:
    return ContextSettings("slt", AudioFormat(), with_defaults(DEFAULTS | given(**params)))

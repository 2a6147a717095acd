"""The list of openings that workers speak ahead."""

from __future__ import annotations

import re

from realtime_tts.contract import frames
from realtime_tts.contract.policy import ZERO_SHOT_VOICE
from realtime_tts.errors import ConfigError
from realtime_tts.session.settings import Choices
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.speech.lexicons import read_text

MAX_OPENINGS = 200  # they are spoken one after the other when a worker starts
_PIECE = re.compile(r"\s*\S+")  # as a language model writes words


def read_openings(path: str) -> list[str]:
    """Return the lines of a file of openings, without blank ones and those that begin with ``#``.

    Raises:
        ConfigError: as `read_text`; or the file has too many lines.
    """
    lines = [line.strip() for line in read_text(path, "openings").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if len(lines) > MAX_OPENINGS:
        raise ConfigError(f"{path}: at most {MAX_OPENINGS} openings, got {len(lines)}", field="openings")
    return lines


def plan_openings(lines: list[str], defaults: SpeechDefaults) -> list[frames.Opening]:
    """Return what workers speak ahead: for each line its first segment, in the texts in which a live context sends it
    word by word."""
    settings = defaults.resolve(Choices(), Choices())
    params, voice = settings.params, None if settings.voice == ZERO_SHOT_VOICE else settings.voice
    openings = []
    for line in lines:
        planner = defaults.make_planner(settings)
        segments = [
            segment for number, piece in enumerate(_PIECE.findall(line)) for segment in planner.push(piece, number)
        ]
        segments += planner.end(len(line))
        texts = [segment.text for segment in segments if segment.index == 0 and not segment.silence_ms]
        openings.append(frames.Opening(texts, voice, params["seed"], params["cfg"], params["steps"]))
    return openings

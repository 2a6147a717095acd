"""The list of openings that workers speak ahead."""

from __future__ import annotations

import re
from pathlib import Path

from realtime_tts.contract import frames
from realtime_tts.contract.policy import ZERO_SHOT_VOICE
from realtime_tts.errors import ConfigError
from realtime_tts.session.settings import Choices
from realtime_tts.speech.defaults import SpeechDefaults

MAX_OPENINGS = 200  # they are spoken one after the other when a worker starts
_MAX_BYTES = 1024 * 1024
_PIECE = re.compile(r"\s*\S+")  # as a language model writes words


def read_openings(path: str) -> list[str]:
    """Return the lines of a file of openings, without blank ones and those that begin with ``#``.

    Raises:
        ConfigError: the file cannot be read, is too large, or has too many lines.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        lines = [line.strip() for line in content.decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the openings cannot be read: {error}", field="openings") from error
    lines = [line for line in lines if line and not line.startswith("#")]
    if len(content) > _MAX_BYTES or len(lines) > MAX_OPENINGS:
        raise ConfigError(f"{path}: at most {MAX_OPENINGS} openings and {_MAX_BYTES} bytes", field="openings")
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

"""Checks of `say` and `serve` before a model is loaded, which may take minutes."""

from __future__ import annotations

import logging
from pathlib import Path

from realtime_tts.config import EngineConfig
from realtime_tts.contract.location import check_location
from realtime_tts.contract.policy import ZERO_SHOT_VOICE, ServingPolicy
from realtime_tts.errors import ConfigError
from realtime_tts.text.planner import PlannerFactory

logger = logging.getLogger(__name__)


def nothing_to_say() -> ConfigError:
    return ConfigError("there is nothing to say in this text", field="text")


def check_model(model: str, text: str | None, text_type: str, voice: str | None) -> None:
    """Check that a local checkpoint has the voice, and that some of the text can be spoken.

    A checkpoint on the hub is not checked.

    Raises:
        ConfigError: the voice is unknown, or nothing can be spoken.
        BadSSML: the text is SSML, and its beginning is malformed.
        CheckpointError: the model is unknown, or its serving.json is damaged.
    """
    directory = check_location(model)
    if directory is None:
        return
    policy = ServingPolicy.load(directory)
    voices = (*policy.voices, ZERO_SHOT_VOICE)
    if voice is not None and voice not in voices:
        known = f"the voices of this model are {', '.join(voices)}"
        message = f"there is no voice {voice!r}; {known}; a running server has voices of its own (--url)"
        raise ConfigError(message, field="voice")
    planner = PlannerFactory(policy.charset, policy.max_segment_chars, None).make("en", text_type=text_type)
    if text is not None and not planner.push(text, 0.0) and not planner.end(0.0):
        raise nothing_to_say()


def check_adapter(adapter: str) -> None:
    """Check the adapter of `say` without a server. Raises ConfigError if it is not a directory."""
    if not _is_directory("--adapter", directory := Path(adapter).expanduser()):
        raise ConfigError(
            f"--adapter: there is no directory {directory.absolute()}; an adapter has a name only on a server (--url)",
            field="adapter",
        )


def check_engine(engine: EngineConfig) -> None:
    """Check that the model and the adapters of a server exist. Warn if --adapters-dir does not.

    Raises:
        CheckpointError, ConfigError: the model or an adapter does not exist.
    """
    check_location(engine.model)
    for name, adapter in engine.adapters:
        if not _is_directory(f"--adapters: {name}", directory := Path(adapter).expanduser()):
            raise ConfigError(f"--adapters: {name}: there is no directory {directory.absolute()}", field="adapters")
    if engine.adapters_dir and not _is_directory("--adapters-dir", directory := Path(engine.adapters_dir).expanduser()):
        logger.warning("--adapters-dir: there is no directory %s yet; it has no adapters to load", directory.absolute())


def _is_directory(option: str, path: Path) -> bool:
    """Return whether there is a directory. Raises ConfigError: this user may not know, or the path is invalid."""
    try:
        return path.is_dir()
    except OSError as error:
        raise ConfigError(f"{option}: {path.absolute()} cannot be read: {error.strerror}", field="adapters") from error

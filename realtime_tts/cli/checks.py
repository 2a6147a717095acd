"""What `say` can tell before a model is loaded, which may take minutes."""

from __future__ import annotations

from realtime_tts.errors import ConfigError
from realtime_tts.text.pause_planner import PlannerFactory
from realtime_tts.workers.location import local_directory
from realtime_tts.workers.policy import ZERO_SHOT_VOICE, ServingPolicy


def nothing_to_say() -> ConfigError:
    return ConfigError("there is nothing to say in this text", field="text")


def check_model(model: str, text: str | None, text_type: str, voice: str | None) -> None:
    """Whether a checkpoint on this machine has the voice, and something to say of the text. Of one that is elsewhere
    or incomplete the loading tells.

    Raises:
        ConfigError: it has not.
        BadSSML: the text is meant to be SSML, and its beginning is malformed.
        CheckpointError: its serving.json is damaged.
    """
    directory = local_directory(model)
    if directory is None or not (directory / "config.json").is_file():
        return
    policy = ServingPolicy.load(directory)
    voices = (*policy.voices, ZERO_SHOT_VOICE)
    if voice is not None and voice not in voices:
        raise ConfigError(f"there is no voice {voice!r}; the voices are {', '.join(voices)}", field="voice")
    planner = PlannerFactory(policy.charset, policy.max_segment_chars, None).make("en", text_type=text_type)
    if text is not None and not planner.push(text, 0.0) and not planner.end(0.0):
        raise nothing_to_say()

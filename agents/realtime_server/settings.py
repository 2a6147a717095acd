"""Settings of a session: defaults, updates and checks. Pure."""

from __future__ import annotations

from realtime_server.events import PCM, Fields, Limits, Refusal, check_limits

CAN_BE_OFF = {"turn_detection", "transcription", "noise_reduction", "prompt", "tracing"}
OPENAI_VOICES = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar")
DEFAULT_LIMITS = Limits()  # type: ignore[call-arg]
TURN_DETECTION: dict[str, Fields] = {
    "server_vad": {
        **DEFAULT_LIMITS.model_dump(
            include={"threshold", "prefix_padding_ms", "silence_duration_ms", "idle_timeout_ms"}
        ),
        "create_response": True,
        "interrupt_response": True,
    },
    "semantic_vad": {"eagerness": "auto", "create_response": True, "interrupt_response": True},
}
LONGEST_PAUSE_MS = {"low": 8_000.0, "medium": 4_000.0, "high": 2_000.0, "auto": 4_000.0}


def default_settings(session_id: str, model: str, instructions: str, voice: str | None) -> Fields:
    """Return the settings that a session begins with."""
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "instructions": instructions,
        "output_modalities": ["audio"],
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": DEFAULT_LIMITS.max_output_tokens,
        "audio": {
            "input": {
                "format": {"type": PCM, "rate": 24_000},
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": {"type": "server_vad", **TURN_DETECTION["server_vad"]},
            },
            "output": {"format": {"type": PCM, "rate": 24_000}, "voice": voice or "default", "speed": 1.0},
        },
    }


def merged(fields: Fields, update: Fields) -> Fields:
    """Return a copy with an update's fields, object by object. None clears a field that can be off, and no other.

    A voice that is an object is named by its id, as in OpenAI's events about responses.
    """
    made = dict(fields)
    for name, given in update.items():
        value, before = given["id"] if name == "voice" and isinstance(given, dict) else given, made.get(name)
        if isinstance(value, dict) and isinstance(before, dict) and before.get("type") == value.get("type"):
            made[name] = merged(before, value)
        elif value is not None or name in CAN_BE_OFF:
            made[name] = value
    return made


def updated(session: Fields, update: Fields) -> Fields:
    """Return a session's settings after an update. Raises Refusal: a value is not supported."""
    made = merged(session, update)
    check_settings(made, "session")
    heard = made["audio"]["input"]
    if (detection := heard["turn_detection"]) is not None:
        given = {name: value for name, value in detection.items() if value is not None}
        known = {**TURN_DETECTION[detection["type"]], "type": detection["type"]}
        detection = {name: given.get(name, default) for name, default in known.items()}
        check_limits(detection, "session.audio.input.turn_detection")
        made["audio"] = {**made["audio"], "input": {**heard, "turn_detection": detection}}
    return made


def check_settings(settings: Fields, path: str) -> None:
    """Check a merged session. Raises Refusal: a value is not supported."""
    if settings["output_modalities"] not in (["audio"], ["text"]):
        message = f"output_modalities must be ['audio'] or ['text'], got {settings['output_modalities']!r}"
        raise Refusal("invalid_value", message, f"{path}.output_modalities")
    if any(tool.get("type") != "function" or not tool.get("name") for tool in settings["tools"] or ()):
        raise Refusal("invalid_value", "only tools of type function, with a name, are supported", f"{path}.tools")
    if isinstance(settings["tool_choice"], dict) and settings["tool_choice"].get("type") != "function":
        raise Refusal("invalid_value", "tool_choice can name a function only", f"{path}.tool_choice")
    if settings.get("prompt") is not None:
        raise Refusal("invalid_value", "stored prompts are not supported", f"{path}.prompt")
    check_limits(settings, path)
    check_limits(settings["audio"]["output"], f"{path}.audio.output")


def chat_options(settings: Fields) -> Fields:
    """Return the options of chat completions for a response with these settings."""
    options: Fields = {}
    if settings["tools"]:
        options["tools"] = [
            {"type": "function", "function": {name: tool[name] for name in tool if name != "type"}}
            for tool in settings["tools"]
        ]
        choice = settings["tool_choice"]
        is_name = isinstance(choice, dict)
        options["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}} if is_name else choice
    if settings["max_output_tokens"] != "inf":
        options["max_tokens"] = settings["max_output_tokens"]
    return options

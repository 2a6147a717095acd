"""Events of a client, checked by OpenAI's published models. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from openai.types import realtime as published
from openai.types.realtime.realtime_response_create_params import RealtimeResponseCreateParams
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic import Field as Bounded

Fields = dict[str, Any]

PCM, MULAW, ALAW = "audio/pcm", "audio/pcmu", "audio/pcma"


class Refusal(Exception):
    """Refused event. `code` and `kind` (the type of the error) are those of OpenAI where it has one for the case."""

    def __init__(self, code: str, message: str, param: str | None = None, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.code, self.message, self.param, self.kind = code, message, param, kind

    def fields(self, event_id: Any = None) -> Fields:
        """Return the `error` of an error event, or of a refused HTTP request."""
        fields = {"type": self.kind, "code": self.code, "message": self.message, "param": self.param}
        return {**fields, "event_id": event_id if isinstance(event_id, str) else None}


class SessionUpdate(BaseModel):
    type: str
    session: published.RealtimeSessionCreateRequest
    event_id: str | None = None
    model_config = ConfigDict(extra="allow")


class ItemCreate(BaseModel):
    """`item` is checked by `ITEMS`: the published union has one error for each of its nine kinds."""

    type: str
    item: Fields
    previous_item_id: str | None = None
    event_id: str | None = None
    model_config = ConfigDict(extra="allow")


class ResponseParams(RealtimeResponseCreateParams):
    """`input` is checked like `item` of `ItemCreate`; it may have references, which the published union lacks."""

    input: list[Fields] | None = None  # type: ignore[assignment]


class ResponseCreate(BaseModel):
    type: str
    response: ResponseParams | None = None
    event_id: str | None = None
    model_config = ConfigDict(extra="allow")


class ExpiresAfter(BaseModel):
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Bounded(default=600, ge=10, le=7_200)
    model_config = ConfigDict(extra="allow")


class SecretCreate(BaseModel):
    """Body of a request for a client secret."""

    expires_after: ExpiresAfter | None = None
    session: published.RealtimeSessionCreateRequest | None = None
    model_config = ConfigDict(extra="allow")


CLIENT_EVENTS: dict[str, type[BaseModel]] = {
    "session.update": SessionUpdate,
    "input_audio_buffer.append": published.InputAudioBufferAppendEvent,
    "input_audio_buffer.commit": published.InputAudioBufferCommitEvent,
    "input_audio_buffer.clear": published.InputAudioBufferClearEvent,
    "conversation.item.create": ItemCreate,
    "conversation.item.retrieve": published.ConversationItemRetrieveEvent,
    "conversation.item.delete": published.ConversationItemDeleteEvent,
    "conversation.item.truncate": published.ConversationItemTruncateEvent,
    "response.create": ResponseCreate,
    "response.cancel": published.ResponseCancelEvent,
    "output_audio_buffer.clear": published.OutputAudioBufferClearEvent,
}

ITEMS: dict[str, type[BaseModel]] = {
    "system": published.RealtimeConversationItemSystemMessage,
    "user": published.RealtimeConversationItemUserMessage,
    "assistant": published.RealtimeConversationItemAssistantMessage,
    "function_call": published.RealtimeConversationItemFunctionCall,
    "function_call_output": published.RealtimeConversationItemFunctionCallOutput,
}
CONTENT = {"input_text", "input_audio", "output_text", "output_audio"}


class Limits(BaseModel):
    """Bounds of the numbers in a session, which the published models do not have."""

    threshold: float = Bounded(0.5, ge=0, le=1)
    prefix_padding_ms: int = Bounded(300, ge=0, le=5_000)
    silence_duration_ms: int = Bounded(500, ge=100, le=10_000)
    speed: float = Bounded(1.0, ge=0.25, le=1.5)
    max_output_tokens: int | Literal["inf"] = Bounded("inf")
    idle_timeout_ms: None = None


def parse(raw: str | bytes) -> Fields:
    """Return the event of a message, checked.

    Raises:
        Refusal: it is malformed.
    """
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refusal("invalid_json", f"a message must be one JSON object: {error}") from error
    if not isinstance(event, dict):
        raise Refusal("invalid_json", f"a message must be one JSON object, got {type(event).__name__}")
    return event


def check(event: Fields) -> None:
    """Check an event's fields. Raises Refusal: one is unknown, missing or invalid."""
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in CLIENT_EVENTS:
        raise Refusal("invalid_value", f"unknown event type {_shown(kind)}; known: {', '.join(CLIENT_EVENTS)}", "type")
    _check(CLIENT_EVENTS[kind], event, "")


def check_secret(fields: Fields) -> ExpiresAfter:
    """Check a request for a client secret. Raises Refusal: a field is unknown or invalid."""
    _check(SecretCreate, fields, "")
    return SecretCreate.model_validate(fields).expires_after or ExpiresAfter()


def check_item(item: Fields, path: str = "item") -> None:
    """Check an item of a conversation. Raises Refusal: it is unknown or malformed."""
    kind = item.get("role") if item.get("type") == "message" else item.get("type")
    if not isinstance(kind, str) or kind not in ITEMS:
        raise Refusal(
            "invalid_value", f"an item of type {_shown(kind)} is not supported; known: {', '.join(ITEMS)}", path
        )
    _check(ITEMS[kind], item, path)
    for index, part in enumerate(item.get("content", ())):
        if part.get("type") not in CONTENT:
            message = (
                f"content of type {_shown(part.get('type'))} is not supported; known: {', '.join(sorted(CONTENT))}"
            )
            raise Refusal("invalid_value", message, f"{path}.content[{index}].type")


def check_limits(fields: Mapping[str, Any], path: str) -> None:
    """Check numbers that occur in a part of a session. Raises Refusal: one is out of bounds."""
    known = {name: fields[name] for name in Limits.model_fields if fields.get(name) is not None}
    _check(Limits, known, path)


def _check(model: type[BaseModel], fields: Mapping[str, Any], path: str) -> None:
    try:
        made = model.model_validate(fields)
    except ValidationError as errors:
        error = min(errors.errors(include_url=False), key=lambda error: error["type"] == "literal_error")
        param = _joined(path, *(part for part in error["loc"] if not (isinstance(part, str) and part[:1].isupper())))
        code = {"missing": "missing_required_parameter", "extra_forbidden": "unknown_parameter"}.get(error["type"])
        code = code or ("invalid_type" if error["type"].endswith("_type") else "invalid_value")
        got = "" if error["type"] == "missing" else f", got {_shown(error['input'])}"
        raise Refusal(code, f"{param}: {error['msg']}{got}", param) from errors
    for unknown in _unknown(made, path):
        raise Refusal("unknown_parameter", f"unknown parameter {unknown}", unknown)


def _unknown(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (_joined(path, name) for name in value.model_extra or ())
        for name in value.model_fields_set & type(value).model_fields.keys():
            yield from _unknown(getattr(value, name), _joined(path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _unknown(part, _joined(path, index))


def _joined(path: str, *parts: str | int) -> str:
    for part in parts:
        path = f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}" if path else str(part)
    return path


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."

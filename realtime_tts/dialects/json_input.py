"""Untrusted JSON: a reader that is limited in size and depth, and declared bodies with errors that name the field.

Refused: input that is too large, not UTF-8, not JSON, not an object, or nested too deeply; NaN; infinities and integers
beyond 64 bits in a declared field. Tolerated: unknown fields, and repeated keys (the last one counts). Lone surrogates
become U+FFFD, so that all text can be encoded later.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model, model_validator
from pydantic_core import ErrorDetails, from_json

from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParams, given
from realtime_tts.errors import InvalidMessage, InvalidRequest, UnsupportedAudioFormat

MAX_NAME_CHARS = 128  # of a field name in an error
_INTEGER_LIMIT = 2**63  # range of messages between processes, databases and counters
# Other escapes, a pair of surrogates, a lone one (the group), or the beginning of any other \u.
_ESCAPE = re.compile(rb"(?s)(?:\\[^u])+|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\(u[dD][89a-fA-F][0-9a-fA-F]{2})|\\u")
# By pydantic's error type, where its own text names a Python type or is no sentence about the field.
_PROBLEMS = {
    "missing": "is missing",
    "extra_forbidden": "is not a field of this request",
    "dict_type": "must be an object",
    "model_type": "must be an object",
}
_DIGITS = re.compile("[0-9]{1,20}")
_SUBJECT = re.compile(r"^\w+ should\b")  # of pydantic's texts: "Input should be a valid string"

E = TypeVar("E", bound=InvalidRequest)
T = TypeVar("T")


dump_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def load_object(frame: str | bytes, max_bytes: int) -> dict[str, object]:
    """Parse one JSON object.

    Raises:
        InvalidMessage: the input is refused, see the top of this file.
    """
    content = frame if isinstance(frame, bytes) else frame.encode(errors="replace")
    if len(content) > max_bytes:
        raise InvalidMessage(f"a message has at most {max_bytes} bytes")
    if b"\\ud" in content or b"\\uD" in content:
        content = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], content)
    try:
        value = from_json(content, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidMessage(f"not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidMessage("a message is a JSON object")
    return value


def _whole(value: object) -> object:
    """Return a float without a fraction as an integer: some languages have no integers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Integer = Annotated[int, BeforeValidator(_whole), Field(ge=-_INTEGER_LIMIT, lt=_INTEGER_LIMIT)]


class Body(BaseModel):
    """Declared JSON object of a client. A member that is null counts as absent; unknown ones are tolerated."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def parse(cls, frame: str | bytes) -> Self:
        """Parse a JSON object, whose size is limited already. Raises InvalidMessage."""
        return cls.of(load_object(frame, len(frame)))

    @classmethod
    def of(cls, values: Mapping[str, object], prefix: str = "") -> Self:
        """Return the declared members of an object, and with `prefix` before their names in errors.

        Raises:
            InvalidMessage: a missing member, or one of another type; `field` has its dotted name.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise invalid(InvalidMessage, error.errors(include_url=False)[0], prefix=prefix) from None

    def given(self) -> dict[str, Any]:
        """Return the declared members that the client has sent."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    def unknown_names(self, prefix: str = "") -> Iterator[str]:
        """Yield the dotted names of members that are not declared, including those of objects."""
        for name in self.model_extra or ():
            yield prefix + name
        for name, value in self.given().items():
            if isinstance(value, Body):
                yield from value.unknown_names(f"{prefix}{name}.")


_TYPES: dict[object, object] = {int: Integer, float: float, str: str, Mapping: dict[str, str]}


@functools.cache
def _params_body(*names: str) -> type[Body]:
    fields: dict[str, Any] = {name: (_TYPES[SPEECH_PARAMS[name].type], None) for name in names}
    return create_model("Params", __base__=Body, **fields)


def read_params(values: Mapping[str, object], names: Iterable[str] = SPEECH_PARAMS, prefix: str = "") -> SpeechParams:
    """Return the speech parameters among the members of an object. Their bounds are not checked here.

    Raises:
        InvalidMessage: a value of another type; `prefix` is before the names in errors.
    """
    return given(**_params_body(*names).of(values, prefix).given())


def required(value: T | None, name: str) -> T:
    """Return a member that only some messages must have. Raises InvalidMessage."""
    if value is None:
        raise InvalidMessage(f"{name} is missing", field=name)
    return value


def check_choice(
    value: object, known: Collection[str], field: str, kind: type[InvalidRequest] = UnsupportedAudioFormat
) -> None:
    """Raises an error of this kind: the value is not among the known ones."""
    if value not in known:
        raise kind(f"{field} must be one of {', '.join(known)}, got {repr(value)[:64]}", field=field)


def query_integer(query: Mapping[str, str], name: str) -> int | None:
    """Return a number of a URL's query; None if it is missing or empty. Raises InvalidRequest: it is no number."""
    digits = query.get(name, "")
    if digits and not _DIGITS.fullmatch(digits):
        raise InvalidRequest(f"{name} must be a whole number", field=name)
    return int(digits) if digits else None


def invalid(kind: type[E], error: ErrorDetails, *, skipped: int = 0, prefix: str = "") -> E:
    """Return pydantic's error as a typed one, without the value that was sent; `skipped`: parts of its place."""
    field = prefix + ".".join(str(part)[:MAX_NAME_CHARS] for part in error["loc"][skipped:])
    subject = field or "the body"
    problem = _PROBLEMS.get(error["type"]) or _SUBJECT.sub("must", error["msg"])
    return kind(f"{subject}{' ' if problem[0].islower() else ': '}{problem}", field=field or None)

"""Dataclasses from parsed JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

# For `pydantic.with_config`: values have the declared types and numbers are finite; unknown keys are errors.
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
T = TypeVar("T")


def dataclass_of(cls: type[T], document: object, fail: Callable[[str, str], Exception]) -> T:
    """Return an instance of a dataclass with the fields of a parsed document, checked as its annotations and
    `with_config` say.

    Raises:
        fail(field, problem): the document is not an object (field ""), a key is unknown or missing, or a value is
            invalid.
    """
    try:
        # As JSON again: pydantic's strict mode makes a dataclass of an object and a tuple of a list from JSON only.
        return TypeAdapter(cls).validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part)[:64] for part in first["loc"])
        if first["type"] == "unexpected_keyword_argument":
            raise fail(field, f"unknown key {field!r}") from error
        problem = first["msg"].replace("Input should", "must").replace("Field required", "is missing")
        raise fail(field, f"{field or 'the document'} {problem}") from error

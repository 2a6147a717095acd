"""Fields of a dataclass from a parsed JSON object. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "str | None": (str, type(None)),
    "float | None": (int, float, type(None)),
    "tuple[str, ...]": (list, tuple),
}


def typed_fields(cls: type, raw: object, fail: Callable[[str, str], Exception]) -> dict[str, Any]:
    """Return a copy of `raw`, checked for known keys and for scalars and lists of strings of their declared type.

    Raises:
        fail(key, problem): a key is unknown or its value has another type; key "": `raw` is no object.
    """
    if not isinstance(raw, Mapping):
        raise fail("", "not an object")
    declared = {field.name: str(field.type) for field in dataclasses.fields(cls)}
    fields: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in declared:
            raise fail(str(key)[:64], f"unknown key {str(key)[:64]!r}")
        kind, types = declared[key], _TYPES.get(declared[key])
        is_wrong = types and (not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"))
        is_list = types == (list, tuple)
        if is_wrong or (is_list and not all(isinstance(item, str) for item in value)):
            wanted = "a list of strings" if is_list else kind
            raise fail(key, f"{key} must be {wanted}, not {type(value).__name__}")
        fields[key] = tuple(value) if is_list else float(value) if kind == "float" else value
    return fields

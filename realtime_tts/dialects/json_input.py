"""Parser for untrusted JSON: limited in size and depth, with errors that name the field.

Refused: input that is too large, not UTF-8, not JSON, not an object, or nested too deeply; NaN and infinities (also by
overflow); integers beyond 20 digits, and beyond 64 bits in an integer field. Tolerated: unknown fields, and repeated
keys (the last one counts). Lone surrogates become U+FFFD, so that all text can be encoded later.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from realtime_tts.errors import InvalidMessage

MAX_DEPTH = 8
MAX_INTEGER_DIGITS = 20
_INTEGER_LIMIT = 2**63  # range of messages between processes, databases and counters
MAX_NAME_CHARS = 128  # of a field name in an error
# An unterminated string matches up to the end: every string matches at the first try, so the scan is linear.
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_ONE_KIND = bytes.maketrans(b"{}", b"[]")  # the parser checks that they match
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_SURROGATE = re.compile("[\ud800-\udfff]")


def load_object(frame: str | bytes, max_bytes: int) -> Fields:
    """Parse one JSON object.

    Raises:
        InvalidMessage: the input is refused, see the top of this file.
    """
    text = _as_text(frame, max_bytes)
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(text):
        raise InvalidMessage(f"JSON nested deeper than {MAX_DEPTH} levels")
    try:
        value = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse_constant)
    except ValueError as error:
        raise InvalidMessage("not valid JSON") from error
    if not isinstance(value, dict):
        raise InvalidMessage("a message is a JSON object")
    return Fields(value)


class Fields:
    """Typed access to the members of an object. A member that is null counts as absent.

    Every method raises `InvalidMessage`, with the dotted name as `field`, for a value of another type.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self._values = values
        self._prefix = prefix
        self._known: set[str] = set()  # names of the members that were read
        self._objects: dict[str, Fields] = {}  # the objects among the members that were read

    def text(self, name: str) -> str:
        """Return a required string."""
        value = self.optional_text(name)
        return self._fail(name, "is missing") if value is None else value

    def optional_text(self, name: str) -> str | None:
        value = self._get(name)
        if value is None:
            return None
        return replace_surrogates(value) if isinstance(value, str) else self._fail(name, "must be a string")

    def optional_plain_text(self, name: str) -> str | None:
        """Return a string without replacing surrogates, for input that is not text (megabytes of base64)."""
        value = self._get(name)
        return value if value is None or isinstance(value, str) else self._fail(name, "must be a string")

    def number(self, name: str) -> float:
        """Return a required finite number."""
        value = self.optional_number(name)
        return self._fail(name, "is missing") if value is None else value

    def optional_number(self, name: str) -> float | None:
        value = self._get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fail(name, "must be a number")
        return float(value) if math.isfinite(value) else self._fail(name, "must be a finite number")

    def optional_integer(self, name: str) -> int | None:
        """Return an integer of 64 bits. A float without a fraction is accepted: some languages have no integers."""
        value = self._get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fail(name, "must be an integer")
        if not -_INTEGER_LIMIT <= value < _INTEGER_LIMIT:
            self._fail(name, "must be an integer of 64 bits at most")
        return int(value) if value == int(value) else self._fail(name, "must be an integer")

    def optional_boolean(self, name: str) -> bool | None:
        value = self._get(name)
        return value if value is None or isinstance(value, bool) else self._fail(name, "must be true or false")

    def optional_object(self, name: str) -> Fields | None:
        value = self._get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._fail(name, "must be an object")
        if name not in self._objects:
            self._objects[name] = Fields(value, f"{self._prefix}{name}.")
        return self._objects[name]

    def optional_objects(self, name: str) -> list[Fields] | None:
        """Return the elements of a list of objects."""
        value = self._get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self._fail(name, "must be a list of objects")
        return [Fields(each, f"{self._prefix}{name}.") for each in value]

    def strings(self, name: str) -> list[str]:
        """Return the elements of a required list of strings."""
        value = self._get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self._fail(name, "must be a list of strings")
        return [replace_surrogates(each) for each in value]

    def optional_texts(self, name: str) -> dict[str, str] | None:
        """Return the members of an object of strings."""
        fields = self.optional_object(name)
        return None if fields is None else {replace_surrogates(each): fields.text(each) for each in fields.names()}

    def optional_text_or_object(self, name: str) -> str | Fields | None:
        value = self._get(name)
        return self.optional_object(name) if isinstance(value, dict) else self.optional_text(name)

    def names(self) -> Iterator[str]:
        return iter(self._values)

    def expect(self, *names: str) -> None:
        """Mark these members as known, although they are not read."""
        self._known.update(names)

    def unknown_names(self) -> Iterator[str]:
        """Yield the dotted names of members that were neither read nor expected, including those of objects."""
        for name, value in self._values.items():
            if value is not None and name not in self._known:
                yield self._prefix + name
        for each in self._objects.values():
            yield from each.unknown_names()

    def _get(self, name: str) -> Any:
        self._known.add(name)
        return self._values.get(name)

    def _fail(self, name: str, problem: str) -> NoReturn:
        field = replace_surrogates(self._prefix + name[:MAX_NAME_CHARS])
        raise InvalidMessage(f"{field} {problem}", field=field)


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate by U+FFFD; the length stays the same, so that offsets stay valid."""
    return _SURROGATE.sub("\ufffd", text)


def _as_text(frame: str | bytes, max_bytes: int) -> str:
    too_large = InvalidMessage(f"a message has at most {max_bytes} bytes")
    if len(frame) > max_bytes:
        raise too_large
    if isinstance(frame, bytes):
        try:
            return frame.decode()
        except UnicodeDecodeError as error:
            raise InvalidMessage("not UTF-8") from error
    if len(frame) * 4 > max_bytes and len(frame.encode(errors="replace")) > max_bytes:
        raise too_large
    return frame


def _is_too_deep(text: str) -> bool:
    """Return whether brackets outside of strings nest too deeply or do not match: the parser is recursive."""
    outside = _STRING.sub("", text).encode(errors="replace")
    brackets = outside.translate(_ONE_KIND, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        brackets = brackets.replace(b"[]", b"")  # the innermost pairs
    return bool(brackets)


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise InvalidMessage(f"integer of more than {MAX_INTEGER_DIGITS} digits")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidMessage("number out of range")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidMessage(f"{name} is not a number")

"""The tables of docs/protocol/native.md have the messages, fields and errors that the native dialect has."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from realtime_tts.dialects.native import _NOT_SENT, _PARSERS, _TYPES, NativeDialect
from realtime_tts.errors import ERROR_CLASSES, InvalidMessage
from realtime_tts.session.messages import ContextDone, SpeechReport, Words

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol" / "native.md").read_text(encoding="utf-8")
NOT_RECEIVED = {"dictionaries"}  # of other dialects
VALID = {"played_ms": 1.0}


def table(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1]
    rows = section[section.index("|---") :].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


CLIENT = {name: cell for (row, cell, *_) in table("Client → server") for name in names(row)}
SERVER = {name: names(cell) for (row, cell, *_) in table("Server → client") for name in names(row)}
ERRORS = table("Errors")


def parse(kind: str, **fields: object) -> Any:
    (message,) = NativeDialect().parse(json.dumps({"type": kind, **fields}), 10_000)
    return message


def test_all_messages_are_documented() -> None:
    assert set(CLIENT) == set(_PARSERS)
    assert set(SERVER) == set(_TYPES.values())


@pytest.mark.parametrize("kind", CLIENT)
def test_a_client_message_has_the_fields_of_its_row(kind: str) -> None:
    required = {name: VALID.get(name, "x") for name in re.findall(r"\*\*`([^`]+)`\*\*", CLIENT[kind])}
    message = parse(kind, **required)
    assert {field.name for field in dataclasses.fields(message)} - NOT_RECEIVED == set(names(CLIENT[kind]))
    for name in required:
        with pytest.raises(InvalidMessage) as caught:
            parse(kind, **{key: value for key, value in required.items() if key != name})
        assert caught.value.field == name
    for name in names(CLIENT[kind]):
        with pytest.raises(InvalidMessage) as caught:
            parse(kind, **{**required, name: [[]]})
        assert caught.value.field == name


@pytest.mark.parametrize(("message", "kind"), _TYPES.items(), ids=_TYPES.values())
def test_a_server_message_has_the_fields_of_its_row(message: type[Any], kind: str) -> None:
    sent = [field.name for field in dataclasses.fields(message) if field.name not in _NOT_SENT]
    derived = {Words: ["timing"], ContextDone: [*SpeechReport._fields]}
    assert sorted(SERVER[kind]) == sorted(sent + derived.get(message, []))


def test_errors_have_the_status_and_the_retryability_of_their_rows() -> None:
    assert len(ERRORS) > 10
    for codes, statuses, retryable, *_ in ERRORS:
        for code in names(codes):
            assert str(ERROR_CLASSES[code].http_status) in statuses, code
            is_retryable = retryable.startswith("yes") or f"{ERROR_CLASSES[code].http_status}: yes" in retryable
            assert ERROR_CLASSES[code].retryable == is_retryable, code

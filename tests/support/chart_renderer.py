"""Renders our Helm chart as far as its templates go: values, `quote`, `add`, `nindent`, `toYaml`, `sha256sum`, `if`,
`not` and `range`.

Helm itself is a program of its own, and not needed to test what a chart amounts to; where it is there, a test compares
the two. What is not known here is an error.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml


def render(chart: Path, release: str, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of all templates. `changes`: values other than the chart's, as a file of values has them."""
    values = _merged(yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8")), changes)
    scope = {"Values": values, "Release": {"Name": release}}
    found: list[dict[str, Any]] = []
    for path in sorted((chart / "templates").glob("*.yaml")):
        text = _Renderer(chart, path.read_text(encoding="utf-8")).render(scope)
        found += [document for document in yaml.safe_load_all(text) if document]
    return found


def _merged(values: Any, changes: Any) -> Any:
    """As Helm does it: maps into one another, all else in place of what was there."""
    if not (isinstance(values, Mapping) and isinstance(changes, Mapping)):
        return changes
    return {**values, **{name: _merged(values.get(name), change) for name, change in changes.items()}}


class _Renderer:
    def __init__(self, chart: Path, text: str) -> None:
        self._chart = chart
        self._parts = self._split(text)

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        """(text, action) in turn; the blanks and the line break before `{{-` are left out."""
        begin = 0
        for match in re.finditer(r"\{\{(-?)\s*(.*?)\s*\}\}", text):
            before = text[begin : match.start()]
            yield before.rstrip() if match.group(1) else before, match.group(2)
            begin = match.end()
        yield text[begin:], ""

    def render(self, scope: Mapping[str, Any]) -> str:
        return self._block(list(self._parts), [0], scope)

    def _block(self, parts: list[tuple[str, str]], at: list[int], scope: Mapping[str, Any]) -> str:
        text = ""
        while at[0] < len(parts):
            before, action = parts[at[0]]
            at[0] += 1
            text += before
            if action == "end":
                return text
            if action.startswith("if "):
                inner = self._block(parts, at, scope)
                condition = action[3:].removeprefix("not ")
                text += inner if bool(self._value(condition, scope)) != action.startswith("if not ") else ""
            elif match := re.fullmatch(r"range (\$\w+), (\$\w+) := (\S+)", action):
                begin = at[0]
                items = sorted(self._value(match.group(3), scope).items())
                assert items
                for name, value in items:
                    at[0] = begin
                    text += self._block(parts, at, {**scope, match.group(1): name, match.group(2): value})
            elif action:
                text += str(self._value(action, scope))
        return text

    def _value(self, expression: str, scope: Mapping[str, Any]) -> Any:
        first, *pipes = [part.split() for part in expression.split(" | ")]
        value = self._call(first, scope)
        for name, *arguments in pipes:
            if name == "quote":
                value = json.dumps(str(value))
            elif name == "sha256sum":
                value = hashlib.sha256(value.encode()).hexdigest()
            elif name == "nindent":
                value = "\n" + "\n".join(" " * int(arguments[0]) + line for line in str(value).splitlines())
            else:
                raise ValueError(f"no {name} here")
        return value

    def _call(self, words: list[str], scope: Mapping[str, Any]) -> Any:
        match words:
            case [".Files.Get", name]:
                return (self._chart / json.loads(name)).read_text(encoding="utf-8")
            case ["toYaml", name]:
                return yaml.safe_dump(self._look_up(name, scope)).strip()
            case ["add", name, number]:
                return self._look_up(name, scope) + int(number)
            case [name]:
                return self._look_up(name, scope)
        raise ValueError(f"no {' '.join(words)} here")

    def _look_up(self, name: str, scope: Mapping[str, Any]) -> Any:
        if name.startswith("$"):
            return scope[name]
        value: Any = scope
        for part in name.removeprefix(".").split("."):
            value = value[part]
        return value

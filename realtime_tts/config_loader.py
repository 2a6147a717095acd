"""Merge flags, environment and a TOML file into the settings of `realtime_tts.config`. Pure."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from realtime_tts.config import ENV_PREFIX, Setting, Settings, build, settings_table
from realtime_tts.errors import ConfigError

# Variables of the command line itself; they are not settings.
OTHER_ENV_NAMES = frozenset({"CONFIG", "API_KEY", "URL"})
# Upper bound of settings without their own: larger integers and times would overflow where they are used.
_MAX_NUMBER = 1e12


def load_settings(
    flags: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    toml_text: str = "",
    toml_name: str = "the config file",
) -> Settings:
    """Return the merged settings: flags override the environment, then a TOML file, then the defaults.

    Args:
        flags: values by setting name; None: not given.
        env: the process environment; only names with the prefix are read.
        toml_text: content of the TOML file.
        toml_name: its name for messages.

    Raises:
        ConfigError: an unknown name, or a value of the wrong type or out of bounds; the message names its source.
    """
    table = {row.name: row for row in settings_table()}
    values: dict[str, Any] = {}
    for source, name, raw in (
        *_from_toml(toml_text, toml_name, table),
        *_from_env(env or {}),
        *_from_flags(flags or {}),
    ):
        if name not in table:
            raise ConfigError(f"{source} is not a setting{_suggestion(name, table)}", field=name)
        values[name] = _convert(table[name], raw, source)
    return build(Settings, values)


_Entry = tuple[str, str, Any]  # source, setting name, raw value


def _from_flags(flags: Mapping[str, Any]) -> Iterator[_Entry]:
    for name, value in flags.items():
        if value is not None:
            yield "--" + name.replace("_", "-"), name, value


def _from_env(env: Mapping[str, str]) -> Iterator[_Entry]:
    for key, value in env.items():
        name = key.removeprefix(ENV_PREFIX)
        if name != key and name not in OTHER_ENV_NAMES:
            yield f"environment variable {key}", name.lower(), value


def _from_toml(text: str, file: str, table: Mapping[str, Setting]) -> Iterator[_Entry]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error
    sections = {row.section for row in table.values()}
    pending = [(section, entries) for section, entries in document.items()]
    for section, entries in pending:
        if section not in sections or not isinstance(entries, dict):
            known = ", ".join(f"[{name}]" for name in sorted(sections))
            raise ConfigError(f"{file} may hold the tables {known}, not {section!r}", field=section)
        for name, value in entries.items():
            if f"{section}.{name}" in sections:
                pending.append((f"{section}.{name}", value))
                continue
            if name in table and table[name].section != section:
                raise ConfigError(f"{file}: {name!r} belongs into [{table[name].section}], not [{section}]", field=name)
            yield f"{name!r} in [{section}] of {file}", name, value


def _suggestion(name: str, table: Mapping[str, Setting]) -> str:
    close = difflib.get_close_matches(name, table, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _convert(row: Setting, raw: Any, source: str) -> Any:
    try:
        if isinstance(raw, bool) and row.type is not bool:
            raise TypeError
        value = TypeAdapter(row.type).validate_python(KINDS[row.type].prepare(raw))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: {raw!r} is not {KINDS[row.type].noun}", field=row.name) from error
    if row.choices and value not in row.choices:
        raise ConfigError(f"{source}: {raw!r} is none of {', '.join(row.choices)}", field=row.name)
    # Comparisons with NaN are false, so the valid case is tested.
    if row.minimum is not None and not value >= row.minimum:
        raise ConfigError(f"{source}: {raw!r} is below {row.minimum:g}", field=row.name)
    maximum = _MAX_NUMBER if row.maximum is None and row.type in (int, float) else row.maximum
    if maximum is not None and not value <= maximum:
        raise ConfigError(f"{source}: {raw!r} is above {maximum:g}", field=row.name)
    return value


def _strings(raw: Any) -> tuple[str, ...]:
    """Split a string, or each of several, at commas. Raises TypeError for other values."""
    items = (raw if isinstance(raw, str) else ",".join(raw)).split(",")
    return tuple(stripped for item in items if (stripped := item.strip()))


def _pairs(raw: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the entries of a table, or of strings ``name=value``. Raises ValueError for a repeated name."""
    if isinstance(raw, dict):
        pairs = tuple(raw.items())
    elif isinstance(raw, tuple) and all(isinstance(item, tuple) for item in raw):
        pairs = raw
    else:
        pairs = tuple((name.strip(), value.strip()) for name, value in (item.split("=") for item in _strings(raw)))
    if not all(name and value for name, value in pairs) or len(dict(pairs)) < len(pairs):
        raise ValueError
    return pairs


class Kind(NamedTuple):
    """Type of settings: what a value is, how help writes one, and what makes one of what is given."""

    noun: str
    metavar: str | None
    prepare: Callable[[Any], Any] = lambda raw: raw


KINDS: dict[Any, Kind] = {
    str: Kind("text", "TEXT"),
    int: Kind("a whole number", "N"),
    float: Kind("a number", "X"),
    bool: Kind("true or false", None, lambda raw: raw.strip() if isinstance(raw, str) else raw),
    tuple[str, ...]: Kind("a list of text", "A,B", _strings),
    tuple[tuple[str, str], ...]: Kind("a list of different names with values, as A=B,C=D", "A=B,C=D", _pairs),
}

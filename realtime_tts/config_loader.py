"""Merge flags, environment and a TOML file into the settings of `realtime_tts.config`. Pure."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from realtime_tts.config import ENV_PREFIX, Setting, Settings, build, settings_table
from realtime_tts.errors import ConfigError

# Variables of the command line itself; they are not settings.
OTHER_ENV_NAMES = frozenset({"CONFIG", "API_KEY", "URL"})
# Upper bound of settings without their own: larger integers and times would overflow where they are used.
_MAX_NUMBER = 1e12
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})


def load_settings(
    flags: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None, toml_text: str = ""
) -> Settings:
    """Return the merged settings: flags override the environment, then a TOML file, then the defaults.

    Args:
        flags: values by setting name; None: not given.
        env: the process environment; only names with the prefix are read.
        toml_text: content of the TOML file.

    Raises:
        ConfigError: an unknown name, or a value of the wrong type or out of bounds; the message names its source.
    """
    table = {row.name: row for row in settings_table()}
    values: dict[str, Any] = {}
    for source, name, raw in (*_from_toml(toml_text, table), *_from_env(env or {}, table), *_from_flags(flags or {})):
        if name not in table:
            raise ConfigError(f"{source} is not a setting{_suggestion(name, table)}", field=name)
        values[name] = _convert(table[name], raw, source)
    return build(Settings, values)


_Entry = tuple[str, str, Any]  # source, setting name, raw value


def _from_flags(flags: Mapping[str, Any]) -> Iterator[_Entry]:
    for name, value in flags.items():
        if value is not None:
            yield "--" + name.replace("_", "-"), name, value


def _from_env(env: Mapping[str, str], table: Mapping[str, Setting]) -> Iterator[_Entry]:
    for key, value in env.items():
        name = key.removeprefix(ENV_PREFIX)
        if name != key and name not in OTHER_ENV_NAMES:
            yield f"environment variable {key}", name.lower(), value


def _from_toml(text: str, table: Mapping[str, Setting]) -> Iterator[_Entry]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the config file is not TOML: {error}") from error
    sections = {row.section for row in table.values()}
    pending = [(section, entries) for section, entries in document.items()]
    for section, entries in pending:
        if section not in sections or not isinstance(entries, dict):
            known = ", ".join(f"[{name}]" for name in sorted(sections))
            raise ConfigError(f"the config file may hold the tables {known}, not {section!r}", field=section)
        for name, value in entries.items():
            if f"{section}.{name}" in sections:
                pending.append((f"{section}.{name}", value))
                continue
            if name in table and table[name].section != section:
                raise ConfigError(f"{name!r} belongs into [{table[name].section}], not [{section}]", field=name)
            yield f"{name!r} in [{section}] of the config file", name, value


def _suggestion(name: str, table: Mapping[str, Setting]) -> str:
    close = difflib.get_close_matches(name, table, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _convert(row: Setting, raw: Any, source: str) -> Any:
    parse, kind = _TYPES[row.type]
    try:
        value = parse(raw)
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise ConfigError(f"{source}: {raw!r} is not {kind}", field=row.name) from error
    if row.choices and not set(value if isinstance(value, tuple) else (value,)) <= set(row.choices):
        raise ConfigError(f"{source}: {raw!r} is none of {', '.join(row.choices)}", field=row.name)
    # Comparisons with NaN are false, so the valid case is tested.
    if row.minimum is not None and not value >= row.minimum:
        raise ConfigError(f"{source}: {raw!r} is below {row.minimum:g}", field=row.name)
    maximum = _MAX_NUMBER if row.maximum is None and row.type in (int, float) else row.maximum
    if maximum is not None and not value <= maximum:
        raise ConfigError(f"{source}: {raw!r} is above {maximum:g}", field=row.name)
    return value


def _parse_str(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError
    return raw


def _parse_int(raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise TypeError
    return int(raw)


def _parse_float(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise TypeError
    return float(raw)


def _parse_bool(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    lowered = _parse_str(raw).strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError
    return lowered in _TRUE


def _parse_strings(raw: Any) -> tuple[str, ...]:
    """Parse a list of strings, or one string with commas."""
    items = raw.split(",") if isinstance(raw, str) else [part for item in raw for part in _parse_str(item).split(",")]
    return tuple(stripped for item in items if (stripped := item.strip()))


def _parse_pairs(raw: Any) -> tuple[tuple[str, str], ...]:
    """Parse a table of strings, or strings ``name=value``. Raises ValueError for a repeated name."""
    if isinstance(raw, dict):
        pairs = [(name, _parse_str(value)) for name, value in raw.items()]
    elif isinstance(raw, tuple) and all(isinstance(item, tuple) for item in raw):
        pairs = [(_parse_str(name), _parse_str(value)) for name, value in raw]
    else:
        pairs = [(name.strip(), value.strip()) for name, value in (item.split("=") for item in _parse_strings(raw))]
    if not all(name and value for name, value in pairs) or len(dict(pairs)) < len(pairs):
        raise ValueError
    return tuple(pairs)


# By type: the parser, and the name of a value.
_TYPES: dict[Any, tuple[Callable[[Any], Any], str]] = {
    str: (_parse_str, "text"),
    int: (_parse_int, "a whole number"),
    float: (_parse_float, "a number"),
    bool: (_parse_bool, "true or false"),
    tuple[str, ...]: (_parse_strings, "a list of text"),
    tuple[tuple[str, str], ...]: (_parse_pairs, "a table of names"),
}

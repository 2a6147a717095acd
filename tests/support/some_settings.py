"""Settings of a test by their names, constants included, which no operator can set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from realtime_tts.config import Settings, build, settings_table
from realtime_tts.config_loader import load_settings


def flatten(config: Any) -> dict[str, Any]:
    """All values of an instance of settings by name; `build` makes an equal instance of them."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        values |= flatten(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return values


def make_settings(values: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Settings:
    """Settings with these values, which come before those of the environment."""
    assert set(values) <= set(flatten(Settings())), "unknown settings"
    known = {row.name for row in settings_table()}
    settings = load_settings({name: value for name, value in values.items() if name in known}, env)
    constants = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name not in known
    }
    return build(Settings, {**flatten(settings), **constants})

"""Settings of a test by their names, constants included, which no operator can set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from realtime_tts.config import Settings, build, flatten, settings_table
from realtime_tts.config_loader import load_settings


def make_settings(values: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Settings:
    """Settings with these values, which come before those of the environment."""
    assert set(values) <= set(flatten(Settings())), "unknown settings"
    known = {row.name for row in settings_table()}
    settings = load_settings({name: value for name, value in values.items() if name in known}, env)
    constants = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if name not in known
    }
    return build(Settings, {**flatten(settings), **constants})

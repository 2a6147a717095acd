"""Definition of one setting as a dataclass field. `realtime_tts.config` collects them. Pure."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

T = TypeVar("T")


def setting(
    default: T,
    help: str,  # noqa: A002 - the name in every option parser
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """Return a dataclass field with its help, bounds and choices as metadata."""
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices}
    return dataclasses.field(default=default, metadata=metadata)

"""Interface of a stored pronunciation dictionary, as dialects describe it."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Entry: TypeAlias = tuple[str, str]  # a word or phrase, and its respelling


class StoredDictionary(Protocol):
    """Stored dictionary. `version` counts changes of the entries, from 1; `created_at`: Unix time in seconds."""

    @property
    def record_id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def created_at(self) -> float: ...

    @property
    def version(self) -> int: ...

    @property
    def entries(self) -> tuple[Entry, ...]: ...

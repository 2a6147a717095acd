"""What dialects tell of a stored pronunciation dictionary."""

from __future__ import annotations

from typing import Protocol, TypeAlias

Entry: TypeAlias = tuple[str, str]  # a word or phrase, and how it is respelt


class StoredDictionary(Protocol):
    """`version` counts the changes of its entries, from 1; `created_at` is Unix time."""

    @property
    def dictionary_id(self) -> str: ...

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

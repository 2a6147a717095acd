"""Pages of a list, as several services give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def page_after(entries: Sequence[T], ids: Sequence[str], after: str | None, limit: int) -> tuple[list[T], bool]:
    """Return at most `limit` entries after the one with the id `after`, and whether there are more.

    With an unknown id the page begins with the first entry.
    """
    rest = entries[ids.index(after) + 1 :] if after is not None and after in ids else entries
    return list(rest[:limit]), len(rest) > limit

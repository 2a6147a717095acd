"""Cartesia's tags in a text. Pauses (`<break/>`) every text may have; the others we cannot follow, and they are left
out, not read aloud."""

from __future__ import annotations

import re

NAMES = ("emotion", "speed", "spell", "volume")
MAX_TAG_CHARS = 100
_TAG = re.compile(rf"</?(?:{'|'.join(NAMES)})\b[^<>]{{0,{MAX_TAG_CHARS}}}>", re.IGNORECASE)
_BEGUN = re.compile(r"</?([a-z]*)([^<>]*)\Z", re.IGNORECASE)


class TagFilter:
    """Takes a text in any pieces; what may be the beginning of a tag waits for the next one."""

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        text = _TAG.sub(_gap, self._held + text)
        start = text.rfind("<")
        if start < 0 or not _may_be_a_tag(text[start:]):
            start = len(text)
        self._held = text[start:]
        return text[:start]

    def finish(self) -> str:
        """What was held back and is no tag after all."""
        held, self._held = self._held, ""
        return held


def without_tags(text: str) -> str:
    return _TAG.sub(_gap, text)


def _gap(tag: re.Match[str]) -> str:
    """Words that only a tag stands between stay two."""
    before, after = tag.string[: tag.start()][-1:], tag.string[tag.end() :][:1]
    return " " if before.isalnum() and after.isalnum() else ""


def _may_be_a_tag(text: str) -> bool:
    match = _BEGUN.match(text)
    if match is None or len(text) > MAX_TAG_CHARS:
        return False
    name = match[1].lower()
    return name in NAMES if match[2] else any(known.startswith(name) for known in NAMES)

"""Pauses that a text asks for: ``<break time="400ms"/>`` and ``[pause 1s]``, found while the text is still coming.

What is found depends on the characters alone, never on how the stream was split: what may become a pause is held back
until it is one or cannot be one any more, 48 characters at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from realtime_tts.text.marks import Pause

MAX_PAUSE_MS = 10_000.0
MAX_SILENCE_MS = 60_000.0  # of one context: a text full of pauses must not hold its place for hours
MAX_SENTENCE_SILENCE_MS = 600_000.0  # of one context, between its sentences
DEFAULT_PAUSE_MS = 500.0
STRENGTHS_MS = {"none": 0.0, "x-weak": 100.0, "weak": 250.0, "medium": 500.0, "strong": 750.0, "x-strong": 1000.0}
_MAX_CHARS = 48
_DURATION = r"(?:\d{1,6}(?:\.\d{0,3})?|\.\d{1,3})\s{0,2}(?:ms|s)"
_ATTRIBUTE = rf"""\s{{1,4}}(?:time\s?=\s?["']{_DURATION}["']|strength\s?=\s?["'](?:{"|".join(STRENGTHS_MS)})["'])"""
_PAUSE = re.compile(
    rf"<break(?:{_ATTRIBUTE}){{0,2}}\s{{0,4}}/?>|</break>|\[pause(?:\s?:?\s?{_DURATION})?\s?\]", re.IGNORECASE
)
_FOUND_DURATION = re.compile(r"([\d.]+)\s*(ms|s)", re.IGNORECASE)
_FOUND_STRENGTH = re.compile(r"""strength\s?=\s?["']([a-z-]+)""", re.IGNORECASE)
_OPENERS = {"<": ("<break", "</break>"), "[": ("[pause",)}
_CLOSERS = {"<": ">", "[": "]"}


class PauseFinder:
    """Text deltas in, text and pauses out, in order; together they are every character once."""

    def __init__(self) -> None:
        self._held = ""

    @property
    def is_holding(self) -> bool:
        """Whether characters are kept back that may become a pause."""
        return bool(self._held)

    def push(self, delta: str) -> Iterator[str | Pause]:
        """More text."""
        text, self._held = self._held + delta, ""
        plain_from = at = 0
        while (at := _next_opener(text, at)) >= 0:
            match = _PAUSE.match(text, at)
            if match is not None:
                if at > plain_from:
                    yield text[plain_from:at]
                yield Pause(match.end() - at, _duration_ms(match.group()))
                plain_from = at = match.end()
            elif _may_become_pause(text[at : at + _MAX_CHARS]):
                self._held = text[at:]
                text = text[:at]
            else:
                at += 1
        if plain_from < len(text):
            yield text[plain_from:]

    def release(self) -> str:
        """What was held back, as text: nothing more comes, or not soon."""
        held, self._held = self._held, ""
        return held

    finish = release


def _next_opener(text: str, start: int) -> int:
    found = [at for at in (text.find(opener, start) for opener in _OPENERS) if at >= 0]
    return min(found, default=-1)


def _may_become_pause(text: str) -> bool:
    """Whether more characters could make a pause of this, which begins with an opener and is none yet."""
    lowered = text.lower()
    if len(text) >= _MAX_CHARS or _CLOSERS[text[0]] in text or any(opener in text[1:] for opener in _OPENERS):
        return False
    return any(name.startswith(lowered) or lowered.startswith(name) for name in _OPENERS[text[0]])


def _duration_ms(tag: str) -> float:
    if tag.startswith("</"):
        return 0.0
    if (found := _FOUND_DURATION.search(tag)) is not None:
        value, unit = float(found.group(1)), found.group(2).lower()
        return min(MAX_PAUSE_MS, value * (1.0 if unit == "ms" else 1000.0))
    if (strength := _FOUND_STRENGTH.search(tag)) is not None:
        return STRENGTHS_MS[strength.group(1).lower()]
    return DEFAULT_PAUSE_MS

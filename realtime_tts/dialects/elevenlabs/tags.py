"""Tags that ElevenLabs reads in a text. Pauses every text may have; the others we cannot follow, and they are left out,
not read aloud."""

from __future__ import annotations

import re

_AROUND_WORDS = re.compile(r"</?(?:phoneme|speak|prosody|emphasis|say-as|sub|lexeme)\b[^<>]{0,200}>", re.IGNORECASE)


def without_tags(text: str) -> str:
    """The words and pauses alone."""
    return _AROUND_WORDS.sub("", text) if "<" in text else text

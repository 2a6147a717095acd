"""Tags that ElevenLabs reads in a text. We know neither pauses nor phonemes: they are left out, not read aloud."""

from __future__ import annotations

import re

_PAUSE = re.compile(r"<break\b[^<>]{0,200}>", re.IGNORECASE)
_AROUND_WORDS = re.compile(r"</?(?:phoneme|speak|prosody|emphasis|say-as|sub|lexeme)\b[^<>]{0,200}>", re.IGNORECASE)


def without_tags(text: str) -> str:
    """The words alone; a space stands for a pause."""
    return _AROUND_WORDS.sub("", _PAUSE.sub(" ", text)) if "<" in text else text

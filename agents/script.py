"""Scripted answers for agents without a language model, in pieces like a model's tokens."""

from __future__ import annotations

import re

TOKENS_PER_SECOND = 20.0
TOKEN_CHARS = 6
ANSWERS = (
    "Hello there. I can hear you, but I do not understand a word, because no speech recogniser is connected. "
    "Speak whenever you like, and I will stop at once.",
    "That was well said. Let me tell you about the weather. It was cold in the morning, and the sun came out at noon. "
    "In the evening it will rain, so take a coat with you if you go out.",
    "Here is something to count with me. One, two, three, four, five, six, seven, eight, nine, and ten. "
    "You may stop me in the middle of it, and I know where I was.",
)


def tokens(text: str) -> list[str]:
    """Return words with the space before them, long words in parts; joined they are the text."""
    words = re.findall(r"\s*\S+|\s+$", text)
    return [word[start : start + TOKEN_CHARS] for word in words for start in range(0, len(word), TOKEN_CHARS)]

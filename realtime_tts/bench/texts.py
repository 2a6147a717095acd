"""Texts of the bench: sentences of a voice agent, within every checkpoint's characters. Pure."""

from __future__ import annotations

import random
import re

SENTENCES = (
    "Good morning, how can I help you today?",
    "Your table is booked for seven in the evening.",
    "The next train to the city leaves in ten minutes.",
    "I found three hotels near the station.",
    "Please hold the line while I look that up.",
    "Would you like to hear the weather for tomorrow?",
    "The package should arrive before the end of the week.",
    "Sorry, I did not catch the last part.",
)
LONG_TEXT = (
    "Thank you for calling, I have your order in front of me now. It left the warehouse on Monday morning. "
    "The driver tried to reach you twice, but nobody was at home. Shall I send it again tomorrow? "
    "You can also pick it up at the shop on the corner, which is open until nine."
)
# Twenty tokens, words with the marks behind them, in the vocabulary of our random checkpoints.
TURN = "Your order left the warehouse early this morning, and it will be with you tomorrow, at some time before noon."


def turn(num_words: int | None, seed: int) -> str:
    """Return `num_words` of `TURN`'s words, or all of them once, in another order for each seed: equally long, and not
    in the prefix cache."""
    draw, whole = random.Random(seed), TURN.split()
    words: list[str] = []
    while len(words) < (num_words or len(whole)):
        again = whole.copy()
        draw.shuffle(again)
        words += again
    return " ".join(words[:num_words])


def tokens(text: str) -> list[str]:
    """Words with the blank before them, long ones in pieces: four characters or so, as LLMs write them."""
    return re.findall(r"\s*\S{1,5}", text)

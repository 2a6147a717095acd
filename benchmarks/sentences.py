"""Texts of the benchmarks that are read from files."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).parents[1]
REPLIES = (_ROOT / "benchmarks/replies.txt").read_text(encoding="utf-8").splitlines()


def evaluation_sentences() -> list[str]:
    """Return the sentences that the starter voice was not trained on."""
    lines = (_ROOT / "training/texts/evaluation_sentences.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def held_out(count: int) -> list[str]:
    """Return so many of these sentences, evenly from the whole list."""
    sentences = evaluation_sentences()
    return sentences[:: max(1, len(sentences) // count)][:count]

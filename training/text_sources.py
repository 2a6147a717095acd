"""Free texts that the corpus draws on: WordNet's examples and definitions, and SCOWL's word lists.

Both come from Debian packages (`wordnet-base`, `scowl`) whose licences allow any use with attribution; see README.md.
Everything leaves this module in the voice's own character set: lower-case letters, space, and , . ? ! ' -
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CHARSET = frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
WORDNET_DIR = Path("/usr/share/wordnet")
SCOWL_DIR = Path("/usr/share/dict/scowl")
_PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
_SPOKEN = {
    "&": " and ",
    "%": " percent",
    "’": "'",
    "‘": "'",
    "`": "'",
    ":": ",",
    ";": ",",
    "–": ", ",
    "—": ", ",
    "/": " ",
}


def clean(text: str) -> str | None:
    """`text` in the voice's character set, or None if part of it (a digit, an abbreviation) has no plain spelling."""
    text = re.sub(r"\([^)]*\)", " ", text)
    for symbol, spoken in _SPOKEN.items():
        text = text.replace(symbol, spoken)
    if re.search(r"[0-9]|\b[A-Z]{2,}|\w\.\w|\b[A-Za-z]\.|\.\.|--|(?:^|\s)'|'(?:\s|$)|\b(?:etc|e\.g|i\.e)\b", text):
        return None
    text = re.sub(r"\s+", " ", text.lower()).strip(" ,-")
    text = re.sub(r"\s+([,.?!])", r"\1", text)
    text = re.sub(r"([,.?!])[,.?!]+", r"\1", text)
    if not text or not set(text) <= CHARSET or not text[0].isalpha():
        return None
    return text


def wordnet_glosses(root: Path = WORDNET_DIR) -> Iterator[tuple[str, list[str]]]:
    """(definition, example sentences) of every synset, uncleaned."""
    for part in _PARTS_OF_SPEECH:
        for line in (root / f"data.{part}").read_text(encoding="latin-1").splitlines():
            if line.startswith("  ") or " | " not in line:
                continue
            gloss = line.split(" | ", 1)[1]
            examples = re.findall(r'"([^"]+)"', gloss)
            yield gloss.split('"')[0].strip(" ;:"), examples


def wordnet_lemmas(part: str, root: Path = WORDNET_DIR) -> set[str]:
    """Single-word lemmas of a part of speech ("noun", "verb", "adj", "adv")."""
    lines = (root / f"index.{part}").read_text(encoding="latin-1").splitlines()
    lemmas = (line.split(" ", 1)[0] for line in lines if not line.startswith(" "))
    return {lemma for lemma in lemmas if lemma.isascii() and lemma.isalpha() and lemma.islower()}


def scowl_words(max_level: int, kind: str = "words", root: Path = SCOWL_DIR) -> list[str]:
    """Words up to a SCOWL level (10 is the commonest, 35 a small dictionary, 70 a large one), commonest level first."""
    words: dict[str, None] = {}
    for level in (10, 20, 35, 40, 50, 55, 60, 70):
        if level > max_level:
            break
        for variety in ("english", "american"):
            path = root / f"{variety}-{kind}.{level}"
            if path.exists():
                words.update(dict.fromkeys(sorted(path.read_text(encoding="latin-1").split())))
    return [word for word in words if re.fullmatch(r"[A-Za-z]+(?:'[a-z]+)?", word)]

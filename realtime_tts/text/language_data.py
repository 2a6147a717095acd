"""Words and tables of words by language, from the files of `languages/`: one TOML file for each language.

``writing`` of a language lists: ``dotted_ordinals`` ("3." is "third", so that a stop after a short number ends no
sentence), ``reversed_quotes`` (» opens a quotation, or both ends of one look alike). A name or a number follows its
``abbreviations_before_names``; its ``final_abbreviations`` may end a sentence.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_FILES = {path.stem: path for path in (Path(__file__).parent / "languages").glob("*.toml")}
LANGUAGES = tuple(sorted(_FILES))


def words(name: str, language: str = "en") -> tuple[str, ...]:
    """Return a list of words, in order; empty if the language has none of this name."""
    found = _data(language).get(name)
    return tuple(found.split()) if isinstance(found, str) else ()


@cache
def word_set(name: str, language: str = "en") -> frozenset[str]:
    """Return a list of words as a set."""
    return frozenset(words(name, language))


def word_table(name: str, language: str = "en") -> dict[str, str]:
    """Return a table of spoken forms by what is written; empty if the language has none of this name."""
    found = _data(language).get(name)
    return found if isinstance(found, dict) else {}


@cache
def _data(language: str) -> dict[str, object]:
    return tomllib.loads(_FILES[language].read_text(encoding="utf-8")) if language in _FILES else {}

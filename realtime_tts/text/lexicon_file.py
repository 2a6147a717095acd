"""The two forms in which a lexicon is written: an object of JSON, and the W3C's Pronunciation Lexicon (PLS)."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from realtime_tts.errors import BadLexicon
from realtime_tts.text.lexicon import MAX_ENTRIES, Entry, Lexicon


def parse_lexicon(text: str) -> Lexicon:
    """``{"nginx": "engine x", …}``, or a document of PLS, whose words stand for themselves as they are written.

    Raises:
        BadLexicon: neither of the two; an entry that cannot be; a word of which PLS has phones alone.
    """
    return Lexicon(parse_entries(text), exact=_is_pls(text))


def parse_entries(text: str) -> list[Entry]:
    """Its words as they are written.

    Raises:
        BadLexicon: as above, but that an entry is not looked into.
    """
    entries = list(_pls_entries(text) if _is_pls(text) else _json_entries(text))
    if len(entries) > MAX_ENTRIES:
        raise BadLexicon(f"a lexicon has at most {MAX_ENTRIES} entries", field="lexicon")
    return entries


def _is_pls(text: str) -> bool:
    return text.lstrip("\ufeff \t\r\n").startswith("<")


def _json_entries(text: str) -> Iterator[Entry]:
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise BadLexicon(f"neither JSON nor PLS: {error}", field="lexicon") from error
    if not isinstance(found, dict):
        raise BadLexicon('a lexicon is an object, as {"nginx": "engine x"}', field="lexicon")
    for word, respelling in found.items():
        if not isinstance(respelling, str):
            raise BadLexicon(f"{word[:64]!r} has no respelling, which is a string", field="lexicon")
        yield word, respelling


def _pls_entries(text: str) -> Iterator[Entry]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise BadLexicon("a document type is not read", field="lexicon")
    try:
        root = ElementTree.fromstring(text.strip("\ufeff \t\r\n").encode())
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise BadLexicon(f"not well-formed: {error}", field="lexicon") from error
    if _name(root) != "lexicon":
        raise BadLexicon("the root of PLS is <lexicon>", field="lexicon")
    for lexeme in root:
        if _name(lexeme) != "lexeme":
            continue
        words = [_text(each) for each in lexeme if _name(each) == "grapheme"]
        alias = next((_text(each) for each in lexeme if _name(each) == "alias"), None)
        if not words:
            raise BadLexicon("a <lexeme> has no <grapheme>", field="lexicon")
        if alias is None:
            raise BadLexicon(
                f"{words[0][:64]!r} has no <alias>: the models read letters, and phones mean nothing to them",
                field="lexicon",
            )
        for word in words:
            yield word, alias


def _name(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())

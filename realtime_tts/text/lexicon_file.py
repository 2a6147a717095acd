"""Parser of lexicon files: a JSON object, or a document of the W3C's Pronunciation Lexicon Specification (PLS)."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from realtime_tts.errors import BadLexicon
from realtime_tts.text.characters import replace_surrogates
from realtime_tts.text.lexicon import MAX_ENTRIES, Entry, Lexicon


def parse_lexicon(text: str) -> Lexicon:
    """Return the lexicon in a JSON object (``{"nginx": "engine x", …}``) or a PLS document, whose words match exactly.

    Raises:
        BadLexicon: the text is neither; an entry is invalid; a PLS word has phonemes only.
    """
    return Lexicon(parse_entries(text), exact=_is_pls(text))


def parse_entries(text: str) -> list[Entry]:
    """Return the entries as they are written.

    Raises:
        BadLexicon: as for `parse_lexicon`, except that entries are not checked.
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
        raise BadLexicon('a lexicon must be an object such as {"nginx": "engine x"}', field="lexicon")
    for word, respelling in found.items():
        if not isinstance(respelling, str):
            raise BadLexicon(f"{word[:64]!r} must have a string as its respelling", field="lexicon")
        yield replace_surrogates(word), replace_surrogates(respelling)  # else they cannot be sent to a client


def _pls_entries(text: str) -> Iterator[Entry]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise BadLexicon("<!DOCTYPE> and <!ENTITY> are not allowed", field="lexicon")
    try:
        root = ElementTree.fromstring(text.strip("\ufeff \t\r\n").encode())
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise BadLexicon(f"the PLS document is not well-formed XML: {error}", field="lexicon") from error
    if root.tag.rpartition("}")[2] != "lexicon":
        raise BadLexicon("the root element of PLS must be <lexicon>", field="lexicon")
    for number, lexeme in enumerate(root.iterfind("{*}lexeme"), 1):  # in any namespace, and in none
        words = [_text(each) for each in lexeme.iterfind("{*}grapheme")]
        alias = lexeme.find("{*}alias")
        if not words:
            raise BadLexicon(f"<lexeme> number {number} has no <grapheme>", field="lexicon")
        if alias is None:
            raise BadLexicon(
                f"{words[0][:64]!r} has no <alias>: phonemes are not supported, because the models read letters",
                field="lexicon",
            )
        for word in words:
            yield word, _text(alias)


def _text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())

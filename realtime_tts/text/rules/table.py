"""Table of rules, and the function that finds the token at an index.

Order matters: a rule precedes those that would read part of its tokens differently (dates before fractions, money
before plain numbers). Text that no rule claims is a word, a pause or silent.
"""

from __future__ import annotations

from realtime_tts.text.characters import is_cjk_punctuation, is_mark, is_unspaced
from realtime_tts.text.rules import abbreviations, codes, dates, money, numbers, phones, symbols, units, web
from realtime_tts.text.rules.base import RuleList, Scan, SpokenToken
from realtime_tts.text.rules.local import all_local_rules, local_rules
from realtime_tts.text.rules.verbalize import foreign_words
from realtime_tts.text.rules.words import grapheme_end, pause_token, read_word, word_ends
from realtime_tts.text.rules.written import MARKUP, written_token

DIGIT_RULES = RuleList((
    *web.DIGIT_RULES, *dates.DIGIT_RULES, *phones.DIGIT_RULES, *codes.DIGIT_RULES,
    *money.DIGIT_RULES, *numbers.EARLY_DIGIT_RULES, *units.DIGIT_RULES, *numbers.DIGIT_RULES,
))  # fmt: skip
LETTER_RULES = RuleList((
    *symbols.LETTER_RULES, *dates.LETTER_RULES, *money.LETTER_RULES, *phones.LETTER_RULES,
    *codes.LETTER_RULES, *numbers.LETTER_RULES, *abbreviations.LETTER_RULES, *web.LETTER_RULES,
))  # fmt: skip
SYMBOL_RULES = RuleList((
    *codes.SYMBOL_RULES, *web.SYMBOL_RULES, *dates.SYMBOL_RULES, *phones.SYMBOL_RULES, *money.SYMBOL_RULES,
    *units.SYMBOL_RULES, *numbers.SYMBOL_RULES, *abbreviations.SYMBOL_RULES, *symbols.SYMBOL_RULES,
))  # fmt: skip


def compile_rules() -> None:
    """Compile all patterns of `find_token` now instead of at their first use. Takes about 150 ms."""
    for rules in (DIGIT_RULES, LETTER_RULES, SYMBOL_RULES, MARKUP, *all_local_rules()):
        rules.compile()


def find_token(scan: Scan, index: int) -> SpokenToken:
    """Return the token at `index` of `scan.text`; at least one character long.

    While the text is open, later text cannot change the token if `scan.saw_end` stays False and text is known after it.
    """
    scan.index = index
    char = scan.text[index]
    if char.isspace():
        return pause_token(scan.text, index)
    if (given := scan.given(index)) is not None:
        return given
    is_english = scan.language == "en" and not is_cjk_punctuation(char) and not is_unspaced(char)
    is_english = is_english and scan.is_latin(index)
    rules = _rules(scan.language, char, is_english=is_english)
    if rules is not None and (token := rules.read(scan, index)) is not None:
        return token
    if not (is_english or scan.spell):
        return written_token(scan, index)
    if is_unspaced(char):
        end = grapheme_end(scan.text, index)
        return SpokenToken(scan.text[index:end], end, spaced=False)
    if char.isdecimal():
        return _plain_number(scan, index)
    if char.isalnum() or is_mark(char):
        last, end = word_ends(scan, index)
        return SpokenToken(read_word(scan.text[index:last], scan), end, spaced=last < end)
    return pause_token(scan.text, index)


def _rules(language: str, char: str, *, is_english: bool) -> RuleList | None:
    """Return the rules for a token that begins with `char`."""
    if not is_english:
        return local_rules(language)
    if char.isdecimal():
        return DIGIT_RULES
    return LETTER_RULES if char.isalpha() else SYMBOL_RULES


def _plain_number(scan: Scan, index: int) -> SpokenToken:
    """Return digits in words of another language, for a model that reads no digits."""
    end = index
    while end < len(scan.text) and end - index < 40 and scan.text[end].isdecimal():
        end += 1
    text = scan.text[index:end]
    return SpokenToken(foreign_words(text, scan.language), end)

"""The table of rules, and the one function that finds the token at an index.

Order matters: a rule stands before those that would read part of its tokens differently (dates before fractions,
money before plain numbers). What no rule claims is a word, a pause or nothing.
"""

from __future__ import annotations

from realtime_tts.text.characters import is_cjk, is_cjk_punctuation, is_mark
from realtime_tts.text.rules import numbers, words
from realtime_tts.text.rules.base import Rule, Scan, Token
from realtime_tts.text.rules.pauses import pause_token
from realtime_tts.text.rules.verbalize import foreign_number

DIGIT_RULES: tuple[Rule, ...] = (
    *numbers.DIGIT_RULES,
)
LETTER_RULES: tuple[Rule, ...] = (
    *numbers.LETTER_RULES,
)
SYMBOL_RULES: tuple[Rule, ...] = (
    *numbers.SYMBOL_RULES,
)


def find_token(scan: Scan, index: int) -> Token:
    """The token at `index` of `scan.text`; always at least one character long."""
    char = scan.text[index]
    if char.isspace():
        return pause_token(scan.text, index)
    if is_cjk(char):
        return Token(char, index + 1, spaced=False)
    if not is_cjk_punctuation(char) and scan.language == "en" and scan.is_latin(index):
        token = _try_rules(scan, index, char)
        if token is not None:
            return token
    if char.isdecimal():
        return _plain_number(scan, index)
    if char.isalnum() or is_mark(char):
        end = words.word_end(scan.text, index)
        return Token(words.read_word(scan.text[index:end], scan), end, spaced=False)
    return pause_token(scan.text, index)


def _try_rules(scan: Scan, index: int, char: str) -> Token | None:
    if char.isdecimal():
        rules = DIGIT_RULES
    elif char.isalpha():
        rules = LETTER_RULES
    else:
        rules = SYMBOL_RULES
    for rule in rules:
        match = rule.pattern.match(scan.text, index)
        if match is None:
            continue
        spoken = rule.speak(match, scan)
        if spoken is not None:
            return Token(spoken, max(match.end(), index + 1))
    return None


def _plain_number(scan: Scan, index: int) -> Token:
    """Digits where English does not apply: as they are, or by num2words if the model cannot read digits."""
    end = index
    while end < len(scan.text) and end - index < 40 and scan.text[end].isdecimal():
        end += 1
    text = scan.text[index:end]
    if scan.spell and scan.language != "en":
        return Token(foreign_number(text, scan.language) or text, end)
    return Token(text, end, spaced=False)

"""One pattern stands for all rules of a list: which of them reads a token."""

from __future__ import annotations

import re

import pytest

from realtime_tts.text.rules.base import Rule, RuleList, Scan, Token


def says(pattern: str, spoken: str | None, flags: int = 0) -> Rule:
    return Rule(re.compile(pattern, flags), lambda match, scan: spoken and spoken.format(*match.groups()))


RULES = RuleList(
    [
        says("(a)(b)?c", "{0}, {1}"),
        says("(d)e", None),
        says("(x)Y", "any case {0}", re.IGNORECASE),
        says("([de])d?(e)", "later {1}"),
        says("(d)(ee)", "too late"),
        says("(?=q)", "empty"),
    ]
)


def scan_of(text: str) -> Scan:
    scan = Scan("en", spell=False)
    scan.extend(text)
    scan.close()
    return scan


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("abc", Token("a, b", 3)),
        ("ac", Token("a, None", 2)),
        ("dee", Token("later e", 2)),
        ("Xy", Token("any case X", 2)),
        ("ABC", None),
        ("q", Token("empty", 1)),
        ("z", None),
        ("de", Token("later e", 2)),
    ],
)
def test_the_first_rule_that_claims_the_text_reads_it(text: str, token: Token | None) -> None:
    assert RULES.read(scan_of(text), 0) == token


def test_a_match_that_every_rule_declines_is_no_token() -> None:
    rules = RuleList([says("a", None), says("b", "b")])
    assert rules.read(scan_of("ab"), 0) is None

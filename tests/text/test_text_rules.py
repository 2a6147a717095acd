"""One pattern stands for all rules of a list: which of them reads a token."""

from __future__ import annotations

import re

import pytest

from realtime_tts.text.rules import base, table, written
from realtime_tts.text.rules.base import ReachingPattern, Rule, RuleList, Scan, SpokenToken


def says(pattern: str, spoken: str | None, *, any_case: bool = False) -> Rule:
    return Rule(pattern, lambda match, scan: spoken and spoken.format(*match.groups()), any_case=any_case)


RULES = RuleList(
    [
        says("(a)(b)?c", "{0}, {1}"),
        says("(d)e", None),
        says("(x)Y", "any case {0}", any_case=True),
        says("([de])d?(e)", "later {1}"),
        says("(d)(ee)", "too late"),
        says("(?=q)", "empty"),
        Rule(" *[fg] *", {"f": "of a table", "g": ""}),
        Rule("h", "the same"),
    ]
)


def scan_of(text: str) -> Scan:
    scan = Scan("en", (), str, spell=False)
    scan.extend(text)
    scan.is_open = False
    return scan


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("abc", SpokenToken("a, b", 3)),
        ("ac", SpokenToken("a, None", 2)),
        ("dee", SpokenToken("later e", 2)),
        ("Xy", SpokenToken("any case X", 2)),
        ("ABC", None),
        ("q", SpokenToken("empty", 1)),
        (" f", SpokenToken("of a table", 2)),
        ("g", SpokenToken("", 1, dropped=True)),
        ("h", SpokenToken("the same", 1)),
        ("z", None),
        ("de", SpokenToken("later e", 2)),
    ],
)
def test_the_first_rule_that_claims_the_text_reads_it(text: str, token: SpokenToken | None) -> None:
    assert RULES.read(scan_of(text), 0) == token


def test_a_match_that_every_rule_declines_is_no_token() -> None:
    rules = RuleList([says("a", None), says("b", "b")])
    assert rules.read(scan_of("ab"), 0) is None


def test_what_an_open_text_needs_is_compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lazily = (
        table.DIGIT_RULES,
        table.LETTER_RULES,
        table.SYMBOL_RULES,
        table.MARKUP,
        *table.all_local_rules(),
    )
    for each in lazily:
        each.__dict__.pop("_to_end", None)  # as if nothing had been read yet
    table.compile_rules()
    with monkeypatch.context() as patch:
        patch.setattr("re.compile", lambda pattern, flags=0: pytest.fail(f"compiled late: {pattern[:60]}"))
        scan = Scan("en", (), str, spell=False)
        scan.extend("NASA paid $5 on 3 May; see www.example.com, 10:30, #5 and A4521B. ")
        index = 0
        while index < len(scan.text):
            index = table.find_token(scan, index).end
    assert all("_to_end" in each.__dict__ for each in lazily)


NOT_ANCHORS = re.compile(r"\\[^bBAZ]|\[\^?\]?(?:\\.|[^\]\\])*\]")
ANCHOR = re.compile(r"\\[bBAZ]|[\^$]")


def anchors(pattern: str) -> list[str]:
    return ANCHOR.findall(NOT_ANCHORS.sub("", pattern))


@pytest.mark.parametrize("pattern", [r"a\b", r"a\B", "a$", "^a", r"a\Z", r"[$]\$a$"])
def test_an_anchor_is_found(pattern: str) -> None:
    assert len(anchors(pattern)) == 1


def test_no_rule_has_an_anchor() -> None:
    """Whether later text could change a match is derived from what a pattern reads; an anchor reads nothing."""
    lists = (table.DIGIT_RULES, table.LETTER_RULES, table.SYMBOL_RULES, table.MARKUP, *table.all_local_rules())
    patterns = [rule.source for rules in lists for rule in rules.rules]
    others = (*vars(base).values(), *vars(written).values())
    patterns += [each.source for each in others if isinstance(each, ReachingPattern)]
    assert len(patterns) > 150
    assert not [pattern for pattern in patterns if anchors(pattern)]

"""A text that is still being written is read only as far as its reading is settled."""

from __future__ import annotations

import random

import pytest
import test_text_normalizer_table as table
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.text.characters import is_mark
from realtime_tts.text.normalizer import Normalization, Normalizer
from realtime_tts.text.rules.base import ReachingPattern

SPELLING = table.SPELLING
NORMALIZERS = st.sampled_from(
    [SPELLING, Normalizer("en"), Normalizer("de", table.LETTERS), Normalizer("zh"), Normalizer("fr"), Normalizer("es")]
)


def stages(text: str, normalizer: Normalizer = SPELLING) -> list[str]:
    """What is spoken after each character, without repeats."""
    normalization, found = Normalization(normalizer), [""]
    for char in text:
        list(normalization.extending(char))
        if normalization.spoken().text != found[-1]:
            found.append(normalization.spoken().text)
    return found[1:]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Let me see", ["Let", "Let me"]),
        ("it cost $5 million then", ["it", "it cost", "it cost five million dollars"]),
        ("it cost $5 then", ["it", "it cost", "it cost five dollars"]),
        ("on St. Paul and", ["on", "on Saint Paul"]),
        ("at 3:30 pm so", ["at", "at three thirty P M"]),
        ("No. 5 is", ["number", "number five"]),
        ("No, it", ["No"]),
        ("the 3rd of May, now", ["the", "the third of May"]),
        ("Mon–Fri we", ["Monday to Friday"]),
        ("so [see it] and", ["so", "so, see it"]),
        ("so (see it) and", ["so", "so, see", "so, see it"]),
        ("call 555-123-4567 or", ["call", "call five five five, one two three, four five six seven"]),
        ("https://a.io/b is", ["a dot I O slash b"]),
        ("Mr. Smith is", ["Mister", "Mister Smith"]),
        ("the API of the firm", ["the", "the A P I of the"]),
        ("I have 3 apples now", ["I", "I have", "I have three", "I have three apples"]),
        ("we two", ["we"]),
        ("it's so", ["it's"]),
        ("well-known it", ["well-known"]),
        ("**so** `it` is", ["so", "so it"]),
        ("汉字。", []),
    ],
)
def test_a_word_is_spoken_once_nothing_can_change_its_reading(text: str, spoken: list[str]) -> None:
    assert stages(text) == spoken


def test_cjk_characters_are_settled_by_the_next() -> None:
    assert stages("我有3个。好", Normalizer("zh")) == ["我", "我有", "我有3", "我有3个"]


FRAGMENTS = """
    I the so Let me see API US IT NOW a.m. p.m. St. Dr. No. Mon Jan May 3 March 5 12 $5 million k in. x st th II of BC
    1.234,56 1 234 3.5. 03/05/2024 2024-03-05 15:30 15h30 Uhr 1er 2ª n° z. B. usw. etc. Mme M. Sr. EE. UU. km/h m² « » ¿
    EUR € ° % h km 's - – — / : , . ! ? ' " ( ) [ ] [x ](a.b/c) <b> ``` ` * @ # & 汉 字 。 Привет é ﬁ ㎏% ½ № ３ 😀
"""
PIECES = [
    *(written for rows in vars(table).values() if isinstance(rows, list) for written, _ in rows),
    *FRAGMENTS.split(),
    *["e\u0301", "\u0301", "\n", "\n\n", "\u200b"],
]
TEXTS = st.lists(
    st.tuples(st.sampled_from(PIECES), st.sampled_from([" ", " ", " ", "", ", ", ". ", "\n"])).map("".join)
    | st.text(max_size=3),
    max_size=12,
).map("".join)


@given(text=TEXTS, normalizer=NORMALIZERS, seed=st.integers(0, 2**32))
@settings(max_examples=1000, deadline=None)
def test_what_is_read_early_is_read_as_in_the_whole_text(text: str, normalizer: Normalizer, seed: int) -> None:
    rng, normalization, start = random.Random(seed), Normalization(normalizer), 0
    whole = normalizer.normalize(text)
    for end in range(1, len(text)):
        if rng.random() < 0.4 and not is_mark(text[end]):
            list(normalization.extending(text[start:end]))
            start = end
            early = normalization.spoken()
            assert whole.text.startswith(early.text), (text[:end], early.text)
            assert early.spans[:-1] == whole.spans[: max(0, len(early.spans) - 1)]
    list(normalization.closing(text[start:]))
    assert normalization.spoken() == whole


REGEXES = ["a", "ab|c", "a{2,3}b?", "(a|bc)+d", "a(?=b)", "a(?!b.)", r"a(?!\w)", "(?<=x)a", "(?i:aB)c", "[^a]b*",
           r"\d{1,3}(?:,\d{3}){1,2}", "a*?b", "(?P<name>a)?b{2}", r"\.\[", "[]a]b", "x?b", r"(a)\1"]  # fmt: skip


@given(pattern=st.sampled_from(REGEXES), text=st.text("abcdABx1, .]\n", max_size=7), more=st.text("abcdABx1, .]\n"))
@settings(max_examples=1000, deadline=None)
def test_a_match_that_does_not_reach_the_end_stays_what_it_is(pattern: str, text: str, more: str) -> None:
    reach = ReachingPattern(pattern)
    if not reach.reaches_end(text, 0):
        found, later = reach.match(text, 0), reach.match(text + more, 0)
        assert (found and found.span()) == (later and later.span())


@pytest.mark.parametrize(
    ("pattern", "text", "reaches"),
    [("ab", "a", True), ("ab", "ac", False), ("a{2}", "aa", False), ("a{2,3}", "aa", True), (r"a(?!\w)", "a", True),
     ("a(?!b)", "a", True), ("(?<=a)", "", False), ("(?i:ab)", "A", True), ("", "", False), ("a|bc", "b", True)],
)  # fmt: skip
def test_a_pattern_knows_whether_it_looks_at_the_end(pattern: str, text: str, reaches: bool) -> None:
    assert ReachingPattern(pattern).reaches_end(text, 0) is reaches

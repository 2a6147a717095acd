"""Lexicons: which words they are for, and that words keep their places in the text as it was sent."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.errors import BadLexicon
from realtime_tts.text.lexicon import (
    MAX_ENTRIES,
    MAX_REQUEST_ENTRIES,
    MAX_RESPELLING_CHARS,
    MAX_WORD_CHARS,
    Lexicon,
    request_lexicon,
)
from realtime_tts.text.lexicon_file import parse_lexicon
from realtime_tts.text.normalizer import NormalizedText, Normalizer
from realtime_tts.text.planner import PlannerFactory, Segment
from realtime_tts.text.skipped import SKIPPED

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
ENTRIES = {
    "nginx": "engine x",
    "SQL": "sequel",
    "new york": "noo yawk",
    "new york city": "the big apple",
    "US": "you ess",
    "C++": "see plus plus",
    ".NET": "dot net",
    "km": "kay em",
    "covid": "co vid 19",
    "can": "ken",
    "東京": "toe kyo",
    "naïve": "nigh eve",
    "engine": "motor",
}


def read(text: str, entries: Mapping[str, str] = ENTRIES, letters: frozenset[str] | None = LETTERS) -> NormalizedText:
    return Normalizer("en", letters).with_lexicons([Lexicon(entries.items())]).normalize(text)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("Ask Nginx, NGINX or nginx.", "Ask engine x, engine x or engine x."),
        ("nginx's logs", "engine x's logs"),
        ("an nginx-based pre-nginx thing", "an engine x based pre engine x thing"),
        ("at nginx.org, my_nginx and enginx", "at nginx dot org, my nginx and enginx"),
        ("(nginx) is", "engine x, is"),
        ("SQL, Sql", "sequel, Sql"),
        ("give us the US", "give us the you ess"),
        ("New York, new   york\nNew York City", "noo yawk, noo yawk. the big apple"),
        ("New Yorker", "New Yorker"),
        ("C++ or c++ or C+", "see plus plus or c or C plus"),
        ("ASP.NET", "ASP dot net"),
        ("5 km or km", "five kilometers or kay em"),
        ("covid", "co vid nineteen"),
        ("can can't", "ken can't"),
        ("東京", "toe kyo"),
        ("nai\u0308ve, NAÏVE", "nigh eve, nigh eve"),
        ("nginx engine", "engine x motor"),
    ],
)
def test_whole_words_are_respelt_once(text: str, spoken: str) -> None:
    assert read(text).text == spoken


def test_the_longest_entry_counts_and_of_equals_the_first_lexicon() -> None:
    lexicons = [Lexicon([("new york", "first")]), Lexicon([("new york", "second"), ("new york city", "third")])]
    normalizer = Normalizer("en", LETTERS).with_lexicons(lexicons)
    assert normalizer.normalize("new york, new york city").text == "first, third"
    assert normalizer.with_lexicons([]).normalize("new york").text == "new york"


def test_a_respelling_is_text_and_other_languages_have_lexicons_too() -> None:
    assert Normalizer("de").with_lexicons([Lexicon([("nginx", "Ängin ex!")])]).normalize("Ein nginx.").text == (
        "Ein Ängin ex."
    )


def test_a_respelling_that_the_model_lacks_letters_for_is_told_as_skipped() -> None:
    normalized = read("say nginx now", {"nginx": "日本"})
    assert normalized.text == "say now"
    assert normalized.ranges(SKIPPED) == [(4, 9)]


WORDS = st.sampled_from(
    ["nginx", "Nginx", "SQL", "new", "york", "New York City", "city", "US", "C++", ".NET", "km", "5 km", "can't",
     "can", "東京", "naïve", "-", "'s", "_", ".", ", ", ". ", "\n\n", " ", " ", " ", "engine", "x", "\u0301", "😀", "é",
     "[pause 1s]"]
)  # fmt: skip
TEXTS = st.lists(WORDS, max_size=20).map("".join)


def plan(text: str, cuts: list[int], letters: str | None, *, live: bool) -> list[Segment]:
    planner = PlannerFactory(letters, 70, 1.0).make("en", live=live, lexicons=[Lexicon(ENTRIES.items())])
    latest: dict[int, Segment] = {}
    now = 0.0
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        now += 0.05
        given = planner.push(text[start:end], now)
        for segment in given:
            before = latest.get(segment.index)
            assert before is None or segment.text.startswith(before.text)
        latest |= {segment.index: segment for segment in given}
    latest |= {segment.index: segment for segment in planner.end(now)}
    return list(latest.values())


@settings(deadline=None)
@given(TEXTS, st.booleans(), st.booleans(), st.data())
def test_a_word_may_come_in_pieces_and_keeps_its_place(
    text: str, live: bool, reads_all: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    letters = None if reads_all else "".join(LETTERS)
    segments = plan(text, cuts, letters, live=live)
    whole = plan(text, [], letters, live=False)
    assert [(each.text, each.start, each.end) for each in segments] == [
        (each.text, each.start, each.end) for each in whole
    ]
    words = [word for segment in segments for word in segment.words]
    assert all(text[word.start : word.end] == word.text for word in words)
    assert all(one.end <= two.start for one, two in itertools.pairwise(words))


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6), st.text(max_size=60))
def test_any_entries_and_any_text(entries: dict[str, str], text: str) -> None:
    try:
        lexicon = Lexicon(entries.items())
    except BadLexicon:
        return
    for letters in (LETTERS, None):
        normalized = Normalizer("en", letters).with_lexicons([lexicon]).normalize(text + " ".join(entries))
        assert all(one.source_end <= two.source_start for one, two in itertools.pairwise(normalized.spans))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"": "x"}, "no word"),
        (dict.fromkeys([" \u200b"], "x"), "no word"),
        ({"nginx": ""}, "nothing to speak"),
        ({"nginx": "... !"}, "nothing to speak"),
        ({"x" * (MAX_WORD_CHARS + 1): "x"}, "at most 64"),
        ({"x": "x" * (MAX_RESPELLING_CHARS + 1)}, "at most 200"),
        ({"a b c d e f g h i": "x"}, "more than 16"),
    ],
)
def test_invalid_entries_are_refused(entries: dict[str, str], message: str) -> None:
    with pytest.raises(BadLexicon, match=message):
        Lexicon(entries.items())


def test_a_request_brings_so_many_entries_and_no_more() -> None:
    entries = [(f"word{number}", "x") for number in range(MAX_REQUEST_ENTRIES)]
    assert len(request_lexicon(entries)) == MAX_REQUEST_ENTRIES
    with pytest.raises(BadLexicon, match="at most 100 entries"):
        request_lexicon([*entries, ("one", "more")])


PLS = """<?xml version="1.0" encoding="UTF-8"?>
<lexicon version="1.0" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon" alphabet="ipa" xml:lang="en-US">
  <meta name="author" content="somebody"/>
  <lexeme><grapheme>W3C</grapheme><grapheme>w3</grapheme><alias>World Wide Web
     Consortium</alias></lexeme>
  <lexeme><grapheme>Thames</grapheme><phoneme>tɛmz</phoneme><alias>tems &amp; co</alias></lexeme>
</lexicon>"""


def test_pls_has_words_as_they_are_written() -> None:
    lexicon = parse_lexicon(PLS)
    normalized = Normalizer("en", LETTERS).with_lexicons([lexicon]).normalize("W3C, w3, Thames, thames")
    assert len(lexicon) == 3
    assert normalized.text == "World Wide Web Consortium, World Wide Web Consortium, tems and co, thames"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "neither JSON nor PLS"),
        ("[]", "must be an object"),
        ("[" * 100_000, "neither JSON nor PLS"),
        ('{"a": 1}', "must have a string"),
        ('{"a": {"phones": "eɪ"}}', "must have a string"),
        ("<lexicon>", "PLS document is not well-formed XML"),
        ("<html/>", "root element of PLS"),
        ("<lexicon><lexeme><alias>x</alias></lexeme></lexicon>", "<lexeme> number 1 has no <grapheme>"),
        (
            "<lexicon><lexeme><grapheme>a</grapheme><phoneme>eɪ</phoneme></lexeme></lexicon>",
            "phonemes are not supported",
        ),
        ('<!DOCTYPE l [<!ENTITY a "b">]><lexicon/>', "<!DOCTYPE> and <!ENTITY> are not allowed"),
    ],
)
def test_files_that_hold_no_lexicon(text: str, message: str) -> None:
    with pytest.raises(BadLexicon, match=message):
        parse_lexicon(text)


def test_a_file_has_so_many_entries_and_no_more() -> None:
    with pytest.raises(BadLexicon, match="at most 20000 entries"):
        parse_lexicon("{" + ",".join(f'"w{number}":"x"' for number in range(MAX_ENTRIES + 1)) + "}")


@pytest.mark.parametrize("text", ["a " * 2000, " " * 4000, "ab-" * 1300, "a" * 4000, "a b c d e f g h " * 250])
def test_work_grows_with_the_text_and_not_with_its_square(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"a b c d e f g h": "x", "ab-ab": "y", "a" * 60: "z", "a a a a a a a b": "w"}
    lexicon = Lexicon(entries.items())
    looked_at = 0
    find = Lexicon.find

    def counted(self: Lexicon, text: str, index: int) -> object:
        nonlocal looked_at
        looked_at += 1
        return find(self, text, index)

    monkeypatch.setattr(Lexicon, "find", counted)
    Normalizer("en", LETTERS).with_lexicons([lexicon]).normalize(text)
    assert looked_at <= 2 * len(text)


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(
    ("text", "respelling", "added"),
    [
        ("Ask a. And a again.", "b" * 180, 2 * 179),
        ("Ask a.", "7" * 20, 20 * len("seven ") - 2),
        ("a " * 300 + ".", "b" * 180, 300 * 179),
        ("Ask banana.", "b", 0),
        ("Ask nobody.", "b" * 180, 0),
    ],
)
def test_the_characters_that_a_lexicon_adds_are_counted_once(
    text: str, respelling: str, added: int, live: bool
) -> None:
    planner = PlannerFactory(None, 120, None).make(
        "en", live=live, lexicons=[Lexicon({"a": respelling, "banana": "b"}.items())]
    )
    pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
    segments = [segment for at, piece in enumerate(pieces) for segment in planner.push(piece, at / 10)]
    segments += planner.end(len(pieces) / 10)
    assert sum(segment.added_chars for segment in segments) == added
    assert not any(segment.added_chars for segment in segments if not segment.final)

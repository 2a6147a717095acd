"""SSML: what is followed, what is refused and where, and that neither depends on how the text came."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from realtime_tts.errors import BadSSML
from realtime_tts.text.characters import replace_surrogates
from realtime_tts.text.lexicon import Lexicon
from realtime_tts.text.markup import MarkupReader, checking
from realtime_tts.text.planner import PlannerFactory, Segment
from realtime_tts.text.ssml import MAX_DEPTH, MAX_SUBSTITUTED_CHARS, MAX_TAG_CHARS

LETTERS = "abcdefghijklmnopqrstuvwxyz ,.?!'-"
FACTORY = PlannerFactory(LETTERS, 100, 1.0)
READS_ALL = PlannerFactory(None, 100, 1.0)


def plan(
    *deltas: str, text_type: str = "ssml", live: bool = False, factory: PlannerFactory = FACTORY, **options: object
) -> list[Segment]:
    """The segments as they were known last."""
    planner = factory.make("en", live=live, text_type=text_type, **options)  # type: ignore[arg-type]
    latest: dict[int, Segment] = {}
    for number, delta in enumerate(deltas):
        latest |= {segment.index: segment for segment in planner.push(delta, 0.05 * number)}
    latest |= {segment.index: segment for segment in planner.end(0.05 * len(deltas))}
    assert sorted(latest) == list(range(len(latest)))
    return [latest[index] for index in sorted(latest)]


def outline(segments: list[Segment]) -> list[str | float]:
    return [segment.silence_ms or segment.text for segment in segments]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<speak>Hello there.</speak>", ["Hello there."]),
        ('<?xml version="1.0"?>\n<!-- a > b --> <speak version="1.1" xml:lang="en">Hi.</speak>\n', ["Hi."]),
        ("no root", ["no root"]),
        ('One.<break time="300ms"/>Two<break strength="weak"></break>', ["One.", 300.0, "Two", 250.0]),
        ("One<break/>two", ["One", 500.0, "two"]),
        ('<break time=".5s"/><break time="99s"/>', [500.0, 10_000.0]),
        ("AT&amp;T &lt;5 &#65;&#x42; &quot;x&apos;s&quot; &gt;", ["A T and T less than five A B x's"]),
        ('<sub alias="World Wide Web &amp; co">W3C</sub>!', ["World Wide Web and co!"]),
        ('a <sub alias="b 2."> c. D </sub> e', ["a b two e"]),
        ('<say-as interpret-as="characters">AB-12 x</say-as>', ["A B dash one two, X"]),
        ('<say-as interpret-as="spell-out">é_@</say-as>', ["E underscore at"]),
        ('<say-as interpret-as="digits">12-345</say-as>', ["one two, three four five"]),
        (
            '<say-as interpret-as="telephone">+1 (555) 010-9999 x12</say-as>',
            ["plus one, five five five, zero one zero, nine nine nine nine, extension one two"],
        ),
        ('<say-as interpret-as="telephone">1-800-FLOWERS</say-as>', ["one, eight zero zero, FLOWERS"]),
        ('<say-as interpret-as="ordinal">21st</say-as>', ["twenty-first"]),
        ('<say-as interpret-as="date" format="ymd">5 May</say-as>', ["the fifth of May"]),
        ('<say-as interpret-as="characters"> </say-as><say-as interpret-as="digits"/>x', ["x"]),
        ("<p><s>One</s><s>Two</s></p>", ["One", "Two"]),
        ("<speak>One</speak> <speak>two</speak>", ["One", "two"]),
        ('<emphasis level="strong">Very</emphasis> <voice name="a">nice</voice>', ["Very nice"]),
        ('<phoneme alphabet="ipa" ph="təˈmeɪtoʊ">tomato</phoneme>', ["tomato"]),
        ("<metadata>secret <b>more</b></metadata>un<b>believ</b>able", ["unbelievable"]),
        ("a<mark name='here'/>b [pause 1s]", ["ab", 1000.0]),
        ("Ha [laughs]ha", ["Ha ha"]),
        ("", []),
    ],
)
def test_what_is_followed(text: str, expected: list[str | float]) -> None:
    assert outline(plan(text)) == expected
    assert outline(plan(*text)) == expected
    list(checking(text, "ssml"))


def test_prosody_is_of_what_it_holds_and_multiplies() -> None:
    text = (
        'A b. <prosody rate="150%" volume="-6dB">C d. <prosody rate="slow" volume="loud">E f.</prosody> G h.</prosody>'
        '<prosody rate="+10%">I</prosody><prosody rate="-20%">J</prosody>'
        '<prosody rate="1.2" volume="silent">K</prosody><prosody pitch="high">L</prosody>'
    )
    found = {segment.text: (round(segment.speed, 3), round(segment.volume, 3)) for segment in plan(text)}
    assert found == {
        "A b.": (1, 1), "C d.": (1.5, 0.501), "E f.": (1.125, 0.702), "G h.": (1.5, 0.501), "I": (1.1, 1),
        "J": (0.8, 1), "K": (1.2, 0), "L": (1, 1),
    }  # fmt: skip


def test_a_sentence_that_is_marked_is_one_without_a_full_stop() -> None:
    assert outline(plan("<s>One</s><s>Two</s>", sentence_pause_ms=200.0)) == ["One", 200.0, "Two"]
    assert outline(plan('<s>One</s><break time="1s"/><s>Two</s>', sentence_pause_ms=200.0)) == ["One", 1000.0, "Two"]


def test_a_lexicon_is_for_the_text_and_not_for_what_stands_in_its_place() -> None:
    text = 'nginx <sub alias="nginx">web</sub> <say-as interpret-as="digits">1</say-as> ngin<b>x</b>'
    assert outline(plan(text, lexicons=[Lexicon([("nginx", "engine x")])])) == ["engine x nginx one engine x"]


def test_digits_have_the_names_of_the_language() -> None:
    text = '<say-as interpret-as="digits">12</say-as> <say-as interpret-as="characters">a-1</say-as>'
    for language, spoken in (("de", "eins zwei A eins"), ("xx", "1 2 A 1")):
        planner = READS_ALL.make(language, text_type="ssml")
        assert outline([*planner.push(text, 0.0), *planner.end(0.0)]) == [spoken]


def test_what_is_not_followed_is_told() -> None:
    planner = FACTORY.make("en", text_type="ssml")
    text = 'a<emphasis>b</emphasis><audio src="x"/><prosody rate="slow" pitch="low">c</prosody>'
    planner.push(text, 0.0)
    assert [text[start:end] for start, end in planner.take_ignored()] == [
        "<emphasis>", '<audio src="x"/>', '<prosody rate="slow" pitch="low">',
    ]  # fmt: skip
    assert planner.take_ignored() == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("<speak>Hello", 12),
        ("<speak>Hello</p></speak>", 12),
        ("a</b>", 1),
        ("a < b", 2),
        ("a <b c>", 2),
        ("<b c='1' c='2'/>", 0),
        ("a & b and so on", 2),
        ("a &nbsp; b", 2),
        ("a &#0; b", 2),
        ("a &#99999999; b", 2),
        ("a &#xD800; b", 2),
        ("a &#99; &;", 8),
        ("<b c='&bad;'/>", 0),
        ("<!DOCTYPE speak>", 0),
        ('<!ENTITY a "b">', 0),
        ("<![CDATA[x]]>", 0),
        ("<speak>a</speak>b", 16),
        ("<speak>a</speak><b/>", 16),
        ("<speak>a</speak><speak><speak>b</speak></speak>", 23),
        ("<p/><speak>a</speak>", 4),
        ("a<speak>b</speak>", 1),
        ('<break time="soon"/>', 0),
        ('<break strength="huge"/>', 0),
        ("<say-as>a</say-as>", 0),
        ("<sub>a</sub>", 0),
        ('<sub alias="a"></sub>', 15),
        ('<sub alias="a">b<b/>c</sub>', 16),
        ('<prosody rate="quick">a</prosody>', 0),
        ('<prosody rate="900%">a</prosody>', 0),
        ('<prosody volume="11">a</prosody>', 0),
        ("<b>" * (MAX_DEPTH + 1), 3 * MAX_DEPTH),
        ("<b" + " " * MAX_TAG_CHARS, 0),
        ("<!--" + " " * MAX_TAG_CHARS, 0),
        ("<b", 0),
        ("&am", 0),
        ("<!-", 0),
    ],
)
def test_what_is_malformed_is_refused_and_where(text: str, place: int) -> None:
    for deltas in ((text,), tuple(text)):
        with pytest.raises(BadSSML, match=rf"\(at character {place + 1}\)"):
            plan(*deltas)
    with pytest.raises(BadSSML):
        list(checking(text, "ssml"))


def test_an_end_that_comes_too_early_names_the_element_that_is_open() -> None:
    with pytest.raises(BadSSML, match="</speak> closes nothing: <break> is open"):
        plan("<speak>Hello <break>there.</speak>")


def test_what_stands_for_something_else_is_bounded() -> None:
    with pytest.raises(BadSSML, match="takes at most"):
        plan('<sub alias="a">' + "b" * (MAX_SUBSTITUTED_CHARS + 1) + "</sub>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" <speak>Hi.</speak>", ["Hi."]),
        ('<?xml version="1.0"?><speak>Hi.</speak>', ["Hi."]),
        ("<spe", ["spe"]),
        ("<spell>Hi.", ["H I dot"]),
        ('<prosody rate="slow">Hi.', ["Hi."]),
        ("a <speak>Hi.</speak>", ["a Hi."]),
        ('<break time="1s"/>Hi.', [1000.0, "Hi."]),
        (" <", []),
        ("", []),
    ],
)
def test_unless_it_is_said_ssml_begins_with_its_root(text: str, expected: list[str | float]) -> None:
    assert outline(plan(text, text_type="auto")) == expected
    assert outline(plan(*text, text_type="auto")) == expected


def test_white_space_before_the_text_is_not_kept_back() -> None:
    """A flood of it would be planned in one go when the text begins."""
    reader = MarkupReader("auto")
    assert list(reader.push(" \n")) == [" \n"]
    assert not reader.has_pending
    assert list(reader.push(" <spea")) == [" "]
    assert reader.has_pending
    with pytest.raises(BadSSML, match="at character 11"):
        list(reader.push("k>&bad;"))


def test_plain_text_stays_plain_where_that_is_said() -> None:
    assert any("Hi." in str(each) for each in outline(plan("<speak>Hi.</b>", text_type="text")))
    list(checking("<speak>", "text"))
    list(checking("a < b", "auto"))
    with pytest.raises(BadSSML):
        list(checking("<speak>", "auto"))


def test_a_beginning_that_does_not_go_on_is_spoken_after_a_while() -> None:
    planner = FACTORY.make("en", text_type="auto")
    assert planner.push("<sp", 0.0) == []
    deadline = planner.next_deadline()
    assert deadline is not None
    planner.tick(deadline)
    assert outline([*planner.push("lash.", 5.0), *planner.end(5.0)]) != []


PIECES = st.sampled_from(
    ["Hello there. ", "well, ", "one ", "two", "5 km ", "&amp;", "&#233;", "é\u0301 ", "汉字。", "😀", "\ud800", ". ",
     "!",
     '<break time="20ms"/>', "<p>", "</p>", "<s>", "</s>", "<b>", "</b>", '<prosody rate="slow">', "</prosody>",
     '<sub alias="some other words, and 7 more.">', "</sub>", '<say-as interpret-as="characters">', "</say-as>",
     '<say-as interpret-as="telephone">', "<!-- x -->", "<speak>", "</speak>", "<metadata>", "</metadata>", "<", "&"]
)  # fmt: skip


@st.composite
def balanced(draw: st.DrawFn) -> str:
    """Mostly well-formed."""
    inner = draw(st.lists(PIECES.filter(lambda piece: not piece.startswith("<") and piece != "&"), max_size=6))
    for _ in range(draw(st.integers(0, 5))):
        name, attributes = draw(
            st.sampled_from(
                [("p", ""), ("s", ""), ("emphasis", ""), ("prosody", ' rate="fast"'), ("prosody", ' volume="soft"')]
            )
        )
        at = draw(st.integers(0, len(inner)))
        leaf = draw(st.sampled_from(["", "<break/>", '<sub alias="a b, c 3">W3 C</sub>',
                                     '<say-as interpret-as="digits"> 1&#50;3 </say-as>',
                                     '<say-as interpret-as="characters">a.B 1</say-as>']))  # fmt: skip
        inner = [*inner[:at], f"<{name}{attributes}>", *inner[at:], leaf, f"</{name}>"]
    return "".join(inner)


@settings(deadline=None, max_examples=200)
@given(balanced() | st.lists(PIECES, max_size=14).map("".join), st.booleans(), st.booleans(), st.data())
@example("<p>a</p>b&amp;", False, False, None)
def test_any_markup_in_any_split(text: str, live: bool, reads_all: bool, data: st.DataObject | None) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8))) if data else list(range(len(text)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    factory = READS_ALL if reads_all else FACTORY
    try:
        whole = plan(text, factory=factory)
    except BadSSML:
        with pytest.raises(BadSSML):
            plan(*pieces, live=live, factory=factory)
        return
    segments = plan(*pieces, live=live, factory=factory)
    text = replace_surrogates(text)
    facts = [[(each.text, each.start, each.end, each.silence_ms, each.speed, each.volume) for each in made]
             for made in (segments, whole)]  # fmt: skip
    assert facts[0] == facts[1]
    assert all(one.end <= two.start for one, two in itertools.pairwise(segments))
    words = [word for segment in segments for word in segment.words]
    assert all(one.end <= two.start for one, two in itertools.pairwise(words))
    for segment in segments:
        for word in segment.words:
            assert word.text == text[word.start : word.end]
            assert segment.start <= word.start < word.end <= segment.end
            assert not word.text.startswith("<"), "a tag is no word"


@settings(deadline=None)
@given(st.text(max_size=80), st.sampled_from(["auto", "text", "ssml"]), st.sampled_from(["", "<speak>", " <speak"]))
def test_any_text_is_planned_or_refused(text: str, text_type: str, beginning: str) -> None:
    text = beginning + text
    try:
        plan(*text, text_type=text_type)
    except BadSSML:
        assert text_type == "ssml" or text.lstrip().startswith(("<speak", "<?xml"))

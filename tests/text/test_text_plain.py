"""What plain text asks for: which tags there are, that no split of the stream hides one, what becomes of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.text.marks import MAX_SUBSTITUTED_CHARS, Break, Decoded, Pause, Piece, Substitute, Tag
from realtime_tts.text.markup import MAX_TAG_CHARS, PlainReader
from realtime_tts.text.tags import MAX_PAUSE_MS


def found(*deltas: str) -> list[Piece]:
    """With neighbouring text joined: how it is cut does not matter."""
    reader = PlainReader()
    return joined([*(piece for delta in deltas for piece in reader.push(delta)), *reader.release()])


def joined(pieces: list[Piece]) -> list[Piece]:
    whole: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and whole and isinstance(whole[-1], str):
            whole[-1] += piece
        else:
            whole.append(piece)
    return whole


def num_chars(piece: Piece) -> int:
    return len(piece) if isinstance(piece, str) else 0 if isinstance(piece, Break) else piece.num_chars


@pytest.mark.parametrize(
    ("tag", "duration_ms"),
    [
        ("<break/>", 500),
        ("<break />", 500),
        ("<BREAK>", 500),
        ("</break>", 0),
        ('<break time="400ms"/>', 400),
        ('<break time="1.5s" />', 1500),
        ("<break time='.5s'/>", 500),
        ('<break strength="x-weak"/>', 100),
        ('<break strength="none" time="2s"/>', 2000),
        ('<break time = "0ms">', 0),
        ('<break time="999999s"/>', MAX_PAUSE_MS),
        ("[pause]", 500),
        ("[pause 1s]", 1000),
        ("[long-pause]", 1000),
        ("[[Break]]", 500),
        ("[Pause: 250 ms]", 250),
        ("[pause 1.25s]", 1250),
        ("[PAUSE 2S]", 2000),
        ('<BREAK TIME="400MS"/>', 400),
        ('<break strength="X-Weak"/>', 100),
        ("[short pause]", 250),
        ("[Long Pause]", 1000),
    ],
)
def test_a_pause_is_found_in_any_split(tag: str, duration_ms: float) -> None:
    text = f"Well. {tag} Then"
    whole = ["Well. ", Pause(len(tag), duration_ms), " Then"]
    assert found(text) == found(*text) == whole
    for cut in range(len(text)):
        assert found(text[:cut], text[cut:]) == whole


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ('a <speed ratio="1.5"/>b', ["a ", Break(False, 1.5), Decoded(" ", 20), "b"]),
        ("<SPEED ratio='.1'>a</speed>", [Break(False, 0.25), Decoded(" ", 18), "a", Break(), Tag(8)]),
        (
            '<speed ratio="2"/><volume ratio="9"/>',
            [Break(False, 2.0), Decoded(" ", 18), Break(False, 2.0, 2.0), Decoded(" ", 19)],
        ),
        ('<volume level="0.5" />a', [Break(False, 1.0, 0.5), Decoded(" ", 22), "a"]),
        ('<speed ratio="fast"/><volume/>a', [Decoded(" ", 21, True), Decoded(" ", 9, True), "a"]),
        ('<emotion value="angry" />Leave!', [Decoded(" ", 25, True), "Leave!"]),
        ("<spell>AB-1</spell>.", [Decoded(" ", 7), Substitute("AB-1", 4, say_as="characters"), Tag(8), "."]),
        (
            "<spell> (12) 3 <break/>4</spell>",
            [
                Decoded(" ", 7),
                " ",
                Substitute("(12) 3", 6, say_as="telephone"),
                " ",
                Pause(8, 500.0),
                Substitute("4", 1, say_as="telephone"),
                Tag(8),
            ],
        ),
        ("<spell></spell>", [Decoded(" ", 7), Tag(8)]),
        ("Ha [laughter] ha", ["Ha ", Decoded(" ", 10, True), " ha"]),
        ("[Whispers] Hush, [laughs harder]", [Decoded(" ", 10, True), " Hush, ", Decoded(" ", 15, True)]),
        ("<break time='x'/>", [Decoded(" ", 17, True)]),
        ('<Expr type="break" label="2s"/>', [Pause(31, 2000.0)]),
        (
            '<expr type="prosody" label="slow"/><expr type="prosody" label="loud">a</expr>b',
            [
                Break(False, 0.75),
                Decoded(" ", 35),
                Break(False, 0.75, 1.4),
                Decoded(" ", 34),
                "a",
                Break(),
                Tag(7),
                "b",
            ],
        ),
        (
            '<expr type="spell">A-1</expr></expr>.',
            [Decoded(" ", 19), Substitute("A-1", 3, say_as="characters"), Tag(7), Tag(7), "."],
        ),
        ("<expr type='expression' label=\"don't rush, be warm\"/>a", [Decoded(" ", 53, True), "a"]),
        (
            '<prosody rate="80%" pitch="low">a</prosody><prosody>',
            [Break(False, 0.8), Decoded(" ", 32, True), "a", Break(), Tag(10), Decoded(" ", 9, True)],
        ),
        ('<PROSODY RATE="SLOW" VOLUME="+99DB">', [Break(False, 0.75, 2.0), Decoded(" ", 36)]),
        ('<prosody rate="-100%" volume="+99dB">', [Break(False, 0.25, 2.0), Decoded(" ", 37)]),
        (
            '<say-as interpret-as="digits">12</say-as><say-as interpret-as="date">',
            [Decoded(" ", 30), Substitute("12", 2, say_as="telephone"), Tag(9), Decoded(" ", 28, True)],
        ),
        (
            "<speed ratio=2><volume ratio=.5></speed></volume>",
            [
                Break(False, 2.0),
                Decoded(" ", 15),
                Break(False, 2.0, 0.5),
                Decoded(" ", 17),
                Break(False, 1.0, 0.5),
                Tag(8),
                Break(),
                Tag(9),
            ],
        ),
        (
            "[very sad]a [laughs softly][[clear throat]]<<Warm>>",
            [
                Decoded(" ", 10, True),
                "a ",
                Decoded(" ", 15, True),
                Decoded(" ", 16, True),
                Decoded(" ", 8, True),
            ],
        ),
        (
            "<spell>" + "a" * (MAX_SUBSTITUTED_CHARS + 1),
            [
                Decoded(" ", 7),
                Substitute("a" * MAX_SUBSTITUTED_CHARS, MAX_SUBSTITUTED_CHARS, say_as="characters"),
                Substitute("a", 1, say_as="characters"),
            ],
        ),
    ],
)
def test_what_the_tags_of_other_services_ask_for(text: str, pieces: list[Piece]) -> None:
    assert found(text) == found(*text) == pieces


def test_what_is_to_be_spelt_out_does_not_wait_for_its_end() -> None:
    reader = PlainReader()
    assert list(reader.push("<spell>ab")) == [Decoded(" ", 7)]
    assert reader.has_pending
    assert list(reader.release()) == [Substitute("ab", 2, say_as="characters")]
    assert not reader.has_pending
    assert list(reader.push("c</spell>d")) == [Substitute("c", 1, say_as="characters"), Tag(8), "d"]


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        "<speeds>",
        "<speed ratio='1' " + "x" * MAX_TAG_CHARS + "/>",
        "<spe",
        "</volumes>",
        "<b>bold</b>",
        "<breakfast/>",
        "<break",
        "<break " + "x" * MAX_TAG_CHARS + "/>",
        "[paused]",
        "[pause for a week]",
        "[12]",
        "[[sigh]",
        "<<sigh>",
        "<sigh>",
        "[laughter",
        "[laughter at the back]",
        "[\u017fad]",  # a long s
        "whispers",
        "[[",
        "see [pau",
        "<<<<",
        "[pause <b> 1s]",
    ],
)
def test_what_is_no_pause_stays_text(text: str) -> None:
    assert found(text) == found(*text) == [text]


PIECES = st.sampled_from(
    [
        "<break/>",
        "<",
        "[",
        "<break",
        ' time="1s"/>',
        "[pause",
        " 1s]",
        "[whispers]",
        "[laugh",
        "ter]",
        "/>",
        "]",
        "a",
        " ",
        "<break time='",
        "</break>",
        "<spell>",
        "</spell>",
        '<speed ratio="2"/>',
        "<expr type='prosody' label='soft'>",
        "</expr>",
        "[[sigh]]",
        "<<wa",
        "rm>>",
        "<vol",
        "é",
    ]
)


@given(st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=20), st.data())
def test_any_split_finds_the_same_and_every_character_comes_once(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    deltas = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    tokens = found(*deltas)
    assert tokens == found(text)
    assert sum(map(num_chars, tokens)) == len(text)


@given(st.text(alphabet="<[ break/>pause]d", max_size=200))
def test_little_is_held_back(text: str) -> None:
    reader = PlainReader()
    num_given = sum(map(num_chars, reader.push(text)))
    assert len(text) - num_given == sum(map(num_chars, reader.release())) < MAX_TAG_CHARS
    assert not reader.has_pending

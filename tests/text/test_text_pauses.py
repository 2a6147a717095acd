"""Pauses in a text: which there are, that no split of the stream hides one, and what becomes of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.text.pauses import MAX_PAUSE_MS, Pause, PauseFinder


def found(*deltas: str) -> list[str | Pause]:
    """With neighbouring text joined: how it is cut is nobody's business."""
    finder = PauseFinder()
    tokens = [token for delta in deltas for token in finder.push(delta)]
    tokens.append(finder.release())
    joined: list[str | Pause] = []
    for token in tokens:
        if isinstance(token, str) and joined and isinstance(joined[-1], str):
            joined[-1] += token
        elif token:
            joined.append(token)
    return joined


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
        ("[Pause: 250 ms]", 250),
        ("[pause 1.25s]", 1250),
    ],
)
def test_a_pause_is_found_in_any_split(tag: str, duration_ms: float) -> None:
    text = f"Well. {tag} Then"
    whole = ["Well. ", Pause(len(tag), duration_ms), " Then"]
    assert found(text) == found(*text) == whole
    for cut in range(len(text)):
        assert found(text[:cut], text[cut:]) == whole


@pytest.mark.parametrize(
    "text",
    [
        "a < b and c > d",
        "<b>bold</b>",
        "<breakfast/>",
        "<break time='x'/>",
        "<break time='1 week'/>",
        "<break",
        "<break " + "x" * 60 + "/>",
        "[paused]",
        "[pause for a week]",
        "[12]",
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
        "/>",
        "]",
        "a",
        " ",
        "<break time='",
        "</break>",
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
    assert sum(token.num_chars if isinstance(token, Pause) else len(token) for token in tokens) == len(text)


@given(st.text(alphabet="<[ break/>pause]", max_size=200))
def test_little_is_held_back(text: str) -> None:
    finder = PauseFinder()
    num_given = sum(len(t) if isinstance(t, str) else t.num_chars for t in finder.push(text))
    assert len(text) - num_given == len(finder.release()) < 48
    assert not finder.is_holding

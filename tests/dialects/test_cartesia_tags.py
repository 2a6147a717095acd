"""Tags in a text are left out, however it is split; nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.dialects.cartesia.tags import TagFilter, without_tags

PIECES = st.lists(
    st.sampled_from(
        ["a", " ", "1 < 2", "<", ">", "</", "<spell>", "</spell>", '<speed ratio="1"/>', "<sp", "<p>", "é"]
    ),
    max_size=12,
)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ('Wait. <break time="1s"/> Go on.', 'Wait. <break time="1s"/> Go on.'),
        ('Wait. <volume ratio="2"/> Go on.', "Wait.  Go on."),
        ('<emotion value="angry" />Leave!', "Leave!"),
        ("Code <spell>AB12</spell>.", "Code AB12."),
        ("one<SPEED/>two", "one two"),
        ("to<spell>12</spell>", "to 12"),
        ("2 < 3 and <b>bold</b> <speeds>", "2 < 3 and <b>bold</b> <speeds>"),
        ("<speed " + "x" * 200 + ">", "<speed " + "x" * 200 + ">"),
    ],
)
def test_what_is_left_out(text: str, spoken: str) -> None:
    assert without_tags(text) == spoken


@given(PIECES)
def test_a_text_in_letters_says_the_same_as_the_whole(pieces: list[str]) -> None:
    text = "".join(pieces)
    tags = TagFilter()
    spoken = "".join(map(tags.push, text)) + tags.finish()
    # In letters it is not known what follows a tag, so the gap between two words may be missing.
    assert spoken.replace(" ", "") == without_tags(text).replace(" ", "")


@given(st.text(max_size=40))
def test_a_text_without_tags_is_not_touched(text: str) -> None:
    tags = TagFilter()
    assert tags.push(text) + tags.finish() == without_tags(text)


def test_what_is_no_tag_does_not_wait_for_long() -> None:
    tags = TagFilter()
    assert tags.push("a <s") == "a "  # of `speed`
    assert tags.push("mall") == "<small"
    assert tags.push("<speed " + "x" * 100) == "<speed " + "x" * 100

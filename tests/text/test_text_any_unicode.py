"""Any text of Unicode, in any split: planning never raises, and what comes out fits what went in."""

from __future__ import annotations

import unicodedata

from hypothesis import example, given, settings
from hypothesis import strategies as st

from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.planner import Planner, Segment
from realtime_tts.text.segmenter import Segmenter, SegmenterConfig
from realtime_tts.text.skipped import DROPPED

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
NORMALIZERS = st.sampled_from(
    [
        Normalizer("en", LETTERS),
        Normalizer("en"),
        Normalizer("de", LETTERS),
        Normalizer("zh"),
        Normalizer("ar"),
        Normalizer("xx", LETTERS),
    ]
)
# Marks, compatibility characters, right to left, zero width, astral planes, digits of other scripts; and what rules
# look for, so that it gets glued to them.
AWKWARD = st.sampled_from(
    ["\u0301", "\u0489", "\u20e3", "\u093e", "\u0e31", "\u3099", "㎏", "㏂", "㎧", "㍱", "㋿", "½",
     "⅞", "⑳", "⒈", "№", "℃", "ﷺ", "ﬃ", "ǆ", "Ⅷ", "ⅷ", "…", "‥", "⁉", "ª", "²", "₂", "™", "ﾞ",
     "ｶ", "Ａ", "３", "％", "＄", "．", "ם", "ع", "ـ", "\u200f", "\u202e", "\u2066", "\u200b",
     "\u200d", "\ufeff", "\u00ad", "\ufe0f", "😀", "👨\u200d👩", "🇩🇪", "👍🏽", "𝐀", "𝟗", "\U000e0067",
     "\U0010ffff", "\ue000", "\u0378", "٣", "۴", "५", "๖", "߃", "\ud800", "\udfff", "\ufffd",
     "\x00", "\x1f", "\x85", "\u2028", "\u00a0", "\u3000", "\u1680", "汉", "。", "「", "」", "П", "α",
     "ß", "İ", "ſ", "K", "5", "1,234", "%", "$", "€", "¥", "¢", "kg", "km/h", "a", "A", "I",
     "U.S.", "Dr.", "x", "-", "–", "'", "'s", "\"", "(", ")", "#", "@", "&", "/", ":", "=", "^",
     "*", "`", "_", "http://a.io/", "a@b.io", " ", " ", " ", "\n", ". ", ", ", "? ", "word",
     "Mon", "Jan", "[12]", "](x.y/z)", "<b>", ":D", "The ", "Part ", "VIII", "API", "March 3, ", "2024-03-05",
     "12:30 pm", "$5 ", "3.14", "5 km ", "1/2", "5'", "v2.0.1", "x_y", "https://a.io/b ", "—", "“", "”"]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(AWKWARD, max_size=60).map("".join),
    st.lists(AWKWARD | st.text(max_size=3), max_size=40).map("".join),
    st.text(max_size=200),
    st.tuples(st.lists(AWKWARD, min_size=1, max_size=4).map("".join), st.integers(1, 150)).map(lambda t: t[0] * t[1]),
)


@given(text=TEXTS, normalizer=NORMALIZERS)
@example(text="\u20ac@", normalizer=Normalizer("en", LETTERS))
@settings(deadline=None)
def test_what_may_not_be_skipped_is_not(text: str, normalizer: Normalizer) -> None:
    planner = Planner(normalizer, SegmenterConfig(max_chars=70))
    planner.push(text, 0.0)
    planner.end(0.0)
    assert not planner.take_skipped() or planner.may_skip(text)


def test_plain_text_may_not_be_skipped() -> None:
    text = (
        "It\u2019s 5:30 \u2013 the caf\u00e9 costs $5.50 (50\u00a0%), isn't it? \u201cYes!\u201d *Really* http://a.io/"
    )
    assert not Normalizer("en", LETTERS).may_skip(text)
    assert Normalizer("en", LETTERS).may_skip(text + "\U0001f600")


def plan(text: str, normalizer: Normalizer, max_chars: int, split: int | None = None) -> list[Segment]:
    planner = Planner(normalizer, SegmenterConfig(max_chars=max_chars))
    step = split or max(1, len(text))
    found = [each for start in range(0, len(text), step) for each in planner.push(text[start : start + step], 0.0)]
    found += planner.end(0.0)
    assert planner.num_chars == len(text)
    return found


def dropped(text: str, normalizer: Normalizer, max_chars: int) -> list[tuple[int, int]]:
    """Markup without a sound; not where it lies within what is told as skipped."""
    told = {index for start, end in skipped(text, normalizer, max_chars, 1) for index in range(start, end)}
    segmenter = Segmenter(SegmenterConfig(max_chars=max_chars))
    sent = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    segments = [*segmenter.push(sent), *segmenter.flush()]
    found = [
        (each.start + a, each.start + b)
        for each in segments
        for a, b in normalizer.normalize(each.text).ranges(DROPPED)
    ]
    return [(start, end) for start, end in found if start not in told]


def skipped(text: str, normalizer: Normalizer, max_chars: int, split: int) -> list[tuple[int, int]]:
    planner = Planner(normalizer, SegmenterConfig(max_chars=max_chars))
    found: list[tuple[int, int]] = []
    for start in range(0, len(text), split):
        planner.push(text[start : start + split], 0.0)
        found += planner.take_skipped()
    planner.end(0.0)
    return [*found, *planner.take_skipped()]


@given(text=TEXTS, normalizer=NORMALIZERS, max_chars=st.integers(1, 200), split=st.integers(1, 12))
@example(text="㎏%㎏%㎏%\u0301a" * 20, normalizer=Normalizer("en", LETTERS), max_chars=200, split=1)
@example(text="a" * 150 + "П" * 50, normalizer=Normalizer("en", LETTERS), max_chars=70, split=1)
@example(text="םhttp://a.io/" * 21, normalizer=Normalizer("en", LETTERS), max_chars=14, split=1)
@settings(max_examples=1000, deadline=None)
def test_words_tile_any_text_and_any_split_is_planned_the_same(
    text: str, normalizer: Normalizer, max_chars: int, split: int
) -> None:
    segments = plan(text, normalizer, max_chars)
    sent = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
    end = 0
    for number, segment in enumerate(segments):
        assert segment.index == number
        assert segment.text
        assert len(segment.text) <= max_chars + 3 or max_chars < 20  # a short reading is not divided
        assert segment.words
        assert end <= segment.start <= segment.words[0].start
        end, spoken_end = segment.start, 0
        for word in segment.words:
            assert end <= word.start < word.end <= segment.end
            assert sent[word.start : word.end] == word.text
            assert word.weight > 0
            assert spoken_end <= word.spoken_start <= word.spoken_end <= len(segment.text)
            end, spoken_end = word.end, word.spoken_end
        end = segment.end
    assert plan(text, normalizer, max_chars, split) == segments


@given(text=TEXTS, max_chars=st.integers(1, 200), language=st.sampled_from(["en", "de", "zh", "xx"]))
@settings(max_examples=300, deadline=None)
def test_no_character_reaches_a_model_that_lacks_it(text: str, max_chars: int, language: str) -> None:
    for segment in plan(text, Normalizer(language, LETTERS), max_chars):
        assert set(segment.text.lower()) <= LETTERS


@given(text=TEXTS, normalizer=NORMALIZERS)
@settings(max_examples=500, deadline=None)
def test_readings_do_not_overlap_and_are_all_that_is_spoken(text: str, normalizer: Normalizer) -> None:
    normalized = normalizer.normalize(text)
    assert normalized.source == text
    assert normalized.text == normalized.text.strip()
    assert "  " not in normalized.text
    assert "\n" not in normalized.text
    spoken_end = source_end = 0
    for span in normalized.spans:
        assert spoken_end <= span.start < span.end <= len(normalized.text)
        assert source_end <= span.source_start < span.source_end <= len(text)
        assert not any(char.isalnum() for char in normalized.text[spoken_end : span.start])
        spoken_end, source_end = span.end, span.source_end
    assert not any(char.isalnum() for char in normalized.text[spoken_end:])


@given(text=TEXTS, normalizer=NORMALIZERS, max_chars=st.integers(1, 200), split=st.integers(1, 12))
@settings(max_examples=500, deadline=None)
def test_text_is_spoken_or_skipped_or_dropped_and_never_two_of_them(
    text: str, normalizer: Normalizer, max_chars: int, split: int
) -> None:
    ranges = skipped(text, normalizer, max_chars, split)
    assert ranges == skipped(text, normalizer, max_chars, max(1, len(text)))
    words = [(word.start, word.end) for each in plan(text, normalizer, max_chars) for word in each.words]
    end = -1
    for start, after in ranges:
        assert end < start < after <= len(text)
        assert any(not (char.isspace() or unicodedata.category(char).startswith("P")) for char in text[start:after])
        end = after
    owners = [0] * len(text)
    for start, after in [*words, *ranges, *dropped(text, normalizer, max_chars)]:
        for index in range(start, after):
            owners[index] += 1
    assert max(owners, default=0) <= 1, owners
    for index, char in enumerate(text):
        assert owners[index] or not char.isalnum(), (index, char)

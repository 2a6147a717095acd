"""What nothing can speak is reported as skipped, and never as a word; nor is markup, which no listener misses."""

from __future__ import annotations

import pytest

from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.planner import Planner

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz ,.?!'-")
SPELLING = Normalizer("en", LETTERS)
ANY = Normalizer("en")


def split(text: str, normalizer: Normalizer) -> tuple[list[str], list[str]]:
    """The words and the skipped parts of a context."""
    planner = Planner(normalizer)
    segments = [*planner.push(text, 0.0), *planner.end(0.0)]
    words = [word.text for segment in segments for word in segment.words]
    skipped = [text[start:end] for start, end in planner.take_skipped()]
    assert list(planner.take_skipped()) == []
    return words, skipped


@pytest.mark.parametrize(
    ("text", "words", "skipped"),
    [
        ("", [], []),
        ("... !? —", [], []),
        ("\u200b\ufeff \x00", [], []),
        ("😀", [], ["😀"]),
        ("♫ 🎵 ♫!", [], ["♫ 🎵 ♫"]),
        ("Привет, мир! Hello.", ["Hello."], ["Привет, мир"]),
        ("hi 😀 there 👍", ["hi", "there"], ["😀", "👍"]),
        ("he😀llo!", ["he", "llo!"], ["😀"]),
        ("👨\u200d👩\u200d👧 ok ❤\ufe0f!", ["ok"], ["👨\u200d👩\u200d👧", "❤\ufe0f"]),
        ("👍🏽 fine", ["fine"], ["👍🏽"]),
        ("hi Привет's dog", ["hi", "dog"], ["Привет's"]),
        ("aПb, Пc", ["a", "b,", "c"], ["П", "П"]),
        ("a\ufefcb", ["a", "b"], ["\ufefc"]),
        ("#Привет", [], ["Привет"]),
        ("汉字 and 5€ for π", ["and", "5€", "for"], ["汉字", "π"]),
        ("see [the link](http://x.y/z) here", ["see", "[the", "link", "here"], []),
        ("so [12] :D <b>it</b> is", ["so", "it", "is"], []),
        ("```python\nso xD 😀", ["so"], ["😀"]),
        ("[12]汉<b>字 so", ["so"], ["汉<b>字"]),
        ("ok 😀 <br> 🎉 so", ["ok", "so"], ["😀 <br> 🎉"]),
        ("`code` and **bold** = Acme™ ©", ["`code`", "and", "**bold**", "=", "Acme™"], []),
        ("café ½ 5 µm", ["café", "½", "5", "µm"], []),
        ("😀 " * 100 + "Hello there. " + "🎉" * 80, ["Hello", "there."], [("😀 " * 100).strip(), "🎉" * 80]),
    ],
)
def test_text_outside_the_charset_is_skipped(text: str, words: list[str], skipped: list[str]) -> None:
    assert split(text, SPELLING) == (words, skipped)


@pytest.mark.parametrize(
    ("text", "words", "skipped"),
    [
        ("Привет 😀 мир", ["Привет", "мир"], ["😀"]),
        ("汉字 and π", ["汉", "字", "and", "π"], []),
        ("😀!", [], ["😀"]),
        ("ﷺ ㎏", ["ﷺ", "㎏"], []),
    ],
)
def test_a_model_without_a_charset_skips_what_is_not_speech(text: str, words: list[str], skipped: list[str]) -> None:
    assert split(text, ANY) == (words, skipped)


def test_skipped_text_is_known_once_speech_follows_or_the_text_is_flushed() -> None:
    planner = Planner(SPELLING, stall_flush_s=1.0)
    planner.push("😀 Привет ", 0.0)
    assert planner.take_skipped() == []
    planner.push("Hello there, my friend. And", 0.0)
    assert planner.take_skipped() == [(0, 8)]
    planner.push(" 🎉", 0.0)
    planner.flush(0.0)
    assert planner.take_skipped() == [(37, 38)]
    planner.push("🎉 ", 0.0)
    planner.tick(9.0)
    assert planner.take_skipped() == [(38, 39)]
    planner.push("мир", 0.0)
    planner.end(0.0)
    assert planner.take_skipped() == [(40, 43)]

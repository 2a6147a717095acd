"""What the model cannot speak is marked while it is typed, as the server's normaliser would find it."""

from __future__ import annotations

import unicodedata

import pytest
from playground_page import PlaygroundPage

from realtime_tts.contract.location import STARTER_VOICE, check_location
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.text.folding import letters_within
from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.skipped import SKIPPED

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

MARKED = "return [...document.querySelectorAll('.marks u')].map((e) => e.textContent)"
LAID_OUT = """
return [...document.querySelectorAll('#text, .marks')].map((e) => [e.scrollTop, e.scrollHeight, e.clientWidth])
"""
FOUND = """
const [chars, letters, done] = arguments;
import('/speakable.js').then(({ unspokenSpans }) =>
  done(chars.filter((char) => unspokenSpans(`a ${char} b`, letters).length > 0)));
"""


def test_it_is_marked_and_told_while_it_is_typed(page: PlaygroundPage) -> None:
    text = page.driver.find_element("id", "text")
    told_by = text.get_attribute("aria-describedby")
    assert told_by is not None
    text.clear()
    text.send_keys("Hello, мир ☺")
    assert page.script(MARKED) == ["мир", "☺"]
    assert page.text_of(told_by) == "This voice cannot speak: мир  ☺"
    page.choose("lexicon", "мир = peace")
    assert page.script(MARKED) == ["☺"]

    text.send_keys("\nand more of the same" * 30, "\n")
    page.wait(lambda: page.script(LAID_OUT)[0] == page.script(LAID_OUT)[1], "the marks lie under the text")
    assert page.script(LAID_OUT)[0][0] > 0, "scrolled"
    text.clear()
    assert page.script(MARKED) == []
    assert page.text_of(told_by) == ""


@pytest.mark.parametrize("limited", [True, False], ids=["starter voice", "any letter"])
def test_what_is_marked_is_skipped_by_the_server(page: PlaygroundPage, limited: bool) -> None:
    starter_voice = check_location(STARTER_VOICE)
    assert starter_voice is not None
    charset = ServingPolicy.load(starter_voice).charset if limited else None
    normalizer = Normalizer("en", None if charset is None else frozenset(charset))
    codes = (code for code in range(0x20000) if not 0x3400 < code < 0xD7A4)  # these are all alike
    chars = [chr(code) for code in codes if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    skipped = {char for char in chars if SKIPPED in normalizer.normalize(f"a {char} b").fates}
    letters = None if charset is None else letters_within(charset)
    found = set(page.driver.execute_async_script(FOUND, chars, letters))  # type: ignore[no-untyped-call]
    assert found - skipped == set()
    missed = [char for char in skipped - found if char.isalpha()]
    assert len(missed) < 30, missed  # of some 5000
    assert {"\N{PARTY POPPER}", "\N{WHITE SMILING FACE}", "\N{REGIONAL INDICATOR SYMBOL LETTER A}"} <= found

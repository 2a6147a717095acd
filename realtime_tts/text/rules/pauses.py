"""White space and punctuation as pauses."""

from __future__ import annotations

from realtime_tts.text.characters import is_clause_stop, is_sentence_stop
from realtime_tts.text.rules.base import SpokenToken

_PAUSES = {",": ",", ";": ";", ":": ":", "—": "—", "(": ",", ")": ",", "[": ",", "]": ",", "|": ",", "→": ",", "⇒": ","}


def pause_token(text: str, index: int) -> SpokenToken:
    """Return the pause or the gap at `index`, a character that no word begins with."""
    char = text[index]
    after = text[index + 1] if index + 1 < len(text) else " "
    if char == " " and not after.isspace():
        return SpokenToken("", index + 1)
    if char.isspace():
        return _white_space(text, index)
    if char in ".!?":
        return _stops(text, index)
    if is_sentence_stop(char) or is_clause_stop(char):
        return SpokenToken(char, index + 1, pause=True)
    before = text[index - 1] if index else " "
    if char in "-–" and before.isspace() and after.isspace() and index:
        return SpokenToken("—", index + 1, pause=True)
    if char == "–" or text.startswith("--", index):
        return SpokenToken("—", index + (1 if char == "–" else 2), pause=True)
    if char in _PAUSES:
        return SpokenToken(_PAUSES[char], index + 1, pause=True)
    return SpokenToken("", index + 1, spaced=char not in "'\"*_`")


def _white_space(text: str, index: int) -> SpokenToken:
    end = index + 1
    while end < len(text) and text[end].isspace():
        end += 1
    num_newlines = text.count("\n", index, end)
    wrapped = num_newlines == 1 and end < len(text) and text[end].islower()
    if num_newlines and not wrapped:
        return SpokenToken(".", end, pause=True)
    return SpokenToken("", end)


def _stops(text: str, index: int) -> SpokenToken:
    """Return one pause for a run of stops: the strongest of them, "..." for dots alone."""
    end = index
    while end < len(text) and text[end] in ".!?":
        end += 1
    run = text[index:end]
    tight = end < len(text) and text[end].isalnum() and index > 0 and text[index - 1].isalnum()
    if run == "." and tight and text[end].islower():
        return SpokenToken("", end)
    if "?" in run:
        return SpokenToken("?", end, pause=True)
    if "!" in run:
        return SpokenToken("!", end, pause=True)
    return SpokenToken("..." if len(run) > 1 else ".", end, pause=True)

"""Markup of a text: tags in plain text, the choice between them and SSML, and positions in the text with its markup.
Both readers are incremental.

`tags.py` lists the tags. The result does not depend on how the stream is split: text that may become a tag is kept back
until that is decided, `MAX_TAG_CHARS` at most.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import regex

from realtime_tts.text import tags
from realtime_tts.text.marks import (
    MAX_SUBSTITUTED_CHARS,
    SOUND,
    Break,
    Decoded,
    Pause,
    Piece,
    Substitute,
    Tag,
    substituted,
)
from realtime_tts.text.spelling import KINDS
from realtime_tts.text.ssml import SsmlReader
from realtime_tts.text.tags import ELEMENTS, Effect

MAX_TAG_CHARS = 256  # LiveKit's descriptions of a manner are free text


def _plain_name(name: str) -> str:
    """Return the key of a name in the tables below, the same for "clear_throat" and "Clear throat"."""
    return re.sub("[ _-]", " ", name).lower()


_PAUSES_MS = {_plain_name(name): pause_ms for name, pause_ms in tags.PAUSES_MS.items()}
_SOUNDS = {_plain_name(name): sound for name, sound in tags.MODEL_SOUNDS.items()}
_NAMES = "|".join(_plain_name(name).replace(" ", "[ _-]") for name in (*_PAUSES_MS, *_SOUNDS, *tags.DIRECTIONS))
_DURATION = r"(?:\d{1,6}(?:\.\d{0,3})?|\.\d{1,3})\s{0,2}(?:ms|s)"
_NAMED = (
    rf"(?=[a-z])(?:(?:very|really|slightly|a little) )?(?P<name>{_NAMES})(?: [a-z]{{2,14}}ly)?"
    rf"(?:\s?:?\s?(?P<time>{_DURATION}))?\s?"
)
_TAG = regex.compile(
    rf"<(?P<slash>/?)(?P<element>{'|'.join(ELEMENTS)})(?P<attributes>(?:\s[^<>]{{0,{MAX_TAG_CHARS - 24}}})?)/?>"
    rf"|(?:(?P<two>\[\[)|(?P<angles><<)|\[){_NAMED}(?(two)\]\]|(?(angles)>>|\]))"
    rf"|\\\{{\s?(?:pause\s?:\s?(?P<silence>{_DURATION})"
    r'|"word"\s?:\s?"(?P<word>[^"\\]+)"\s?,\s?"pronounce"\s?:\s?"[^"\\]*")\s?\\\}',
    regex.IGNORECASE | regex.ASCII,
)
_ATTRIBUTE = re.compile(r"""([\w:-]+)\s?=\s?(?:"([^"]*)"|'([^']*)'|([^\s"'/]+))""")
_OPENER = re.compile(r"[<\[\\]")
_ROOTS = ("<speak", "<?xml")


def checking(text: str, text_type: str) -> Iterator[None]:
    """Check the markup of a whole text, in stretches of work.

    Raises:
        BadSSML: the text is SSML and malformed.
    """
    if text_type == "text" or (text_type == "auto" and not text.lstrip().startswith(_ROOTS)):
        return
    reader = SsmlReader()
    for start in range(0, len(text), 512):
        for _ in reader.push(text[start : start + 512]):
            pass
        yield
    reader.finish()


class MarkupReader:
    """Incremental reader of markup: text deltas in, parts out, in order. Text within SSML may have tags in brackets.

    Args:
        text_type: ``text``, ``ssml``, or ``auto``: SSML if the text begins with ``<speak`` or ``<?xml``.
        makes_sounds: the model makes VoxCPM2's sounds, such as a laugh.
    """

    def __init__(self, text_type: str, makes_sounds: bool = False) -> None:
        self._text = PlainReader(makes_sounds)
        self._elements = None if text_type == "text" else SsmlReader()
        # Text kept back until its type is known, without the white space before it; None: the type is known.
        self._beginning = "" if text_type == "auto" else None

    @property
    def has_pending(self) -> bool:
        """True if characters are kept back that `release` would return."""
        return bool(self._beginning) or self._text.has_pending

    def push(self, delta: str) -> Iterator[Piece]:
        if self._beginning is not None:
            text = self._beginning + delta
            beginning = text.lstrip()
            if len(beginning) < len(_ROOTS[0]) and any(root.startswith(beginning) for root in _ROOTS):
                self._beginning, delta = beginning, text[: len(text) - len(beginning)]
            else:
                self._elements = self._elements if beginning.startswith(_ROOTS) else None
                self._beginning, delta = None, text
        for piece in (delta,) if self._elements is None else self._elements.push(delta):
            if isinstance(piece, str):
                yield from self._text.push(piece)
            else:
                yield from self._text.release()
                yield piece

    def release(self) -> Iterator[Piece]:
        """Yield the text that was kept back, unchanged: nothing more comes soon. Incomplete elements of SSML are never
        taken for text; after white space alone, SSML may still follow."""
        if self._beginning:
            pending, self._beginning, self._elements = self._beginning, None, None
            yield from self._text.push(pending)
        yield from self._text.release()

    def finish(self) -> Iterator[Piece]:
        """Yield the text that was kept back: nothing more comes."""
        yield from self.release()
        if self._elements is not None:
            self._elements.finish()


class PlainReader:
    """Reader of plain text: deltas in, text and markup out, in order. Together they contain every character once."""

    def __init__(self, makes_sounds: bool = False) -> None:
        self._makes_sounds = makes_sounds
        self._pending = ""
        self._speed = self._volume = 1.0
        self._spelt: str | None = None  # text to spell out that was not returned yet; None: text is not spelt out

    @property
    def has_pending(self) -> bool:
        """True if characters are kept back: they may become a tag, or will be spelt out together."""
        return bool(self._pending or self._spelt)

    def push(self, delta: str) -> Iterator[Piece]:
        """Add text."""
        text, self._pending = self._pending + delta, ""
        plain_from = at = 0
        while (opener := _OPENER.search(text, at)) is not None:
            at = opener.start()
            match = _TAG.match(text, at, at + MAX_TAG_CHARS, partial=True)
            if match is None or (match.partial and at + MAX_TAG_CHARS <= len(text)):
                at += 1
            elif match.partial:
                self._pending, text = text[at:], text[:at]
            else:
                yield from self._plain(text[plain_from:at])
                yield from self._spell_pending()
                yield from self._follow(match)
                plain_from = at = match.end()
        yield from self._plain(text[plain_from:])

    def release(self) -> Iterator[Piece]:
        """Yield the text that was kept back, unchanged: nothing more comes, or not soon."""
        pending, self._pending = self._pending, ""
        yield from self._plain(pending)
        yield from self._spell_pending()

    def _plain(self, text: str) -> Iterator[Piece]:
        if self._spelt is None:
            if text:
                yield text
            return
        self._spelt += text
        while len(self._spelt) > MAX_SUBSTITUTED_CHARS:
            yield from _spelt_out(self._spelt[:MAX_SUBSTITUTED_CHARS])
            self._spelt = self._spelt[MAX_SUBSTITUTED_CHARS:]

    def _spell_pending(self) -> Iterator[Piece]:
        if self._spelt:
            yield from _spelt_out(self._spelt)
            self._spelt = ""

    def _follow(self, match: regex.Match[str]) -> Iterator[Piece]:
        tag, element = match.group(), match["element"]
        if match["word"] is not None:
            start, end = match.span("word")
            yield Tag(start - match.start())
            yield from self._plain(match["word"])
            yield from self._spell_pending()
            yield Tag(match.end() - end, is_ignored=True)
        elif match["silence"] is not None:
            yield Pause(len(tag), tags.duration_ms(match["silence"]) or 0.0)
        elif element is None:
            name = _plain_name(match["name"])
            if name in _PAUSES_MS:
                given_ms = tags.duration_ms(match["time"]) if match["time"] else None
                yield Pause(len(tag), _PAUSES_MS[name] if given_ms is None else given_ms)
            else:
                yield self._sound(name, tag)
        elif match["slash"]:
            yield from self._close(element.lower(), tag)
        else:
            found = _ATTRIBUTE.findall(match["attributes"])
            yield from self._open(element.lower(), {each[0].lower(): "".join(each[1:]).lower() for each in found}, tag)

    def _open(self, name: str, attributes: dict[str, str], tag: str) -> Iterator[Piece]:
        if name == "expr" and (kind := attributes.get("type", "")) in tags.TYPES:
            name, attributes = kind, {tags.TYPES[kind]: attributes.get("label", "")}
        effect = ELEMENTS[name]
        is_followed = effect is Effect.SILENT
        if effect is Effect.SOUND:
            yield self._sound(_plain_name(attributes.get("value", "")), tag)
            return
        if effect is Effect.PAUSE:
            duration_ms = tags.duration_ms(attributes.get("time"), attributes.get("strength") or None)
            if duration_ms is not None:
                yield Pause(len(tag), duration_ms)
                return
        elif effect is Effect.SPELL:
            is_followed = name == "spell" or attributes.get("interpret-as") in KINDS
            self._spelt = "" if is_followed else self._spelt
        elif effect is Effect.MANNER:
            speed, volume, is_followed = tags.manner(name, attributes)
            yield from self._change(self._speed if speed is None else speed, self._volume if volume is None else volume)
        # Words that only a tag stands between stay two.
        yield Decoded(" ", len(tag), not is_followed)

    def _close(self, name: str, tag: str) -> Iterator[Piece]:
        effect = Effect.MANNER if name == "expr" and self._spelt is None else ELEMENTS[name]
        if effect is Effect.PAUSE:
            yield Pause(len(tag), 0.0)
            return
        if effect is Effect.SPELL or name == "expr":
            self._spelt = None
        if effect is Effect.MANNER:
            yield from self._change(self._speed if name == "volume" else 1.0, self._volume if name == "speed" else 1.0)
        yield Tag(len(tag))

    def _change(self, speed: float, volume: float) -> Iterator[Piece]:
        """Set the manner of the text that follows."""
        if (speed, volume) != (self._speed, self._volume):
            self._speed, self._volume = speed, volume
            yield Break(False, speed, volume)

    def _sound(self, name: str, tag: str) -> Piece:
        if self._makes_sounds and name in _SOUNDS:
            return Substitute(tag, len(tag), f"[{_SOUNDS[name]}]", SOUND)
        return Decoded(" ", len(tag), is_ignored=True)


def _spelt_out(text: str) -> Iterator[Piece]:
    """Yield the text to be spelt out: digits in groups, like telephone and card numbers; text with letters character by
    character."""
    kind = "characters" if any(map(str.isalpha, text)) else "telephone"
    return substituted(text, len(text), say_as=kind)


class PositionMap:
    """Map from positions in a text without its markup to positions in the text with it; grows from left to right. A
    place is an index of the text without markup."""

    def __init__(self) -> None:
        # Twice the place, plus one for a cut: at one place, a stretch precedes a cut.
        self._keys = [-1]
        self._shifts = [0]  # sum of the shifts up to this key, inclusive

    @property
    def shift(self) -> int:
        """Number of characters of markup so far."""
        return self._shifts[-1]

    @property
    def is_plain(self) -> bool:
        return len(self._keys) == 1

    def cut(self, place: int, num_chars: int) -> None:
        """Record markup of `num_chars` characters at `place`: text that begins here begins behind it, text that ends
        here ends before it."""
        self._add(2 * place + 1, num_chars)

    def stretch(self, place: int, num_chars: int) -> None:
        """Record that the text ending at `place` is written with `num_chars` more characters."""
        self._add(2 * place, num_chars)

    def start(self, place: int) -> int:
        """Return the position in the full text of a range's start at `place`."""
        return place + self._shifts[bisect_right(self._keys, 2 * place + 1) - 1]

    def end(self, place: int) -> int:
        """Return the position in the full text of a range's end at `place`."""
        return place + self._shifts[max(0, bisect_left(self._keys, 2 * place + 1) - 1)]

    def _add(self, key: int, num_chars: int) -> None:
        self._keys.append(key)
        self._shifts.append(self._shifts[-1] + num_chars)

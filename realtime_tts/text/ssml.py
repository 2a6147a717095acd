"""Incremental and strict parser of the common subset of SSML.

Supported: `speak` (optional), `p`, `s`, `break`, `say-as`, `sub`, and `prosody` with rate and volume. The content of
other elements (`emphasis`, `voice`, `lang`, `phoneme`, `audio`, `mark`, those of vendors) is spoken, and the element is
reported as ignored; `metadata`, `meta`, `lexicon` and `desc` are not spoken. Document types are refused, so the only
entities are the five of XML and characters by number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import regex

from realtime_tts.contract.speech_params import MAX_SPEED, MIN_SPEED
from realtime_tts.errors import BadSSML
from realtime_tts.text.marks import MAX_SUBSTITUTED_CHARS, Break, Decoded, Pause, Piece, Tag, substituted
from realtime_tts.text.spelling import KINDS
from realtime_tts.text.tags import RATES, STRENGTHS_MS, VOLUMES, duration_ms, loudness, rate

MAX_TAG_CHARS = 1000  # of a comment too
MAX_DEPTH = 32
_MAX_ENTITY_CHARS = 10
_NAME = r"[A-Za-z_][\w.:-]*"
_VALUE = r"""(?:"[^"<]*"|'[^'<]*')"""
# Text, an entity, a comment, an instruction to a program, a tag.
_PIECE = regex.compile(
    r"""[^<&]+|&(?:\#\d+|\#[xX][0-9a-fA-F]+|[a-z]+);|<!--(?s:.*?)-->|<\?(?s:.*?)\?>"""
    r"""|</?[A-Za-z_](?:[^<>"']|"[^"]*"|'[^']*')*>"""
)
_OPENING = re.compile(rf"<({_NAME})((?:\s+{_NAME}\s*=\s*{_VALUE})*)\s*(/?)>")
_CLOSING = re.compile(rf"</({_NAME})\s*>")
_ATTRIBUTE = re.compile(rf"({_NAME})\s*=\s*({_VALUE})")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ENTITY = re.compile(r"&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]+));")
_SILENT = frozenset({"metadata", "meta", "lexicon", "desc"})
_FOLLOWED = frozenset({"speak", "p", "s", "break", "say-as", "sub", "prosody", *_SILENT})


@dataclass(slots=True)
class _Element:
    """Open element. `text` and `num_chars` describe the text kept back in it, if it `defers` text."""

    name: str
    speed: float
    volume: float
    alias: str | None = None
    say_as: str = ""
    text: list[str] = field(default_factory=list)
    num_chars: int = 0

    @property
    def defers(self) -> bool:
        return self.alias is not None or bool(self.say_as)


class SsmlReader:
    """Incremental reader of SSML: text deltas in, parts out.

    Raises (from `push` and `finish`):
        BadSSML: the text is malformed, or an attribute has an invalid value; the message has the character's position.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._position = 0  # position of the current piece in the whole text
        self._open = [_Element("", 1.0, 1.0)]  # the first one contains the whole text
        self._num_silent = 0  # number of open elements that are not spoken
        self._is_begun = self._is_over = False  # there was an element or text; the root element has ended

    def push(self, delta: str) -> Iterator[Piece]:
        text, self._pending = self._pending + delta, ""
        at = 0
        while at < len(text):
            end = self._piece_end(text, at)
            if end is None:
                self._pending = text[at:]
                return
            if text[at] == "<":
                yield from self._read_markup(text[at:end])
            elif text[at] == "&":
                yield from self._read_text(self._decode(text[at:end]), end - at)
            else:
                yield from self._read_text(text[at:end], end - at)
            self._position += end - at
            at = end

    def finish(self) -> None:
        """Check that the text ends outside of tags and elements."""
        if self._pending:
            self._fail("the text ends within a tag or an entity")
        if len(self._open) > 1:
            self._fail(f"<{self._open[-1].name}> is not closed")

    # ---- pieces --------------------------------------------------------------------------------------------------

    def _piece_end(self, text: str, at: int) -> int | None:
        """Return the end of the text, entity or tag at `at`; None if more text is needed to find it."""
        max_chars = {"<": MAX_TAG_CHARS, "&": _MAX_ENTITY_CHARS}.get(text[at], len(text))
        found = _PIECE.match(text, at, at + max_chars, partial=True)
        if found is not None and not found.partial:
            return int(found.end())
        if found is not None and len(text) - at < max_chars:
            return None
        if text[at] == "&":
            problem = "& begins no entity; write &amp;"
        elif found is not None:
            problem = f"a tag has at most {MAX_TAG_CHARS} characters"
        elif text.startswith("<!", at):
            problem = "document types and CDATA are not supported"
        else:
            problem = "< begins no tag; write &lt;"
        return self._fail(problem)

    def _decode(self, entity: str) -> str:
        found = _ENTITY.fullmatch(entity)
        if found is None:
            self._fail("malformed entity")
        decimal, hexadecimal, name = found.groups()
        if name is not None:
            if name not in _ENTITIES:
                self._fail(f"the entity &{name[:_MAX_ENTITY_CHARS]}; is not defined")
            return _ENTITIES[name]
        code = int(decimal) if decimal is not None else int(hexadecimal, 16)
        is_character = code in (9, 10, 13) or 32 <= code < 0xD800 or 0xE000 <= code <= 0x10FFFF
        return chr(code) if is_character else self._fail("the character's number is invalid")

    # ---- elements ----------------------------------------------------------------------------------------------------

    def _read_text(self, text: str, num_chars: int) -> Iterator[Piece]:
        if not text.isspace():
            if self._is_over:
                self._fail("text after </speak>")
            self._is_begun = True
        if self._num_silent:
            yield Tag(num_chars)
        elif (element := self._open[-1]).defers:
            element.text.append(text)
            element.num_chars += num_chars
            if element.num_chars > MAX_SUBSTITUTED_CHARS:
                self._fail(f"<{element.name}> takes at most {MAX_SUBSTITUTED_CHARS} characters")
        elif len(text) == num_chars:
            yield text
        else:
            yield Decoded(text, num_chars)

    def _read_markup(self, tag: str) -> Iterator[Piece]:
        if tag.startswith(("<!--", "<?")):
            yield Tag(len(tag))
        elif (closing := _CLOSING.fullmatch(tag)) is not None:
            yield from self._close(closing.group(1), tag)
        elif (opening := _OPENING.fullmatch(tag)) is not None:
            name, attributes, is_empty = opening.groups()
            yield from self._read_opening(tag, name, self._attributes(attributes), is_empty=bool(is_empty))
        else:
            self._fail("malformed tag")

    def _attributes(self, text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, value in _ATTRIBUTE.findall(text):
            if name in found:
                self._fail(f"{name} is set twice")
            found[name] = re.sub(r"&[^;]*;?", lambda entity: self._decode(entity.group()), value[1:-1])
        return found

    def _read_opening(self, tag: str, name: str, attributes: dict[str, str], *, is_empty: bool) -> Iterator[Piece]:
        if name == "speak" and self._is_over:  # another document: in a stream each sentence may be one
            self._is_begun = self._is_over = False
            yield Break(True)
        if self._is_over or (name == "speak" and self._is_begun):
            self._fail("<speak> must be the first element and contain all others")
        outer = self._open[-1]
        if outer.defers:
            self._fail(f"<{outer.name}> may contain text only")
        if len(self._open) > MAX_DEPTH:
            self._fail(f"more than {MAX_DEPTH} nested elements")
        self._is_begun = True
        element = _Element(name, outer.speed, outer.volume)
        is_ignored = name not in _FOLLOWED
        if name == "break":
            yield Pause(len(tag), self._duration_ms(attributes))
            if not is_empty:
                self._open.append(element)
            return
        if name == "sub":
            element.alias = attributes.get("alias") or self._fail("<sub> has no alias")
        elif name == "say-as":
            kind = attributes.get("interpret-as") or self._fail("<say-as> has no interpret-as")
            element.say_as = kind if kind in KINDS else ""
        elif name == "prosody":
            is_ignored = not attributes.keys() <= {"rate", "volume"}
            element.speed *= self._rate(attributes.get("rate", "default"))
            element.volume *= self._volume(attributes.get("volume", "default"))
        if not is_empty:
            yield from self._between(name, outer, element)
            self._open.append(element)
            self._num_silent += name in _SILENT
        yield Tag(len(tag), is_ignored)

    def _close(self, name: str, tag: str) -> Iterator[Piece]:
        if self._open[-1].name != name:
            is_root = len(self._open) == 1
            expected = "no element is open" if is_root else f"<{self._open[-1].name[:64]}> is open"
            self._fail(f"</{name[:64]}> closes nothing: {expected}")
        element = self._open.pop()
        self._num_silent -= name in _SILENT
        if element.defers:
            text = "".join(element.text)
            yield from substituted(text, element.num_chars, alias=element.alias, say_as=element.say_as)
            if not element.num_chars and element.alias is not None:
                self._fail("<sub> has no text")
        yield from self._between(name, element, self._open[-1])
        self._is_over = name == "speak"
        yield Tag(len(tag))

    def _between(self, name: str, before: _Element, after: _Element) -> Iterator[Piece]:
        """Yield the break that an element's beginning or end causes, if any."""
        if name in ("p", "s"):
            yield Break(True, after.speed, after.volume)
        elif (before.speed, before.volume) != (after.speed, after.volume):
            yield Break(False, after.speed, after.volume)

    # ---- values --------------------------------------------------------------------------------------------------

    def _duration_ms(self, attributes: dict[str, str]) -> float:
        problem = f"the strength of a <break> must be one of {', '.join(STRENGTHS_MS)}"
        if "time" in attributes:
            problem = "the time of a <break> must be a duration such as 400ms or 1.5s"
        return self._valid(duration_ms(attributes.get("time"), attributes.get("strength")), problem)

    def _rate(self, value: str) -> float:
        found = self._valid(rate(value), f"a rate must be such as 90%, +10%, 1.2, or one of {', '.join(RATES)}")
        return found if MIN_SPEED <= found <= MAX_SPEED else self._fail("a rate must be between 25% and 400%")

    def _volume(self, value: str) -> float:
        return self._valid(loudness(value), f"a volume must be such as +6dB, -3.5dB, or one of {', '.join(VOLUMES)}")

    def _valid(self, value: float | None, problem: str) -> float:
        return self._fail(problem) if value is None else value

    def _fail(self, problem: str) -> NoReturn:
        # Counted from 1, as in notices.
        raise BadSSML(f"SSML: {problem} (at character {self._position + 1})", field="text")

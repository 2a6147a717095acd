"""Markup of a text: tags in plain text, and the choice between them and SSML. Both readers are incremental.

Tags are pauses (``<break time="400ms"/>``, ``[pause 1s]``), and Cartesia's ``<speed ratio="1.2"/>``,
``<volume ratio="0.5"/>``, ``<spell>AB-12</spell>`` and ``<emotion value="sad"/>``. Stage directions of other services
(``[laughter]``, ``[whispers]``) are silent.

The result does not depend on how the stream is split: text that may become a tag is kept back until that is decided,
`MAX_TAG_CHARS` at most.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol

import regex

from realtime_tts.contract.speech_params import MAX_SPEED, MAX_VOLUME, MIN_SPEED
from realtime_tts.text.marks import MAX_SUBSTITUTED_CHARS, Break, Decoded, Pause, Piece, Tag, substituted
from realtime_tts.text.pauses import DEFAULT_PAUSE_MS, STRENGTHS_MS, pause_ms
from realtime_tts.text.ssml import SsmlReader

MAX_TAG_CHARS = 64
# Of Cartesia (laughter) and ElevenLabs. Not those that VoxCPM2 itself was trained with, such as [laughing] and [sigh].
_DIRECTIONS = (
    "angry|annoyed|appalled|applause|chuckles|clapping|clears throat|coughs|crying|curious|excited|exhales|"
    "exhales sharply|explosion|gasps|giggles|gulps|gunshot|happily|happy|inhales deeply|laughs|laughs harder|laughter|"
    "mischievously|muttering|nervous|quietly|sad|sadly|sarcastic|shouts|sighs|singing|sings|snorts|sobs|"
    "starts laughing|surprised|swallows|thoughtful|wheezing|whisper|whispering|whispers|woo|yawns"
)
_NAMED_PAUSES_MS = {"[short pause]": 250.0, "[long pause]": 1000.0}
_DURATION = r"(?:\d{1,6}(?:\.\d{0,3})?|\.\d{1,3})\s{0,2}(?:ms|s)"
_ATTRIBUTE = rf"""\s{{1,4}}(?:time\s?=\s?["']{_DURATION}["']|strength\s?=\s?["'](?:{"|".join(STRENGTHS_MS)})["'])"""
_TAG = regex.compile(
    rf"(?P<pause><break(?:{_ATTRIBUTE}){{0,2}}\s{{0,4}}/?>|</break>|\[pause(?:\s?:?\s?{_DURATION})?\s?\]"
    rf"|\[(?:short|long) pause\])|(?P<direction>\[(?:{_DIRECTIONS})\])"
    rf"|<(?P<slash>/?)(?P<name>speed|volume|spell|emotion)(?P<attributes>(?:\s[^<>]{{0,{MAX_TAG_CHARS - 12}}})?)/?>",
    regex.IGNORECASE | regex.ASCII,
)
_FOUND_DURATION = re.compile(r"([\d.]+)\s*(ms|s)", re.IGNORECASE)
_FOUND_STRENGTH = re.compile(r"""strength\s?=\s?["']([a-z-]+)""", re.IGNORECASE)
_FOUND_RATIO = re.compile(r"""\s(?:ratio|level)\s?=\s?["']?(\d{1,3}(?:\.\d{0,6})?|\.\d{1,6})\b""", re.IGNORECASE)
_OPENER = re.compile(r"[<\[]")
_ROOTS = ("<speak", "<?xml")


class MarkupReader(Protocol):
    """Incremental reader of markup: text deltas in, parts out, in order."""

    @property
    def has_pending(self) -> bool:
        """True if characters are kept back that `release` would return."""
        ...

    def push(self, delta: str) -> Iterator[Piece]: ...

    def release(self) -> Iterator[Piece]:
        """Yield the text that was kept back, unchanged: nothing more comes soon."""
        ...

    def finish(self) -> Iterator[Piece]:
        """Yield the text that was kept back: nothing more comes."""
        ...


def markup_reader(text_type: str) -> MarkupReader:
    """Return the reader for ``text``, ``ssml`` or ``auto`` (SSML if the text begins with ``<speak`` or ``<?xml``)."""
    readers: dict[str, Callable[[], MarkupReader]] = {"text": PlainReader, "ssml": SsmlReader, "auto": _Undecided}
    return readers[text_type]()


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


class _Undecided:
    """Reader that keeps the beginning of a text back until its type is known."""

    def __init__(self) -> None:
        self._pending = ""
        self._reader: MarkupReader | None = None

    @property
    def has_pending(self) -> bool:
        return bool(self._pending) if self._reader is None else self._reader.has_pending

    def push(self, delta: str) -> Iterator[Piece]:
        if self._reader is None:
            self._pending += delta
            beginning = self._pending.lstrip()
            if len(beginning) < len(_ROOTS[0]) and any(root.startswith(beginning) for root in _ROOTS):
                return
            self._reader = SsmlReader() if beginning.startswith(_ROOTS) else PlainReader()
            delta, self._pending = self._pending, ""
        yield from self._reader.push(delta)

    def release(self) -> Iterator[Piece]:
        yield from self._plain()
        if self._reader is not None:
            yield from self._reader.release()

    def finish(self) -> Iterator[Piece]:
        yield from self._plain()
        if self._reader is not None:
            yield from self._reader.finish()

    def _plain(self) -> Iterator[Piece]:
        """Yield the pending text. It is plain text, unless it is only white space, which SSML may still follow."""
        pending, self._pending = self._pending, ""
        if pending.strip():
            self._reader = PlainReader()
            yield from self._reader.push(pending)
        elif pending:
            yield pending


class PlainReader:
    """Reader of plain text: deltas in, text and markup out, in order. Together they contain every character once."""

    def __init__(self) -> None:
        self._pending = ""
        self._speed = self._volume = 1.0
        self._spelt: str | None = None  # of what is being spelt out, so much has not been given; None: nothing is

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

    finish = release

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
        num_chars = len(match.group())
        if match["pause"]:
            yield Pause(num_chars, _duration_ms(match.group()))
            return
        if match["direction"]:
            yield Decoded(" ", num_chars)
            return
        name = match["name"].lower()
        if name == "spell":
            self._spelt = None if match["slash"] else ""
        elif name != "emotion":
            # What it says holds from here on; closed, it holds no more.
            ratio = 1.0 if match["slash"] else _ratio(match["attributes"])
            if ratio is not None:
                if name == "speed":
                    self._speed = min(max(ratio, MIN_SPEED), MAX_SPEED)
                else:
                    self._volume = min(ratio, MAX_VOLUME)
                yield Break(False, self._speed, self._volume)
        # Words that only a tag stands between stay two; what is spelt out is followed at once by what belongs to it.
        yield Tag(num_chars) if name == "spell" and match["slash"] else Decoded(" ", num_chars)


def _duration_ms(tag: str) -> float:
    if tag.startswith("</"):
        return 0.0
    if (named_ms := _NAMED_PAUSES_MS.get(tag.lower())) is not None:
        return named_ms
    if (found := _FOUND_DURATION.search(tag)) is not None:
        return pause_ms(found.group(1), found.group(2).lower())
    if (strength := _FOUND_STRENGTH.search(tag)) is not None:
        return STRENGTHS_MS[strength.group(1).lower()]
    return DEFAULT_PAUSE_MS


def _ratio(attributes: str) -> float | None:
    """Return the ratio in the attributes; None if there is none that is supported."""
    found = _FOUND_RATIO.search(attributes)
    return None if found is None else float(found.group(1))


def _spelt_out(text: str) -> Iterator[Piece]:
    """Yield the text to be spelt out: digits in groups, like telephone and card numbers; text with letters character by
    character."""
    kind = "characters" if any(map(str.isalpha, text)) else "telephone"
    return substituted(text, len(text), say_as=kind)

"""Choice of the markup reader of a text: tags in plain text, or SSML. Both readers are incremental."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from realtime_tts.text.marks import Piece
from realtime_tts.text.plain import PlainReader
from realtime_tts.text.ssml import SsmlReader

_ROOTS = ("<speak", "<?xml")


class MarkupReader(Protocol):
    """Incremental reader of markup: text deltas in, parts out, in order."""

    @property
    def is_holding(self) -> bool:
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
    """Reader that holds the beginning of a text back until its type is known."""

    def __init__(self) -> None:
        self._held = ""
        self._reader: MarkupReader | None = None

    @property
    def is_holding(self) -> bool:
        return bool(self._held) if self._reader is None else self._reader.is_holding

    def push(self, delta: str) -> Iterator[Piece]:
        if self._reader is None:
            self._held += delta
            beginning = self._held.lstrip()
            if len(beginning) < len(_ROOTS[0]) and any(root.startswith(beginning) for root in _ROOTS):
                return
            self._reader = SsmlReader() if beginning.startswith(_ROOTS) else PlainReader()
            delta, self._held = self._held, ""
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
        """Yield the held text. It is plain text, unless it is only white space, which SSML may still follow."""
        held, self._held = self._held, ""
        if held.strip():
            self._reader = PlainReader()
            yield from self._reader.push(held)
        elif held:
            yield held

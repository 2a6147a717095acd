"""Parts of a text with markup. Together they contain every character once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MAX_SUBSTITUTED_CHARS = 300  # of what is read as something else as a whole: it is held back until it ends


@dataclass(frozen=True, slots=True)
class Pause:
    """`num_chars` of the text that are not spoken but ask for `duration_ms` of silence."""

    num_chars: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Tag:
    """`num_chars` of the text that are not spoken.

    Attributes:
        is_ignored: it requests something unsupported.
    """

    num_chars: int
    is_ignored: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """A break without characters: the text before it is spoken separately.

    Attributes:
        ends_sentence: the text before it counts as a sentence, whatever it ends with.
        speed, volume: of what follows, against the context's.
    """

    ends_sentence: bool = False
    speed: float = 1.0
    volume: float = 1.0


@dataclass(frozen=True, slots=True)
class Decoded:
    """One character, for which the text has `num_chars`."""

    char: str
    num_chars: int


@dataclass(frozen=True, slots=True)
class Substitute:
    """`text`, for which the context's text has `num_chars`, is read as something else.

    Attributes:
        alias: text to read in its place; None: it is spelt out.
        say_as: how, one of `spelling.KINDS`.
    """

    text: str
    num_chars: int
    alias: str | None = None
    say_as: str = ""


Piece = str | Pause | Tag | Break | Decoded | Substitute


def substituted(text: str, num_chars: int, *, alias: str | None = None, say_as: str = "") -> Iterator[Piece]:
    """`text`, written with `num_chars`, as something else: white space at its ends is that between words."""
    inner = text.strip()
    if not inner:
        if text:
            yield text if len(text) == num_chars else Tag(num_chars)
        return
    if len(text) != num_chars:
        yield Substitute(text, num_chars, alias, say_as)
        return
    before = len(text) - len(text.lstrip())
    if before:
        yield text[:before]
    yield Substitute(inner, len(inner), alias, say_as)
    if before + len(inner) < len(text):
        yield text[before + len(inner) :]

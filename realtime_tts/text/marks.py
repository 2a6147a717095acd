"""Parts of a text with markup. Together they contain every character once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SOUND = "sound"
MAX_SUBSTITUTED_CHARS = 300  # of a text that is read as something else: it is kept back until its end


@dataclass(frozen=True, slots=True)
class Pause:
    """Markup of `num_chars` characters that requests `duration_ms` of silence."""

    num_chars: int
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Tag:
    """Markup of `num_chars` characters that is not spoken.

    Attributes:
        is_ignored: it requests something unsupported.
    """

    num_chars: int
    is_ignored: bool = False


@dataclass(frozen=True, slots=True)
class Break:
    """Boundary without characters: the text before it is spoken separately.

    Attributes:
        ends_sentence: the text before it counts as a sentence, whatever it ends with.
        speed, volume: factors of the text that follows, relative to the context's.
    """

    ends_sentence: bool = False
    speed: float = 1.0
    volume: float = 1.0


@dataclass(frozen=True, slots=True)
class Decoded:
    """Character that is written with `num_chars` characters of markup. `is_ignored`: see `Tag`."""

    char: str
    num_chars: int
    is_ignored: bool = False


@dataclass(frozen=True, slots=True)
class Substitute:
    """Text that is read as something else. It is written with `num_chars` characters of the context's text.

    Attributes:
        alias: text to read in its place; None: the text is spelt out.
        say_as: how, one of `spelling.KINDS`; or `SOUND`: the model reads the alias as written.
    """

    text: str
    num_chars: int
    alias: str | None = None
    say_as: str = ""


Piece = str | Pause | Tag | Break | Decoded | Substitute


def substituted(text: str, num_chars: int, *, alias: str | None = None, say_as: str = "") -> Iterator[Piece]:
    """Yield the pieces for `text`, written with `num_chars`, that is read as something else. Outer spaces stay."""
    inner = text.strip()
    if inner and len(text) == num_chars:
        before, _, after = text.partition(inner)
        yield from filter(None, (before, Substitute(inner, len(inner), alias, say_as), after))
    elif inner:
        yield Substitute(text, num_chars, alias, say_as)
    elif text:
        yield text if len(text) == num_chars else Tag(num_chars)

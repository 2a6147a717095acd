"""Record of one context's messages in both directions, for resending after a lost connection. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from realtime_tts_client.errors import ProtocolError
from realtime_tts_client.markup import is_ssml, open_tags
from realtime_tts_client.types import AudioFormat, Spoken, Word
from realtime_tts_client.wire import render

# 8,000 characters stay below the server's limit of 64 KiB for a message, with any escaping.
MAX_CHARS_PER_MESSAGE = 8_000


@dataclass
class ContextRecord:
    """Record of one context.

    Attributes:
        opening: voice, audio and params of the first message.
        pieces, num_chars: text so far, without what the server refused.
        flushes: for each flush, the number of characters before it.
        is_draft: opened as a draft, and not committed.
        opened: the first message was queued.
        last_sequence: sequence number of the last received message.
        over: the terminal message was received.
        words, num_samples: received words; end of the received audio.
        told, voice, seed: whether `ContextStarted` was emitted, and its values.
        held_ms: where the context is held, or None. asked: the hold or release that has no answer yet.
        played_ms: last position reported by the program.
        base_chars, base_flushes, base_samples: part made by earlier sessions. The server's figures count from
            there.
        reopened: markup that was open at the base, with which this session's text begins.
    """

    context_id: str
    opening: dict[str, Any]
    pieces: list[str] = field(default_factory=list)
    num_chars: int = 0
    flushes: list[int] = field(default_factory=list)
    ended: bool = False
    is_draft: bool = False
    cancelled: bool = False
    opened: bool = False
    number: int | None = None
    audio: AudioFormat | None = None
    last_sequence: int = -1
    over: bool = False
    words: list[Word] = field(default_factory=list)
    num_samples: int = 0
    told: bool = False
    voice: str = ""
    seed: int = 0
    held_ms: float | None = None
    asked: str = ""
    clause_after_ms: float = 0.0
    played_ms: float = 0.0
    base_chars: int = 0
    base_flushes: int = 0
    base_samples: int = 0
    reopened: str = ""

    @property
    def base_ms(self) -> float:
        return self.base_samples * 1000 / self.audio.sample_rate if self.audio is not None else 0.0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def shift(self) -> int:
        """Difference from an offset in this session's text to one in the whole text."""
        return self.base_chars - len(self.reopened)

    def begin_again(self, session_text_type: str = "auto") -> None:
        """Continue in a new session, in the same voice, from the word that was being heard. That word is heard twice if
        its end had arrived. No word is lost, because each word is reported before its audio."""
        if self.audio is not None:
            received_ms = self.num_samples * 1000 / self.audio.sample_rate
            begun = [word.start for word in self.words if word.start_ms < received_ms]
            self.base_chars = max([self.base_chars, *begun])
            self.base_flushes = sum(offset <= self.base_chars for offset in self.flushes)
            self.base_samples = self.num_samples
            params = {**self.opening.get("params", {}), "seed": self.seed}
            is_markup = is_ssml(self.text, params.get("text_type") or session_text_type)
            self.reopened = open_tags(self.text[: self.base_chars]) if is_markup else ""
            self.opening = {**self.opening, "voice": self.voice, "params": params}
            self.words = [word for word in self.words if word.start < self.base_chars]
        self.number, self.last_sequence, self.opened = None, -1, False
        if self.asked != "release":
            self.asked = "" if self.held_ms is None else "hold"

    @property
    def heard_ms(self) -> float:
        """Position at which it is held, or else the last one reported by the program."""
        return self.played_ms if self.held_ms is None else self.held_ms

    def spoken_by_clock(self) -> Spoken:
        """Return what was heard, from received words and `heard_ms`."""
        chars = max((word.end for word in self.words if word.end_ms <= self.heard_ms), default=0)
        return Spoken(self.heard_ms, self.text[:chars], chars)

    @property
    def is_settled(self) -> bool:
        """True if it is over, no answer is expected, and it is not held."""
        return self.over and not self.cancelled and not self.asked and self.held_ms is None

    def remove_text(self, start: int, end: int) -> None:
        """Remove text that the server refused; flushes keep their places in the rest."""
        text = self.text
        self.pieces = [text[:start] + text[end:]]
        self.num_chars = len(self.pieces[0])
        self.flushes = [offset if offset < start else max(start, offset - (end - start)) for offset in self.flushes]

    @property
    def takes_text(self) -> bool:
        return not (self.over or self.cancelled or self.ended)

    def frame(self, kind: str, **fields: Any) -> str:
        return render(kind, context_id=self.context_id, **fields)

    def asking_frames(self) -> list[str]:
        """Return the hold or release that has no answer yet."""
        if self.asked == "hold":
            played_ms = max(0.0, (self.held_ms or 0.0) - self.base_ms)
            return [self.frame("hold", at="now", played_ms=round(played_ms, 3))]
        return [self.frame("release", clause_after_ms=self.clause_after_ms)] if self.asked else []

    def text_frames(self, text: str) -> list[str]:
        """Return the messages for `text`; for empty text, a message only if the context must be opened."""
        frames = []
        for start in range(0, max(len(text), 1), MAX_CHARS_PER_MESSAGE):
            piece = text[start : start + MAX_CHARS_PER_MESSAGE]
            if piece or not self.opened:
                opening = {} if self.opened else self.opening | ({"draft": True} if self.is_draft else {})
                frames.append(self.frame("text", text=piece, **opening))
            self.opened = True
        return frames

    def commit_frames(self) -> list[str]:
        """Return the messages that commit the draft with all text so far, and what came after the commit."""
        head = self.text[: min([MAX_CHARS_PER_MESSAGE, *self.flushes])]
        return [self.frame("commit", text=head), *self.missing_frames(len(head), 0, ended=False)]

    def missing_frames(self, num_chars: int, num_flushes: int, ended: bool) -> list[str]:
        """Return the messages that the server lacks. The arguments, counted from the base, are what it has received."""
        self.opened = self.last_sequence >= 0 or num_chars > 0 or num_flushes > 0 or ended
        text, position, frames = self.reopened + self.text[self.base_chars :], num_chars, []
        for offset in self.flushes[num_flushes + self.base_flushes :]:
            end = offset - self.shift
            frames += self.text_frames(text[position:end])
            frames.append(self.frame("flush"))
            position = max(position, end)
        to_end = self.ended and not ended
        if position < len(text) or to_end:
            frames += self.text_frames(text[position:])
        if to_end:
            frames.append(self.frame("end"))
        return frames

    def is_next(self, sequence: int) -> bool:
        """Record a message's sequence number. Return False for a duplicate.

        Raises:
            ProtocolError: a message is missing.
        """
        if sequence <= self.last_sequence:
            return False
        if sequence != self.last_sequence + 1:
            raise ProtocolError(f"message {self.last_sequence + 1} of a context is missing")
        self.last_sequence = sequence
        return True

"""Planner of text with markup, used by every dialect: pause tags in plain text, or SSML."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from realtime_tts.text.characters import replace_surrogates
from realtime_tts.text.lexicon import Lexicon
from realtime_tts.text.marks import Break, Decoded, Piece, Substitute, Tag
from realtime_tts.text.markup import MarkupReader
from realtime_tts.text.normalizer import Normalizer, primary_subtag
from realtime_tts.text.pauses import EMPTY_SPEECH_MS, MAX_SENTENCE_SILENCE_MS, MAX_SILENCE_MS
from realtime_tts.text.planner import OPEN_STALL_S, Planner, Planning, Segment, SpeechPlanner
from realtime_tts.text.segmenter import SegmenterConfig
from realtime_tts.text.words import Word


class PausePlanner(Planner):
    """Planner of one context's text with markup. A pause is a segment without words, and ends the segment before it.

    Characters of markup belong to the context's text: positions count them.

    Args:
        planner: planner of the text without its markup; used by this object only.
        stall_flush_s: see `SpeechPlanner`; also the time after which an incomplete tag counts as text.
        sentence_pause_ms: silence between two sentences for which the text requests no pause; requires a planner that
            cuts by sentence.
        text_type, makes_sounds: see `MarkupReader`.
        fill_empty: plan `EMPTY_SPEECH_MS` of silence for a text that has no segment at a flush or at its end, unless it
            is blank.

    Raises (from every method that receives or ends text):
        BadSSML: the text is SSML and malformed.
    """

    def __init__(
        self,
        planner: SpeechPlanner,
        stall_flush_s: float | None,
        *,
        sentence_pause_ms: float = 0.0,
        text_type: str = "auto",
        fill_empty: bool = False,
        makes_sounds: bool = False,
    ) -> None:
        self._planner, self._stall_flush_s = planner, stall_flush_s
        self._fill_empty, self._is_blank, self._is_filled = fill_empty, True, False
        self._reader = MarkupReader(text_type, makes_sounds)
        self._last_text_at = 0.0
        self._positions = _PositionMap()
        self._text, self._text_start = "", 0  # with its markup, from there on
        self._manner = Break()
        self._ignored: list[tuple[int, int]] = []
        self._num_silences = 0
        self._silence_left_ms = MAX_SILENCE_MS
        self._sentence_pause_ms = sentence_pause_ms
        self._sentence_silence_left_ms = MAX_SENTENCE_SILENCE_MS
        self._follows_sentence = self._ends_with_speech = False
        self._num_placed = 0  # segments of the planner's that were given, once or more often

    @property
    def num_chars(self) -> int:
        """Number of characters received, without those that may still become markup."""
        return self._planner.num_chars + self._positions.shift

    def pushing(self, delta: str, now: float) -> Planning:
        self._last_text_at = now
        self._text += replace_surrogates(delta)
        self._is_blank = self._is_blank and not delta.strip()
        yield from self._reading(self._reader.push(delta), now)

    def flushing(self, now: float) -> Planning:
        yield from self._reading(self._reader.release(), now)
        yield from self._placed(self._planner.flushing(now))
        yield from self._filling()

    def ending(self, now: float) -> Planning:
        yield from self._reading(self._reader.finish(), now)
        yield from self._placed(self._planner.ending(now))
        yield from self._filling()

    def ticking(self, now: float) -> Planning:
        if (released_at := self._released_at()) is not None and now >= released_at:
            yield from self._reading(self._reader.release(), now)
        yield from self._placed(self._planner.ticking(now))

    def next_deadline(self) -> float | None:
        times = [at for at in (self._released_at(), self._planner.next_deadline()) if at is not None]
        return min(times, default=None)

    def may_skip(self, text: str) -> bool:
        """Return True if a part of `text` may be skipped; False for text replaced by silence, which is reported with
        that silence."""
        return "&#" in text or self._planner.may_skip(text)  # SSML has characters by their numbers

    def take_skipped(self) -> Sequence[tuple[int, int]]:
        """Return skipped ranges; for a text that is replaced by silence, once the whole text."""
        skipped = [
            (self._positions.start(start), self._positions.end(end)) for start, end in self._planner.take_skipped()
        ]
        if self._is_filled:
            self._is_filled, skipped = False, [(0, self.num_chars)]
        return skipped

    def take_ignored(self) -> Sequence[tuple[int, int]]:
        taken, self._ignored = self._ignored, []
        return taken

    def _filling(self) -> Planning:
        if self._fill_empty and not self._is_blank and self._num_placed + self._num_silences == 0:
            self._is_filled = True
            yield [self._silence(0, self.num_chars, EMPTY_SPEECH_MS)]

    def _reading(self, pieces: Iterable[Piece], now: float) -> Planning:
        for piece in pieces:
            if isinstance(piece, Tag | Decoded) and piece.is_ignored:
                self._ignored.append((self.num_chars, self.num_chars + piece.num_chars))
            if isinstance(piece, str):
                yield from self._placed(self._planner.pushing(piece, now))
            elif isinstance(piece, Decoded):
                yield from self._placed(self._planner.pushing(piece.char, now))
                self._positions.stretch(self._planner.num_chars, piece.num_chars - 1)
            elif isinstance(piece, Substitute):
                yield from self._placed(self._planner.pushing_whole(piece, now))
                self._positions.stretch(self._planner.num_chars, piece.num_chars - len(piece.text))
            elif isinstance(piece, Tag):
                self._positions.cut(self._planner.num_chars, piece.num_chars)
            elif isinstance(piece, Break):
                yield from self._placed(self._planner.flushing(now))
                self._manner = piece
                self._follows_sentence = self._follows_sentence or (piece.ends_sentence and self._ends_with_speech)
            else:
                yield from self._placed(self._planner.flushing(now))
                self._positions.cut(self._planner.num_chars, piece.num_chars)
                self._follows_sentence, self._ends_with_speech = False, False
                if (duration_ms := min(piece.duration_ms, self._silence_left_ms)) > 0:
                    self._silence_left_ms -= duration_ms
                    yield [self._silence(self.num_chars - piece.num_chars, self.num_chars, duration_ms)]

    def _released_at(self) -> float | None:
        if self._stall_flush_s is None or not self._reader.has_pending:
            return None
        return self._last_text_at + self._stall_flush_s

    def _placed(self, planning: Planning) -> Planning:
        for segments in planning:
            yield [placed for segment in segments for placed in self._after_pause(segment)]

    def _after_pause(self, segment: Segment) -> Iterator[Segment]:
        """Yield a segment of the planner, and before it the pause between sentences, if any."""
        if segment.index == self._num_placed:
            silence_ms = min(self._sentence_pause_ms, self._sentence_silence_left_ms)
            if self._follows_sentence and silence_ms > 0:
                self._sentence_silence_left_ms -= silence_ms
                start = self._positions.start(segment.start)
                yield self._silence(start, start, silence_ms)
            self._num_placed += 1
        self._follows_sentence, self._ends_with_speech = segment.ends_sentence, True
        yield self._with_positions(segment)

    def _silence(self, start: int, end: int, duration_ms: float) -> Segment:
        self._num_silences += 1
        index = self._num_placed + self._num_silences - 1
        return Segment(index, "", "", start, end, (), silence_ms=duration_ms)

    def _with_positions(self, segment: Segment) -> Segment:
        start, end = self._positions.start(segment.start), self._positions.end(segment.end)
        text, text_start = self._text, self._text_start
        if segment.final:
            self._text, self._text_start = text[end - text_start :], end
        if self._positions.is_plain and self._num_silences == 0:
            return segment
        words = []
        for word in segment.words:
            first, last = self._range_of(word)
            words.append(word._replace(text=text[first - text_start : last - text_start], start=first, end=last))
        return replace(
            segment,
            index=segment.index + self._num_silences,
            source=text[start - text_start : end - text_start],
            start=start,
            end=end,
            words=tuple(words),
            speed=self._manner.speed,
            volume=self._manner.volume,
        )

    def _range_of(self, word: Word) -> tuple[int, int]:
        """Return the range of a word in the text, without tags between the word and its punctuation ("<s>Yes</s>!")."""
        start, end = word.start, word.end
        while start + 1 < end and not word.text[start - word.start].isalnum():
            start += 1
        while end - 1 > start and not word.text[end - 1 - word.start].isalnum():
            end -= 1
        first, last = self._positions.start(start), self._positions.end(end)
        return (
            first if first > self._positions.end(start) else self._positions.start(word.start),
            last if last < self._positions.start(end) else self._positions.end(word.end),
        )


class _PositionMap:
    """Map from positions in a text without its markup to positions in the text with it; grows from left to right. A
    place is an index of the text without markup."""

    def __init__(self) -> None:
        # Twice the place, one more for a cut: of both at one place the characters that end there come first.
        self._keys = [-1]
        self._shifts = [0]  # up to and with this key

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


class PlannerFactory:
    """Factory of the planners of one model's contexts.

    Args:
        charset: characters that the model's tokenizer knows; None for all.
        max_segment_chars: longest text that the model speaks well.
        makes_sounds: see `MarkupReader`.
        stall_flush_s: see `SpeechPlanner`; for live planners None stands for `OPEN_STALL_S`.
    """

    def __init__(
        self,
        charset: str | None,
        max_segment_chars: int,
        stall_flush_s: float | None,
        *,
        makes_sounds: bool = False,
    ) -> None:
        letters = None if charset is None else frozenset(charset)
        self._normalizer = functools.lru_cache(maxsize=16)(lambda language: Normalizer(language, letters))
        defaults = SegmenterConfig()
        self._segmenter = replace(defaults, max_chars=min(defaults.max_chars, max_segment_chars))
        self._stall_flush_s = stall_flush_s
        self._makes_sounds = makes_sounds

    def make(
        self,
        language: str,
        *,
        live: bool = False,
        sentence_pause_ms: float = 0.0,
        lexicons: Sequence[Lexicon] = (),
        text_type: str = "auto",
        fill_empty: bool = False,
    ) -> PausePlanner:
        """Return a planner for one context. For the arguments see `SpeechPlanner` and `PausePlanner`."""
        stall_flush_s = OPEN_STALL_S if live and self._stall_flush_s is None else self._stall_flush_s
        segmenter = replace(self._segmenter, by_sentence=sentence_pause_ms > 0, language=primary_subtag(language))
        normalizer = self._normalizer(language).with_lexicons(lexicons)
        planner = SpeechPlanner(normalizer, segmenter, stall_flush_s, live=live)
        return PausePlanner(
            planner,
            stall_flush_s,
            sentence_pause_ms=sentence_pause_ms,
            text_type=text_type,
            fill_empty=fill_empty,
            makes_sounds=self._makes_sounds,
        )

"""Planning of text deltas into segments for the engine, with the position of every word in the original text."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from realtime_tts.text.characters import replace_surrogates
from realtime_tts.text.lexicon import Lexicon
from realtime_tts.text.marks import SOUND, Break, Decoded, Piece, Substitute, Tag
from realtime_tts.text.markup import MarkupReader, PositionMap
from realtime_tts.text.normalizer import Normalizer, Reading
from realtime_tts.text.opening import OpenText
from realtime_tts.text.segmenter import MAX_CHARS, Segmenter, SegmenterConfig, TextSegment
from realtime_tts.text.skipped import SKIPPED, SkippedText
from realtime_tts.text.splitting import split_spoken
from realtime_tts.text.words import Word, place_words

OPEN_STALL_S = 10.0  # a stalled text in an open segment holds an engine stream for at most this long
MAX_SILENCE_MS = 60_000.0  # of one context: a text full of pauses must not hold its slot for hours
MAX_SENTENCE_SILENCE_MS = 600_000.0  # of one context, between its sentences
# Clients of other services treat an answer without audio as a failure. This much is a frame in every format.
EMPTY_SPEECH_MS = 160.0
_END_WAIT_S = 0.03  # text that arrived in one piece is whole if its end follows within this time


@dataclass(frozen=True, slots=True)
class Segment:
    """Text of one request to the engine, or silence. Live, a segment is returned again, longer, until it is final.

    Args:
        index: number of the segment in its context, from 0 without gaps.
        text: normalised text to speak, at most `max_chars` long plus a pause mark or two; empty for silence. When a
            segment is returned again, its earlier text is the beginning.
        start, end: range of the context's text that the segment stands for, in characters.
        words: speakable words of that range in order; each has a letter, digit or spoken symbol at least. When a
            segment is returned again, its earlier words come first, unchanged.
        final: True if the segment is complete. Until then `text` ends with a word, and the last words are missing.
        silence_ms: duration of the silence; 0 for speech. Silence has no text or words.
        speed, volume: factors relative to the context's.
        added_chars: number of characters by which lexicons have made the text longer than its source; 0 until `final`.
    """

    index: int
    text: str
    start: int
    end: int
    words: tuple[Word, ...]
    final: bool = True
    silence_ms: float = 0.0
    speed: float = 1.0
    volume: float = 1.0
    added_chars: int = 0


Planning = Iterator[list[Segment]]


class Planner:
    """Planner of one context's text: text deltas in, segments out. A pause in the text is a segment without words, and
    ends the segment before it.

    All times are seconds on the caller's monotonic clock. The methods from `pushing` to `ticking` do the work of those
    from `push` to `tick` in stretches of a millisecond or less, whatever the characters: each step of their iterators
    yields what a stretch has given. Run one iteration to its end before you call another method.

    Characters of markup belong to the context's text: positions count them.

    Args:
        normalizer: shared between contexts.
        segmenter_config: `max_chars` bounds the spoken text too; a longer one is split again.
        stall_flush_s: time without new text after which the pending text is spoken, and an incomplete tag counts as
            text; None: no limit. Doubled if the text ends within a word: a model that pauses there is likelier to go
            on, and a single word at the start of the next segment sounds worse than a longer pause.
        live: return a segment before it is complete, as far as later text cannot change it, and again each time there
            is more. It ends where it would end otherwise. Text pushed with the same time counts as one piece; a text
            that comes in one piece is returned as a whole.
        sentence_pause_ms: silence between two sentences for which the text requests no pause. With it every sentence is
            a segment.
        text_type, makes_sounds: see `MarkupReader`.
        fill_empty: plan `EMPTY_SPEECH_MS` of silence for a text that has no segment at a flush or at its end, unless it
            is blank.

    Raises (from every method that receives or ends text):
        BadSSML: the text is SSML and malformed.
    """

    def __init__(
        self,
        normalizer: Normalizer,
        segmenter_config: SegmenterConfig | None = None,
        stall_flush_s: float | None = None,
        *,
        live: bool = False,
        sentence_pause_ms: float = 0.0,
        text_type: str = "auto",
        fill_empty: bool = False,
        makes_sounds: bool = False,
    ) -> None:
        self._normalizer = normalizer
        self._config = segmenter_config or SegmenterConfig()
        self._reader = MarkupReader(text_type, makes_sounds)
        self._segmenter = Segmenter(self._config, normalizer.language, by_sentence=sentence_pause_ms > 0)
        self._stall_flush_s, self._live = stall_flush_s, live
        self._last_text_at = 0.0
        self._positions = PositionMap()
        self._text, self._text_start = "", 0  # text with its markup, and the position of its first character
        self._manner = Break()
        self._readings: deque[Reading] = deque()  # given readings of text that was not normalised yet
        self._skipped = SkippedText()
        self._ignored: list[tuple[int, int]] = []
        self._num_segments = 0  # complete ones, and silences
        self._open = OpenText(normalizer, self._config.max_chars, 0)
        self._is_given = False  # the open segment was returned once or more often
        self._piece_at = 0.0  # time at which the pending text began
        self._is_streamed = False  # more of it arrived later
        self._opens_at: float | None = None
        self._fill_empty, self._is_blank, self._is_filled = fill_empty, True, False
        self._silence_left_ms = MAX_SILENCE_MS
        self._sentence_pause_ms = sentence_pause_ms
        self._sentence_silence_left_ms = MAX_SENTENCE_SILENCE_MS
        self._follows_sentence = self._ends_with_speech = False

    @property
    def num_chars(self) -> int:
        """Number of characters received, spoken or not, without those that may still become markup."""
        return self._segmenter.num_chars + self._positions.shift

    def push(self, delta: str, now: float) -> list[Segment]:
        """Add text; not allowed after `end`."""
        return _all(self.pushing(delta, now))

    def flush(self, now: float) -> list[Segment]:
        """Plan the pending text."""
        return _all(self.flushing(now))

    def end(self, now: float) -> list[Segment]:
        """Plan the pending text; no more follows. Has no effect when repeated."""
        return _all(self.ending(now))

    def tick(self, now: float) -> list[Segment]:
        """Plan what is due: a stalled text; live, a text that came in one piece and has not ended."""
        return _all(self.ticking(now))

    def pushing(self, delta: str, now: float) -> Planning:
        if not delta:
            return
        delta = replace_surrogates(delta)
        self._last_text_at = now
        self._text += delta
        self._is_blank = self._is_blank and delta.isspace()
        yield from self._reading(self._reader.push(delta), now)

    def flushing(self, now: float) -> Planning:
        yield from self._closing(self._reader.release(), now)
        yield from self._filling()

    def ending(self, now: float) -> Planning:
        yield from self._closing(self._reader.finish(), now)
        yield from self._filling()

    def ticking(self, now: float) -> Planning:
        stalls_at = self._stalls_at()
        if stalls_at is not None and now >= stalls_at:
            yield from self._closing(self._reader.release(), now)
        elif self._opens_at is not None and now >= self._opens_at:
            yield self._give_open()

    def next_deadline(self) -> float | None:
        """Return when to call `tick`; None if nothing waits."""
        times = [at for at in (self._opens_at, self._stalls_at()) if at is not None]
        return min(times, default=None)

    def may_skip(self, text: str) -> bool:
        """Return True if a part of `text` may be skipped; False for text replaced by silence, which is reported with
        that silence. Linear in the number of characters."""
        # SSML has characters by their numbers.
        return "&#" in text or self._normalizer.may_skip(replace_surrogates(text))

    def take_skipped(self) -> Sequence[tuple[int, int]]:
        """Return the ranges of the context's text that are not spoken and were not returned before, in order; for a
        text that is replaced by silence, once the whole text.

        Each has at least one character that is neither white space nor punctuation: an emoji, another script. Between
        two ranges there is speech or a flush. Markup is not among them. All ranges are known after `flush` or `end`,
        most of them before.
        """
        skipped = [(self._positions.start(start), self._positions.end(end)) for start, end in self._skipped.take()]
        if self._is_filled:
            self._is_filled, skipped = False, [(0, self.num_chars)]
        return skipped

    def take_ignored(self) -> Sequence[tuple[int, int]]:
        """Return the ranges of unsupported markup found since the last call."""
        taken, self._ignored = self._ignored, []
        return taken

    # ---- text and its markup -------------------------------------------------------------------------------------

    def _reading(self, pieces: Iterable[Piece], now: float) -> Planning:
        for piece in pieces:
            if isinstance(piece, Tag | Decoded) and piece.is_ignored:
                self._ignored.append((self.num_chars, self.num_chars + piece.num_chars))
            if isinstance(piece, str):
                yield from self._adding(piece, self._segmenter.push, now)
            elif isinstance(piece, Decoded):
                yield from self._adding(piece.char, self._segmenter.push, now)
                self._positions.stretch(self._segmenter.num_chars, piece.num_chars - 1)
            elif isinstance(piece, Substitute):
                yield from self._substituting(piece, now)
                self._positions.stretch(self._segmenter.num_chars, piece.num_chars - len(piece.text))
            elif isinstance(piece, Tag):
                self._positions.cut(self._segmenter.num_chars, piece.num_chars)
            elif isinstance(piece, Break):
                yield from self._closing((), now)
                self._manner = piece
                self._follows_sentence = self._follows_sentence or (piece.ends_sentence and self._ends_with_speech)
            else:
                yield from self._closing((), now)
                self._positions.cut(self._segmenter.num_chars, piece.num_chars)
                self._follows_sentence, self._ends_with_speech = False, False
                if (duration_ms := min(piece.duration_ms, self._silence_left_ms)) > 0:
                    self._silence_left_ms -= duration_ms
                    yield [self._silence(self.num_chars - piece.num_chars, self.num_chars, duration_ms)]

    def _closing(self, pieces: Iterable[Piece], now: float) -> Planning:
        """Yield what follows from the last pieces of a stretch of text, and from its end."""
        yield from self._reading(pieces, now)
        yield from self._plan(self._segmenter.flush())
        self._skipped.close()

    def _filling(self) -> Planning:
        if self._fill_empty and not self._is_blank and self._num_segments == 0:
            self._is_filled = True
            yield [self._silence(0, self.num_chars, EMPTY_SPEECH_MS)]

    def _substituting(self, piece: Substitute, now: float) -> Planning:
        """Add a piece of text that is not divided, and that is read as something else."""
        if piece.alias is not None:
            spoken = piece.alias if piece.say_as == SOUND else self._normalizer.respell(piece.alias)
        else:
            spoken = self._normalizer.spell_out(piece.text, piece.say_as)
        if not spoken:
            yield from self._adding(piece.text, self._segmenter.push, now)
            return
        start = self._segmenter.num_chars
        self._readings.append(Reading(start, start + len(piece.text), spoken))
        yield from self._adding(piece.text, self._segmenter.push_whole, now)

    def _adding(self, text: str, push: Callable[[str], list[TextSegment]], now: float) -> Planning:
        """Add text by a method of the segmenter, and yield the segments that follow from it."""
        is_first = not self._segmenter.has_words
        complete = push(text)
        yield from self._plan(complete)
        if not self._live:
            return
        if is_first or complete:
            self._piece_at, self._is_streamed = now, False
        self._is_streamed = self._is_streamed or (now > self._piece_at and not text.isspace())
        more = self._segmenter.sure_text(self._open.num_chars)
        if not more and self._opens_at is None:
            return
        for _ in self._open.extending(more, self._take_readings(more)):
            yield []
        if not self._open.can_begin:
            return
        if self._is_streamed:
            yield self._give_open()
        else:
            self._opens_at = now + _END_WAIT_S

    def _take_readings(self, source: str) -> list[Reading]:
        """Return the given readings within the next text of the open segment."""
        start = self._open.start + self._open.num_chars
        taken: list[Reading] = []
        while self._readings and self._readings[0].end <= start + len(source):
            reading = self._readings.popleft()
            taken.append(reading._replace(start=reading.start - start, end=reading.end - start))
        return taken

    def _stalls_at(self) -> float | None:
        if self._stall_flush_s is None or not (self._segmenter.has_words or self._reader.has_pending):
            return None
        num_waits = 2 if self._segmenter.ends_mid_word else 1
        return self._last_text_at + num_waits * self._stall_flush_s

    # ---- segments ------------------------------------------------------------------------------------------------

    def _plan(self, segments: list[TextSegment]) -> Planning:
        for segment in segments:
            rest = segment.text[self._open.num_chars :]
            for _ in self._open.closing(rest, self._take_readings(rest)):
                yield []
            normalized = self._open.spoken()
            self._open, self._opens_at = OpenText(self._normalizer, self._config.max_chars, segment.end), None
            self._skipped.add(normalized.ranges(SKIPPED), normalized.fates, segment.start)
            parts = split_spoken(normalized, self._config.max_chars)
            for part in parts:
                start = segment.start + part.start
                yield self._give(
                    part.text,
                    start,
                    start + len(part.source),
                    place_words(part, start),
                    ends_sentence=segment.ends_sentence and part is parts[-1],
                    added_chars=normalized.added_chars if part is parts[0] else 0,
                )

    def _give_open(self) -> list[Segment]:
        self._opens_at = None
        if (part := self._open.take()) is None:
            return []
        text, num_chars, words = part
        return self._give(text, self._open.start, self._open.start + num_chars, words, final=False)

    def _give(
        self,
        text: str,
        start: int,
        end: int,
        words: tuple[Word, ...],
        *,
        final: bool = True,
        ends_sentence: bool = False,
        added_chars: int = 0,
    ) -> list[Segment]:
        """Return a segment, and before it the pause between sentences, if any. Positions are given in the text without
        markup."""
        positions, given = self._positions, []
        start, end = positions.start(start), positions.end(end)
        silence_ms = min(self._sentence_pause_ms, self._sentence_silence_left_ms)
        if self._follows_sentence and silence_ms > 0 and not self._is_given:
            self._sentence_silence_left_ms -= silence_ms
            given.append(self._silence(start, start, silence_ms))
        segment = Segment(
            self._num_segments,
            text,
            start,
            end,
            words if positions.is_plain else tuple(map(self._placed, words)),
            final=final,
            speed=self._manner.speed,
            volume=self._manner.volume,
            added_chars=added_chars,
        )
        if final:
            self._text, self._text_start = self._text[end - self._text_start :], end
            self._num_segments += 1
        self._is_given = not final
        self._follows_sentence, self._ends_with_speech = ends_sentence, True
        return [*given, segment]

    def _silence(self, start: int, end: int, duration_ms: float) -> Segment:
        self._num_segments += 1
        return Segment(self._num_segments - 1, "", start, end, (), silence_ms=duration_ms)

    def _placed(self, word: Word) -> Word:
        """Return a word with its positions in the context's text, without tags between the word and its punctuation
        ("<s>Yes</s>!")."""
        positions, start, end = self._positions, word.start, word.end
        while start + 1 < end and not word.text[start - word.start].isalnum():
            start += 1
        while end - 1 > start and not word.text[end - 1 - word.start].isalnum():
            end -= 1
        first, last = positions.start(start), positions.end(end)
        first = first if first > positions.end(start) else positions.start(word.start)
        last = last if last < positions.start(end) else positions.end(word.end)
        return word._replace(text=self._text[first - self._text_start : last - self._text_start], start=first, end=last)


class PlannerFactory:
    """Factory of the planners of one model's contexts.

    Args:
        charset: characters that the model's tokenizer knows; None for all.
        max_segment_chars: longest text that the model speaks well.
        makes_sounds: see `MarkupReader`.
        stall_flush_s: see `Planner`; for live planners None stands for `OPEN_STALL_S`.
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
        self._segmenter = SegmenterConfig(max_chars=min(MAX_CHARS, max_segment_chars))
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
    ) -> Planner:
        """Return a planner for one context. For the arguments see `Planner`."""
        stall_flush_s = OPEN_STALL_S if live and self._stall_flush_s is None else self._stall_flush_s
        normalizer = self._normalizer(language).with_lexicons(lexicons)
        return Planner(
            normalizer,
            self._segmenter,
            stall_flush_s,
            live=live,
            sentence_pause_ms=sentence_pause_ms,
            text_type=text_type,
            fill_empty=fill_empty,
            makes_sounds=self._makes_sounds,
        )


def _all(planning: Planning) -> list[Segment]:
    return [segment for segments in planning for segment in segments]

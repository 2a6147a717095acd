"""Planning of text deltas into segments for the engine, with the position of every word in the original text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from realtime_tts.text.characters import replace_surrogates
from realtime_tts.text.marks import SOUND, Substitute
from realtime_tts.text.normalizer import NormalizedText, Normalizer, Reading
from realtime_tts.text.opening import OpenText
from realtime_tts.text.segmenter import Segmenter, SegmenterConfig, TextSegment
from realtime_tts.text.skipped import SKIPPED, SkippedText
from realtime_tts.text.splitting import split_spoken
from realtime_tts.text.words import Word, place_words

OPEN_STALL_S = 10.0  # a stalled text in an open segment holds an engine stream for at most this long
_END_WAIT_S = 0.03  # text that came in one piece is whole if its end follows within this time


@dataclass(frozen=True, slots=True)
class Segment:
    """Text of one request to the engine, or silence. Live, a segment is returned again, longer, until it is final.

    Args:
        index: number of the segment in its context, from 0 without gaps.
        text: normalised text to speak, at most `max_chars` long plus a pause mark or two; empty for silence. When a
            segment is returned again, its earlier text is the beginning.
        source: the context's text that the segment stands for, exactly as sent.
        start, end: range of `source` in the context's text, in characters.
        words: speakable words of `source` in order; each has a letter, digit or spoken symbol at least. When a segment
            is returned again, its earlier words come first, unchanged.
        final: True if the segment is complete. Until then `text` ends with a word, and the last words are missing.
        silence_ms: duration of the silence; 0 for speech. Silence has no text, source or words.
        ends_sentence: True if text after the segment is another sentence.
        speed, volume: factors relative to the context's.
        added_chars: number of characters by which lexicons have made the text longer than its source; 0 until `final`.
    """

    index: int
    text: str
    source: str
    start: int
    end: int
    words: tuple[Word, ...]
    final: bool = True
    silence_ms: float = 0.0
    ends_sentence: bool = False
    speed: float = 1.0
    volume: float = 1.0
    added_chars: int = 0


Planning = Iterator[list[Segment]]


class Planner(Protocol):
    """Planner of one context's text: text deltas in, segments out.

    All times are seconds on the caller's monotonic clock. The methods from `pushing` to `ticking` do the work of those
    from `push` to `tick` in stretches of a millisecond or less, whatever the characters: each step of their iterators
    yields what a stretch has given. Run one iteration to its end before you call another method.
    """

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

    def pushing(self, delta: str, now: float) -> Planning: ...

    def flushing(self, now: float) -> Planning: ...

    def ending(self, now: float) -> Planning: ...

    def ticking(self, now: float) -> Planning: ...

    def next_deadline(self) -> float | None:
        """Return when to call `tick`; None if nothing waits."""

    def take_skipped(self) -> Sequence[tuple[int, int]]:
        """Return the ranges of the context's text that are not spoken and were not returned before, in order.

        Each has at least one character that is neither white space nor punctuation: an emoji, another script. Between
        two ranges there is speech or a flush. Markup is not among them. All ranges are known after `flush` or `end`,
        most of them before.
        """

    def take_ignored(self) -> Sequence[tuple[int, int]]:
        """Return the ranges of unsupported markup found since the last call."""
        return ()


class SpeechPlanner(Planner):
    """One context's text: segmenter, normaliser and the wait for a stalled stream.

    Args:
        normalizer: shared between contexts.
        segmenter_config: `max_chars` bounds the spoken text too; a longer one is split again.
        stall_flush_s: time without new text after which the pending text is spoken; None: no limit. Doubled if the
            text ends within a word: a model that pauses there is likelier to go on, and a single word at the start of
            the next segment sounds worse than a longer pause.
        live: return a segment before it is complete, as far as later text cannot change it, and again each time there
            is more. It ends where it would end otherwise. Text pushed with the same time counts as one piece; a text
            that comes in one piece is returned as a whole.
    """

    def __init__(
        self,
        normalizer: Normalizer,
        segmenter_config: SegmenterConfig | None = None,
        stall_flush_s: float | None = None,
        *,
        live: bool = False,
    ) -> None:
        self._normalizer = normalizer
        self._config = segmenter_config or SegmenterConfig()
        self._segmenter = Segmenter(self._config)
        self._stall_flush_s = stall_flush_s
        self._live = live
        self._open = OpenText(normalizer, self._config.max_chars, 0)
        self._piece_at = 0.0  # when the pending text began to come
        self._is_streamed = False  # more of it came later
        self._opens_at: float | None = None
        self._last_text_at = 0.0
        self._skipped = SkippedText()
        self._readings: deque[Reading] = deque()  # of text that has not been read
        self._num_segments = 0

    @property
    def num_chars(self) -> int:
        """Number of characters received, spoken or not."""
        return self._segmenter.num_chars

    def pushing(self, delta: str, now: float) -> Planning:
        if not delta:
            return
        is_first = not self._segmenter.has_words
        complete = self._segmenter.push(replace_surrogates(delta))
        yield from self._planning(delta, complete, is_first, now)

    def pushing_whole(self, piece: Substitute, now: float) -> Planning:
        """Add a piece of text that is not divided, and that is read as something else."""
        spoken: str | None
        if piece.alias is not None:
            spoken = piece.alias if piece.say_as == SOUND else self._normalizer.respell(piece.alias)
        else:
            spoken = self._normalizer.spell_out(piece.text, piece.say_as)
        if not spoken:
            yield from self.pushing(piece.text, now)
            return
        start = self._segmenter.num_chars
        self._readings.append(Reading(start, start + len(piece.text), spoken))
        is_first = not self._segmenter.has_words
        complete = self._segmenter.push_whole(replace_surrogates(piece.text))
        yield from self._planning(piece.text, complete, is_first, now)

    def flushing(self, now: float) -> Planning:
        yield from self._plan(self._segmenter.flush())
        self._skipped.close()

    def ending(self, now: float) -> Planning:
        yield from self.flushing(now)

    def ticking(self, now: float) -> Planning:
        stalls_at = self._stalls_at()
        if stalls_at is not None and now >= stalls_at:
            yield from self.flushing(now)
        elif self._opens_at is not None and now >= self._opens_at:
            yield self._give_open()

    def next_deadline(self) -> float | None:
        times = [at for at in (self._opens_at, self._stalls_at()) if at is not None]
        return min(times, default=None)

    def may_skip(self, text: str) -> bool:
        """Return True if a part of `text` may be skipped. Linear in the number of characters."""
        return self._normalizer.may_skip(replace_surrogates(text))

    def take_skipped(self) -> Sequence[tuple[int, int]]:
        return self._skipped.take()

    def _planning(self, delta: str, complete: list[TextSegment], is_first: bool, now: float) -> Planning:
        """Yield the segments that follow from a delta which the segmenter has taken."""
        self._last_text_at = now
        yield from self._plan(complete)
        if self._live:
            if is_first or complete:
                self._piece_at, self._is_streamed = now, False
            self._is_streamed = self._is_streamed or (now > self._piece_at and not delta.isspace())
            yield from self._follow(now)

    def _take_readings(self, source: str) -> list[Reading]:
        """Return the given readings within the next text of the open segment."""
        start = self._open.start + self._open.num_chars
        taken: list[Reading] = []
        while self._readings and self._readings[0].end <= start + len(source):
            reading = self._readings.popleft()
            taken.append(reading._replace(start=reading.start - start, end=reading.end - start))
        return taken

    def _stalls_at(self) -> float | None:
        if self._stall_flush_s is None or not self._segmenter.has_words:
            return None
        num_waits = 2 if self._segmenter.ends_mid_word else 1
        return self._last_text_at + num_waits * self._stall_flush_s

    def _follow(self, now: float) -> Planning:
        """Yield the segments that follow from the pending text after a push."""
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

    def _give_open(self) -> list[Segment]:
        self._opens_at = None
        part = self._open.take()
        if part is None:
            return []
        start, end = self._open.start, self._open.start + len(part.source)
        return [Segment(self._num_segments, part.text, part.source, start, end, part.words, final=False)]

    def _plan(self, segments: list[TextSegment]) -> Planning:
        for segment in segments:
            yield from self._speak(segment)

    def _speak(self, segment: TextSegment) -> Planning:
        rest = segment.text[self._open.num_chars :]
        for _ in self._open.closing(rest, self._take_readings(rest)):
            yield []
        normalized = self._open.spoken()
        self._open, self._opens_at = OpenText(self._normalizer, self._config.max_chars, segment.end), None
        self._skipped.add(normalized.ranges(SKIPPED), normalized.fates, segment.start)
        parts = split_spoken(normalized, self._config.max_chars)
        for part in parts:
            added_chars = normalized.added_chars if part is parts[0] else 0
            yield [self._segment_of(part, segment, added_chars, is_last=part is parts[-1])]

    def _segment_of(self, part: NormalizedText, segment: TextSegment, added_chars: int, *, is_last: bool) -> Segment:
        start = segment.start + part.start
        self._num_segments += 1
        return Segment(
            self._num_segments - 1,
            part.text,
            part.source,
            start,
            start + len(part.source),
            place_words(part, start),
            ends_sentence=is_last and segment.ends_sentence,
            added_chars=added_chars,
        )


def _all(planning: Planning) -> list[Segment]:
    return [segment for segments in planning for segment in segments]

"""What every door plans its text with: a planner whose text may ask for pauses."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from realtime_tts.text.lexicon import Lexicon
from realtime_tts.text.normalizer import Normalizer
from realtime_tts.text.pauses import MAX_SENTENCE_SILENCE_MS, MAX_SILENCE_MS, Pause, PauseFinder
from realtime_tts.text.planner import OPEN_STALL_S, Planning, SpeechPlanner, SpeechSegment, all_segments
from realtime_tts.text.segmenter import SegmenterConfig


class PausePlanner:
    """A planner of text that may ask for pauses, each of which is a segment without words.

    A pause ends the segment in front of it. Its own characters are of the context's text like all others: places in the
    text count them.

    Args:
        planner: of the text without its pauses; nobody else uses it.
        stall_flush_s: as for `SpeechPlanner`; also when the beginning of a pause that does not go on is taken for text.
        sentence_pause_ms: of silence between two sentences between which the text asks for no pause; its planner cuts
            by sentence.
    """

    def __init__(self, planner: SpeechPlanner, stall_flush_s: float | None, *, sentence_pause_ms: float = 0.0) -> None:
        self._planner, self._stall_flush_s = planner, stall_flush_s
        self._finder = PauseFinder()
        self._last_text_at = 0.0
        self._places = [0]  # in the text without pauses, where one stood; at the text's start none,
        self._shifts = [0]  # and how many characters of pauses there are up to and with it
        self._num_silences = 0
        self._silence_left_ms = MAX_SILENCE_MS
        self._sentence_pause_ms = sentence_pause_ms
        self._sentence_silence_left_ms = MAX_SENTENCE_SILENCE_MS
        self._follows_sentence = False
        self._num_placed = 0  # segments of the planner's that were given, once or more often

    @property
    def num_chars(self) -> int:
        """Characters received, spoken or not, but for those that may become a pause."""
        return self._planner.num_chars + self._shifts[-1]

    def push(self, delta: str, now: float) -> list[SpeechSegment]:
        """As of `SpeechPlanner`, like all that follows."""
        return all_segments(self.pushing(delta, now))

    def flush(self, now: float) -> list[SpeechSegment]:
        return all_segments(self.flushing(now))

    def end(self, now: float) -> list[SpeechSegment]:
        return all_segments(self.ending(now))

    def tick(self, now: float) -> list[SpeechSegment]:
        return all_segments(self.ticking(now))

    def pushing(self, delta: str, now: float) -> Planning:
        self._last_text_at = now
        for found in self._finder.push(delta):
            if isinstance(found, Pause):
                yield from self._placed(self._planner.flushing(now))
                self._places.append(self._planner.num_chars)
                self._shifts.append(self._shifts[-1] + found.num_chars)
                self._follows_sentence = False
                if (duration_ms := min(found.duration_ms, self._silence_left_ms)) > 0:
                    self._silence_left_ms -= duration_ms
                    yield [self._silence(found.num_chars, duration_ms)]
            else:
                yield from self._placed(self._planner.pushing(found, now))

    def flushing(self, now: float) -> Planning:
        yield from self._releasing(now)
        yield from self._placed(self._planner.flushing(now))

    def ending(self, now: float) -> Planning:
        yield from self._releasing(now)
        yield from self._placed(self._planner.ending(now))

    def ticking(self, now: float) -> Planning:
        if (released_at := self._released_at()) is not None and now >= released_at:
            yield from self._releasing(now)
        yield from self._placed(self._planner.ticking(now))

    def next_deadline(self) -> float | None:
        times = [at for at in (self._released_at(), self._planner.next_deadline()) if at is not None]
        return min(times, default=None)

    def take_skipped(self) -> Sequence[tuple[int, int]]:
        return [(self._from(start), self._to(end)) for start, end in self._planner.take_skipped()]

    def _releasing(self, now: float) -> Planning:
        if self._finder.is_holding:
            yield from self._placed(self._planner.pushing(self._finder.release(), now))

    def _released_at(self) -> float | None:
        if self._stall_flush_s is None or not self._finder.is_holding:
            return None
        return self._last_text_at + self._stall_flush_s

    def _silence(self, num_chars: int, duration_ms: float) -> SpeechSegment:
        end = self.num_chars
        index = self._planner.num_segments + self._num_silences
        self._num_silences += 1
        return SpeechSegment(index, "", "", end - num_chars, end, (), silence_ms=duration_ms)

    def _placed(self, planning: Planning) -> Planning:
        for segments in planning:
            yield [placed for segment in segments for placed in self._after_pause(segment)]

    def _after_pause(self, segment: SpeechSegment) -> Iterator[SpeechSegment]:
        """A segment of the planner's, and in front of it the pause between sentences, if one belongs there."""
        if segment.index == self._num_placed:
            self._num_placed += 1
            silence_ms = min(self._sentence_pause_ms, self._sentence_silence_left_ms)
            if self._follows_sentence and silence_ms > 0:
                self._sentence_silence_left_ms -= silence_ms
                self._num_silences += 1
                start = self._from(segment.start)
                yield SpeechSegment(
                    segment.index + self._num_silences - 1, "", "", start, start, (), silence_ms=silence_ms
                )
        self._follows_sentence = segment.ends_sentence
        yield self._with_places(segment)

    def _with_places(self, segment: SpeechSegment) -> SpeechSegment:
        if len(self._places) == 1 and self._num_silences == 0:
            return segment
        words = (word._replace(start=self._from(word.start), end=self._to(word.end)) for word in segment.words)
        return replace(
            segment,
            index=segment.index + self._num_silences,
            start=self._from(segment.start),
            end=self._to(segment.end),
            words=tuple(words),
        )

    def _from(self, place: int) -> int:
        """Where in the context's text something begins: behind a pause at this place."""
        return place + self._shifts[bisect_right(self._places, place) - 1]

    def _to(self, place: int) -> int:
        """Where something ends: in front of a pause at this place."""
        return place + self._shifts[max(0, bisect_left(self._places, place) - 1)]


class PlannerFactory:
    """Makes the planners of one model's contexts.

    Args:
        charset: the characters its tokenizer knows; None for all.
        max_segment_chars: the longest text it speaks well.
        stall_flush_s: as for `SpeechPlanner`; of live planners None is `OPEN_STALL_S`.
    """

    def __init__(self, charset: str | None, max_segment_chars: int, stall_flush_s: float | None) -> None:
        letters = None if charset is None else frozenset(charset)
        self._normalizer = functools.lru_cache(maxsize=16)(lambda language: Normalizer(language, letters))
        defaults = SegmenterConfig()
        self._segmenter = replace(defaults, max_chars=min(defaults.max_chars, max_segment_chars))
        self._stall_flush_s = stall_flush_s

    def make(
        self,
        language: str,
        *,
        live: bool = False,
        sentence_pause_ms: float = 0.0,
        lexicons: Sequence[Lexicon] = (),
    ) -> PausePlanner:
        """A planner for one context in this language; the rest is as for what it is made of."""
        stall_flush_s = OPEN_STALL_S if live and self._stall_flush_s is None else self._stall_flush_s
        segmenter = replace(self._segmenter, by_sentence=sentence_pause_ms > 0)
        normalizer = self._normalizer(language).with_lexicons(lexicons)
        planner = SpeechPlanner(normalizer, segmenter, stall_flush_s, live=live)
        return PausePlanner(planner, stall_flush_s, sentence_pause_ms=sentence_pause_ms)

"""Division of a stream of text into segments that are spoken one after another.

The decision at each point depends on the characters so far and on nothing else, so any split of the stream into
deltas gives the same segments. Look-ahead is bounded: a gap is judged when the character after it arrives, an
ambiguous full stop ("the U.S. …") when the word after it ends.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from string import ascii_letters, digits

from realtime_tts.text.boundaries import Boundary, gap_boundary, word_opens_sentence
from realtime_tts.text.characters import (
    CLOSERS,
    LONG_DASHES,
    OPENERS,
    begins_grapheme,
    is_cjk_punctuation,
    is_clause_stop,
    is_mark,
    is_sentence_stop,
    is_unspaced,
)
from realtime_tts.text.language_data import word_set

MAX_CHARS = 200  # of a segment, for models that speak longer ones well
_MAX_UNDECIDED = 12  # characters of the next word that an ambiguous stop waits for
_TINY = -100.0
_POOR_FILL = 0.2  # of the longest segment
_PLAIN_WORD = frozenset(ascii_letters + digits)
_WORD_RUN = re.compile(r"[A-Za-z0-9]+")
_BREAK_BEFORE = word_set("break_before")


@dataclass(frozen=True, slots=True)
class SegmenterConfig:
    """Limits of segments. Lengths are in characters, at least 1; a run of white space counts as one.

    Args:
        max_chars: no segment is longer, unless a single word (a URL) is.
        first_min_chars: the first segment ends at the first clause or sentence end at or beyond this length.
        min_chars: later segments end at a sentence end at or beyond this length. The limit doubles from
            `first_min_chars` up to it, so that speech made from the first segments covers the wait for longer ones.
        clause_chars: beyond this length a clause end is good enough for a later segment too.
        max_word_chars: a word longer than this is cut inside.
    """

    max_chars: int = MAX_CHARS
    first_min_chars: int = 12
    min_chars: int = 60
    clause_chars: int = 120
    max_word_chars: int = 300

    def sentence_limit(self, num_segments: int) -> int:
        """Return the length from which a sentence end closes the segment after `num_segments` others."""
        ramp = self.first_min_chars << min(num_segments, 16)
        return min(ramp, max(self.min_chars, self.first_min_chars), max(1, self.max_chars // 2))

    def clause_limit(self, num_segments: int) -> int:
        """Return the length from which a clause end closes the segment after `num_segments` others."""
        if num_segments == 0:
            return min(self.first_min_chars, max(1, self.max_chars // 2))
        return min(self.clause_chars, max(1, self.max_chars * 3 // 5))


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Segment of the stream: `text` is its characters from `start` to `end`, white space included."""

    text: str
    start: int
    end: int
    ends_sentence: bool


@dataclass(frozen=True, slots=True)
class _Gap:
    index: int  # into the pending characters: the first character after the gap
    num_visible: int  # length of what is before, white-space runs counted as one
    boundary: Boundary


class Segmenter:
    """Incremental segmenter. Every method returns the segments that are complete; their ranges tile the stream.

    Args:
        language: primary language subtag of the text, for abbreviations, ordinals and quotation marks.
        by_sentence: every sentence is a segment of its own, however short.
    """

    def __init__(
        self, config: SegmenterConfig | None = None, language: str = "en", *, by_sentence: bool = False
    ) -> None:
        self._config, self._language, self._by_sentence = config or SegmenterConfig(), language, by_sentence
        self._offset = 0  # of the first pending character in the stream
        self._num_segments = 0  # since the start or the last flush
        self._chars: list[str] = []
        self._gaps: list[_Gap] = []
        self._undecided: _Gap | None = None
        self._num_weighed = 0  # of the gaps, for `sure_text`
        self._best_score = -math.inf  # of all those but the newest
        self._sure_end = 0
        self._num_visible = 0
        self._num_ticks = 0  # backticks on this line: odd inside inline code

    @property
    def num_chars(self) -> int:
        """Number of characters received in all."""
        return self._offset + len(self._chars)

    @property
    def has_words(self) -> bool:
        """True if anything but white space is pending."""
        return self._num_visible > 0

    def sure_text(self, start: int) -> str:
        """Return the pending text from `start` to the last gap before which no later text can cause a cut.

        That is a gap at which a cut is better than at all gaps before it.
        """
        while self._num_weighed < len(self._gaps):
            gap = self._gaps[self._num_weighed]
            if self._num_weighed:
                self._best_score = max(self._best_score, self._score(self._gaps[self._num_weighed - 1]))
            if self._least_score(gap) > self._best_score and not is_mark(self._chars[gap.index]):
                self._sure_end = gap.index
            self._num_weighed += 1
        return "".join(self._chars[start : self._sure_end])

    @property
    def ends_mid_word(self) -> bool:
        """Return True if the next delta could still continue the last pending word or number."""
        if not self._chars:
            return False
        last = self._chars[-1]
        if last == "." and len(self._chars) > 1:
            return self._chars[-2].isdigit()
        return last.isalnum() or last in "-'’@#$€£¥_/&+=~\\" or is_mark(last)

    def push(self, delta: str) -> list[TextSegment]:
        """Add text; returns the segments that are complete now."""
        segments: list[TextSegment] = []
        index = 0
        while index < len(delta):
            index += self._extend_word(delta, index) or self._feed(delta[index], segments)
        return segments

    def push_whole(self, text: str) -> list[TextSegment]:
        """Add text that no cut divides."""
        segments: list[TextSegment] = []
        self._feed(text[0], segments)
        for char in text[1:]:
            self._append(char)
        self._settle(segments)
        return segments

    def flush(self) -> list[TextSegment]:
        """Close the pending segment wherever it stands. What follows starts early again, like the first one."""
        segments: list[TextSegment] = []
        if self._chars:
            # A sentence as well if what follows is another one.
            ends_sentence = gap_boundary([*self._chars, " "], "A", self._language) >= Boundary.SENTENCE
            self._cut(len(self._chars), segments, ends_sentence=ends_sentence)
        self._num_segments = 0
        return segments

    # One character at a time, hence the same result for every split.

    def _feed(self, char: str, segments: list[TextSegment]) -> int:
        """Add one character; return 1."""
        if self._resolve_undecided(over=char.isspace() or self._is_gap(char)):
            self._settle(segments)
        if self._is_gap(char):
            self._judge_gap(char)
        self._append(char)
        if char == "`":
            self._num_ticks += 1
        elif char == "\n":
            self._num_ticks = 0
        self._settle(segments)
        return 1

    def _extend_word(self, delta: str, index: int) -> int:
        """Append the characters that continue the last word, if no decision depends on them; return their number."""
        if not self._chars or self._undecided is not None or self._chars[-1] not in _PLAIN_WORD:
            return 0
        num_free = self._config.max_chars - self._num_visible
        run = _WORD_RUN.match(delta, index, index + max(0, num_free))
        if run is None:
            return 0
        self._chars.extend(run.group())
        self._num_visible += run.end() - index
        return run.end() - index

    def _judge_gap(self, char: str) -> None:
        """Decide about the gap before `char`, which is about to be appended."""
        index = len(self._chars)
        boundary = gap_boundary(self._chars, char, self._language)
        if self._num_ticks % 2:
            boundary = min(boundary, Boundary.WORD)  # inline code is not prose
        gap = _Gap(index, self._num_visible, boundary)
        if boundary is Boundary.UNDECIDED:
            self._undecided = gap
        elif boundary is not Boundary.NONE:
            self._gaps.append(gap)

    def _is_gap(self, char: str) -> bool:
        """Return True if the text could be cut before `char`."""
        if not self._chars or char.isspace():
            return False
        before = self._chars[-1]
        if before.isspace():
            return True
        if char <= "\x7f" and before <= "\x7f" and before not in CLOSERS:
            return False
        if before in LONG_DASHES:
            return char not in LONG_DASHES
        if is_mark(char) or (is_cjk_punctuation(char) and char not in OPENERS) or char in CLOSERS or char in ",.!?;:…":
            return False
        if is_sentence_stop(char) or is_clause_stop(char):
            return False
        if is_sentence_stop(before) or is_clause_stop(before) or is_cjk_punctuation(before) or before in CLOSERS:
            return True
        return (is_unspaced(char) or is_unspaced(before)) and begins_grapheme(before, char)

    def _resolve_undecided(self, *, over: bool) -> bool:
        """Decide about an ambiguous stop once the word after it has ended or is long enough. Return True if decided."""
        gap = self._undecided
        if gap is None or not (over or len(self._chars) - gap.index >= _MAX_UNDECIDED):
            return False
        word = "".join(self._chars[gap.index :])
        boundary = Boundary.SENTENCE if word_opens_sentence(word) else Boundary.WORD
        self._gaps.append(_Gap(gap.index, gap.num_visible, boundary))
        self._undecided = None
        return True

    def _append(self, char: str) -> None:
        if not char.isspace():
            follows_space = self._num_visible > 0 and self._chars[-1].isspace()
            self._num_visible += 2 if follows_space else 1
        self._chars.append(char)

    def _settle(self, segments: list[TextSegment]) -> None:
        """Cut the pending text wherever it is long enough."""
        while (cut := self._best_cut()) is not None:
            self._cut(cut.index, segments, ends_sentence=cut.boundary is Boundary.SENTENCE)

    def _best_cut(self) -> _Gap | None:
        if self._gaps:
            # Only the newest gap can have become good enough; older ones were looked at when they were new.
            newest = self._gaps[-1]
            if newest.num_visible <= self._config.max_chars and self._is_good(newest):
                return newest
        if self._num_visible <= self._config.max_chars:
            return None
        too_long = self._num_visible >= self._config.max_word_chars
        if not too_long and all(map(self._is_poor, self._gaps)):
            return None
        best = max(self._gaps, key=self._score, default=None)
        return best or _Gap(len(self._chars), self._num_visible, Boundary.NONE)

    def _is_good(self, gap: _Gap) -> bool:
        if gap.boundary is Boundary.SENTENCE:
            return self._by_sentence or gap.num_visible >= self._config.sentence_limit(self._num_segments)
        return gap.boundary is Boundary.CLAUSE and gap.num_visible >= self._config.clause_limit(self._num_segments)

    def _is_poor(self, gap: _Gap) -> bool:
        """ "See | https://…": rather let the planner divide what is spoken."""
        return gap.num_visible < _POOR_FILL * self._config.max_chars and gap.boundary is Boundary.WORD

    def _score(self, gap: _Gap) -> float:
        """Return the quality of a forced cut at `gap`. Of like boundaries, the longer segment is better."""
        fill = gap.num_visible / self._config.max_chars
        # Early in a clause, a later cut is better, whatever the word after the gap.
        is_late = fill >= 0.5 or (fill >= _POOR_FILL and gap.boundary is not Boundary.WORD)
        return self._least_score(gap) + 0.2 * (is_late and self._next_word(gap.index) in _BREAK_BEFORE)

    def _least_score(self, gap: _Gap) -> float:
        """Return the lowest score that the gap can have while the word after it may be incomplete."""
        fill = gap.num_visible / self._config.max_chars
        if fill > 1:
            return 1 - fill  # after a word that is too long by itself
        if fill < _POOR_FILL:
            return _TINY + fill
        score = fill
        if gap.boundary is not Boundary.WORD and fill >= 0.3:
            score += 0.6 if gap.boundary is Boundary.CLAUSE else 1.2
        before = self._chars[max(0, gap.index - 2) : gap.index]
        if self._chars[gap.index].isdigit() or any(char.isdigit() or char == "." for char in before):
            score -= 0.3  # "March | 3", "5 | km", "Dr. | Smith"
        return score

    def _next_word(self, index: int) -> str:
        end = index
        while end < len(self._chars) and end - index < _MAX_UNDECIDED and self._chars[end].isalpha():
            end += 1
        return "".join(self._chars[index:end]).lower()

    def _cut(self, end: int, segments: list[TextSegment], *, ends_sentence: bool) -> None:
        text = "".join(self._chars[:end])
        segments.append(TextSegment(text, self._offset, self._offset + end, ends_sentence))
        self._num_segments += 1
        self._offset += end
        self._num_weighed, self._best_score, self._sure_end = 0, -math.inf, 0
        rest, self._chars, self._num_visible = self._chars[end:], [], 0
        visible_before: list[int] = []
        for char in rest:
            visible_before.append(self._num_visible)
            self._append(char)

        def moved(gap: _Gap) -> _Gap:
            return _Gap(gap.index - end, visible_before[gap.index - end], gap.boundary)

        self._gaps = [moved(gap) for gap in self._gaps if gap.index > end]
        if self._undecided is not None:
            self._undecided = moved(self._undecided) if self._undecided.index > end else None

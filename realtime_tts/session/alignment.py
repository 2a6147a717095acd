"""Word times: measured by the engine where possible, otherwise estimated from the planner's weights and the audio
length.

Measured: with the audio, the engine reports pairs of a time and the character of the segment's text spoken then. Times
of other characters are interpolated linearly, and extrapolated at the same pace behind the last point. A word begins
when its first character is reached, and ends when the space or mark behind it has been passed: until then its last
sound is spoken.

Estimated: words of a segment share its audio by weight. While a segment is being generated, its length is estimated
from the speaking rate of the context so far. An error of the estimate shifts only the words not committed yet.

A word is committed when the packet with its first sample is about to be sent, the latest possible moment. Of a
committed word only the end changes: it is measured by the time the next word is committed.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile

from realtime_tts.session.memory import ITEM_BYTES, OBJECT_BYTES, text_bytes
from realtime_tts.session.messages import TimedWord
from realtime_tts.text.boundaries import Boundary, gap_boundary
from realtime_tts.text.planner import Segment
from realtime_tts.text.words import Word

PRIOR_MS_PER_CHAR = 65.0  # about 15 characters a second, a usual reading pace
PRIOR_CHARS = 40  # how much the prior weighs against what was measured
_EPSILON_MS = 0.5
_PACES_MS_PER_CHAR = (30.0, 200.0)  # plausible range of speech; excludes pauses and jumps
_GAP = re.compile(r"[^\w\s]*\s*")  # from a word's last letter to the next word
MAX_REPEATED_MS = 8_000.0  # of a clause that is begun again; clients keep as much of what was played
_LAST_SOUND_MS = 250.0  # of a word, at most; what is longer is a pause
_PACE_AFTER_MS = 300.0  # speech needed before a pace is measured


@dataclass(slots=True)
class _Track:
    """Progress of one segment."""

    segment: Segment
    speed: float
    audio_ms: float = 0.0
    done: bool = False
    num_committed: int = 0
    times_ms: array[float] = field(default_factory=lambda: array("d"))  # times within the segment's audio,
    chars: array[float] = field(default_factory=lambda: array("d"))  # and the character reached at each

    @property
    def is_measured(self) -> bool:
        return bool(self.chars)

    def reach(self, time_ms: float, char: float) -> None:
        """Add a measured point. Ignore it if its time does not exceed the last one or its character lies before the
        last one."""
        time_ms, char = max(0.0, time_ms), min(max(0.0, char), float(len(self.segment.text)))
        if not self.chars:
            self.times_ms.append(0.0)
            self.chars.append(0.0)
        if time_ms > self.times_ms[-1] and char >= self.chars[-1]:
            self.times_ms.append(time_ms)
            self.chars.append(char)

    def end_of(self, index: int) -> float:
        """Return the time at which a word ends, in ms of this segment's audio."""
        words, num_chars = self.segment.words, len(self.segment.text)
        following = words[index + 1].spoken_start if index + 1 < len(words) else num_chars
        # Of what is left behind the last point, half is silence.
        passed_ms = self.time_of(min(words[index].spoken_end + 1, following, num_chars - 0.5))
        return min(passed_ms, self.time_of(words[index].spoken_end) + _LAST_SOUND_MS)

    def time_of(self, char: float) -> float:
        """Return the time at which the character is reached, in ms of this segment's audio."""
        after = bisect_left(self.chars, char)
        if after == 0:
            return 0.0
        time_ms, reached = self.times_ms[after - 1], self.chars[after - 1]
        if after < len(self.chars):
            next_ms, next_char = self.times_ms[after], self.chars[after]
        elif self.done:
            next_ms, next_char = max(time_ms, self.audio_ms), max(float(len(self.segment.text)), reached + 1)
        else:
            return time_ms + (char - reached) * self._ms_per_char()
        return time_ms + (next_ms - time_ms) * (char - reached) / (next_char - reached)

    def _ms_per_char(self) -> float:
        time_ms, reached = self.times_ms[-1], self.chars[-1]
        if time_ms < _PACE_AFTER_MS or reached < 1:
            return PRIOR_MS_PER_CHAR / self.speed
        fastest, slowest = (pace / self.speed for pace in _PACES_MS_PER_CHAR)
        return max(fastest, min(slowest, time_ms / reached))


class WordAligner:
    """Assigns times in one context's audio to its words.

    Args:
        speed: tempo factor of the audio; 1 is the model's own tempo.
    """

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._tracks: deque[_Track] = deque()  # segments with words or audio still outstanding
        self._num_over = 0  # number of segments before those
        self._start_ms = 0.0  # start of the current track's audio
        self._last_start_ms = 0.0  # start of the last committed word
        self._cursor_ms = 0.0  # end of the last committed word
        self._last: tuple[_Track, int, float] | None = None  # that word, if measured: track, index, start of the track
        self.previous_end_ms: float | None = None
        self._starts_ms = array("d")  # starts and ends of all committed words, for `heard_chars`
        self._ends_ms = array("d")
        self._end_chars = array("L")
        self._measured_chars = 0
        self._measured_ms = 0.0

    def put_segment(self, segment: Segment) -> None:
        """Add the next segment, or replace one that was not final by a longer version: same words, maybe followed by
        more. Segments come in order, without gaps.

        Raises:
            ValueError: an index out of order, or fewer words.
        """
        if segment.index == self._num_over + len(self._tracks):
            self._tracks.append(_Track(segment, self._speed * segment.speed))
        elif (track := self._track(segment.index)) is not None:
            if len(segment.words) < len(track.segment.words):
                raise ValueError(f"segment {segment.index} has lost words")
            track.segment = segment

    def progress(
        self, segment_index: int, audio_ms: float, done: bool, reached: tuple[float, float] | None = None
    ) -> None:
        """Record that segment `segment_index` has `audio_ms` of audio so far; with `done`, that this is all of it.

        Args:
            reached: time in the segment's audio (ms) and the character of its text spoken then, as a fraction;
                None: not measured.

        Raises:
            ValueError: an index that was never added.
        """
        track = self._track(segment_index)
        if track is None or track.done:
            return
        track.audio_ms = max(track.audio_ms, audio_ms)
        if reached is not None:
            track.reach(*reached)
        if done:
            track.done = True
            if track.segment.text:  # silence has no pace
                self._measured_chars += len(track.segment.text)
                self._measured_ms += track.audio_ms

    def finish(self) -> None:
        """Mark all segments as done: no more audio comes."""
        for index, track in enumerate(self._tracks, self._num_over):
            self.progress(index, track.audio_ms, done=True)

    def drop(self) -> None:
        """Discard the words that are not committed yet."""
        self._num_over += len(self._tracks)
        self._tracks.clear()

    @property
    def num_bytes(self) -> int:
        """Approximate memory in use, bytes."""
        tracks_bytes = sum(segment_bytes(track.segment) for track in self._tracks)
        return tracks_bytes + len(self._ends_ms) * (2 * self._ends_ms.itemsize + self._end_chars.itemsize)

    @property
    def num_done(self) -> int:
        """Number of complete segments at the front."""
        return self._num_over + sum(1 for _ in takewhile(lambda track: track.done, self._tracks))

    def commit_until(self, end_ms: float) -> list[TimedWord]:
        """Return words that begin before `end_ms` of the context's audio and have not been returned before. If the end
        of the word before them is known better by now, `previous_end_ms` is set, else None.

        If the current segment's length is known, all of its words are returned as soon as one is due.
        """
        words: list[TimedWord] = []
        self.previous_end_ms = None
        while self._tracks:
            track = self._tracks[0]
            if self._next_start_ms(track) >= end_ms and not self._is_over(track, end_ms):
                break
            commit = self._commit_measured if track.is_measured else self._commit_estimated
            words += commit(track, end_ms)
            if not track.done:
                break
            self._start_ms += track.audio_ms
            self._tracks.popleft()
            self._num_over += 1
        return words

    def settle_end(self) -> float | None:
        """Set the end of the last committed word to what is measured by now. Return it in ms; None: as before."""
        if self._last is None:
            return None
        track, index, origin_ms = self._last
        end_ms = max(self._last_start_ms, *self._ends_ms[-2:-1], origin_ms + track.end_of(index))
        if abs(end_ms - self._ends_ms[-1]) < _EPSILON_MS:
            return None
        self._ends_ms[-1] = self._cursor_ms = end_ms
        return end_ms

    def heard_chars(self, played_ms: float) -> int:
        """Return the offset in the text at which the last word heard to its end ends."""
        count = bisect_right(self._ends_ms, played_ms + _EPSILON_MS)
        return self._end_chars[count - 1] if count else 0

    def word_share(self, played_ms: float) -> float:
        """Return how much of the word that is heard at `played_ms` was heard, 0 to 1; 0 between words."""
        place = bisect_right(self._ends_ms, played_ms + _EPSILON_MS)
        if place == len(self._ends_ms) or played_ms <= self._starts_ms[place]:
            return 0.0
        return (played_ms - self._starts_ms[place]) / (self._ends_ms[place] - self._starts_ms[place])

    def word_end_ms(self, played_ms: float) -> float:
        """Return where the word that is heard at `played_ms` ends, or `played_ms` between words."""
        place = bisect_right(self._ends_ms, played_ms + _EPSILON_MS)
        is_inside = place < len(self._ends_ms) and self._starts_ms[place] < played_ms - _EPSILON_MS
        return self._ends_ms[place] if is_inside else played_ms

    def clause_start_ms(self, played_ms: float, text: str) -> float:
        """Return where the clause of the last word heard by `played_ms` begins; `played_ms` if the clause ends with
        this word, or is longer than `MAX_REPEATED_MS`.

        text: the context's text.
        """
        heard = place = bisect_right(self._ends_ms, played_ms + _EPSILON_MS)
        while place > 0 and not _is_clause_start(text, self._end_chars[place - 1]):
            place -= 1
            if played_ms - self._starts_ms[place] > MAX_REPEATED_MS:
                return played_ms
        return played_ms if place == heard else self._starts_ms[place]

    def _track(self, index: int) -> _Track | None:
        """Return the track of a segment, or None if it is over.

        Raises:
            ValueError: an index that was never added.
        """
        if not 0 <= index < self._num_over + len(self._tracks):
            raise ValueError(f"unknown segment {index}")
        return None if index < self._num_over else self._tracks[index - self._num_over]

    def _is_over(self, track: _Track, end_ms: float) -> bool:
        return track.done and self._start_ms + track.audio_ms <= end_ms + _EPSILON_MS

    def _next_start_ms(self, track: _Track) -> float:
        """Return the start of the next word of the current track, ms, as far as it is known."""
        words = track.segment.words
        if not track.is_measured or track.num_committed == len(words):
            return max(self._cursor_ms, self._start_ms)
        return self._start_ms + track.time_of(words[track.num_committed].spoken_start)

    def _commit_measured(self, track: _Track, end_ms: float) -> list[TimedWord]:
        committed: list[TimedWord] = []
        while track.num_committed < len(track.segment.words):
            start_ms = max(self._next_start_ms(track), self._last_start_ms)
            if start_ms >= end_ms and not track.done:
                break
            word = track.segment.words[track.num_committed]
            track.num_committed += 1
            index = track.num_committed - 1
            if not committed and (settled_ms := self.settle_end()) is not None:
                self.previous_end_ms = settled_ms
            word_end_ms = max(start_ms, self._start_ms + track.end_of(index))
            committed.append(self._commit(word, start_ms, max(word_end_ms, self._cursor_ms), measured=True))
            self._last = track, index, self._start_ms
        return committed

    def _commit(self, word: Word, start_ms: float, end_ms: float, measured: bool) -> TimedWord:
        self._last_start_ms, self._cursor_ms, self._last = start_ms, end_ms, None
        self._starts_ms.append(start_ms)
        self._ends_ms.append(end_ms)
        self._end_chars.append(word.end)
        return TimedWord(word.text, word.start, word.end, start_ms, end_ms, measured)

    def _commit_estimated(self, track: _Track, end_ms: float) -> list[TimedWord]:
        words = track.segment.words
        total_ms = track.audio_ms if track.done else max(track.audio_ms, self._estimate_ms(track.segment))
        track_end_ms = self._start_ms + total_ms
        self._cursor_ms = max(self._cursor_ms, self._start_ms)
        committed: list[TimedWord] = []
        rest = sum(word.weight for word in words[track.num_committed :])
        while track.num_committed < len(words) and (track.done or self._cursor_ms < end_ms):
            word = words[track.num_committed]
            share = word.weight / rest if rest > 0 else 1.0
            start_ms = self._cursor_ms
            word_end_ms = start_ms + max(0.0, track_end_ms - start_ms) * min(1.0, share)
            rest -= word.weight
            track.num_committed += 1
            committed.append(self._commit(word, start_ms, word_end_ms, measured=False))
        return committed

    def _estimate_ms(self, segment: Segment) -> float:
        """Return the estimated duration of the segment's words known so far, ms."""
        num_chars = len(segment.text)
        if not segment.final:
            num_chars = segment.words[-1].spoken_end if segment.words else 0
        known_ms = PRIOR_CHARS * PRIOR_MS_PER_CHAR / self._speed + self._measured_ms
        return num_chars * known_ms / (PRIOR_CHARS + self._measured_chars)


def _is_clause_start(text: str, gap: int) -> bool:
    """Return True if a clause begins with the word behind the offset `gap`, where another word ends."""
    match = _GAP.match(text, gap)
    following = len(text) if match is None else match.end()
    return following < len(text) and gap_boundary(text[:following], text[following]) >= Boundary.CLAUSE


def segment_bytes(segment: Segment) -> int:
    """Return the approximate memory of a segment and its words, in bytes."""
    return OBJECT_BYTES + text_bytes(segment.text) + ITEM_BYTES * len(segment.words)

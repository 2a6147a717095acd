"""Speaking of listed openings before requests need them, in each way in which their text may arrive. Pure."""

from __future__ import annotations

import collections
from collections.abc import Callable

from realtime_tts.contract import frames

_PRIORITY = 8  # behind all requests


class OpeningList:
    """Listed openings that are not spoken yet, one request at a time.

    A live text is read in parts, and how it sounds depends on which. An opening is spoken once with its whole text at
    the start, then with its first text, as little more as the look-ahead requires, and its whole text after the first
    patch, after the second, and so on. What these have in common is made once.

    Attributes:
        runs: a request was begun and has not ended. is_stopped: no further request begins.
    """

    def __init__(self) -> None:
        self.is_stopped = False
        self._left: collections.deque[frames.Opening] = collections.deque()
        self._known: set[bytes] = set()
        self._final_after = 0  # patches before the whole text arrives
        self._num_texts = 0  # given of the current opening
        self._is_last = False  # a later end of the text changes nothing
        self._num_requests = 0
        self.runs = False

    @property
    def is_due(self) -> bool:
        """True if `next` returns a request."""
        return bool(self._left) and not self.runs and not self.is_stopped

    def add(self, opening: frames.Opening) -> None:
        """Add an opening. An empty one, and one that was added before, perhaps by another client, are ignored."""
        key = frames.encode(opening)
        if opening.texts[-1] and key not in self._known:
            self._known.add(key)
            self._left.append(opening)

    def next(self) -> frames.Generate:
        """Return the next request; the caller calls `ended` at its end."""
        opening, self.runs = self._left[0], True
        self._is_last = len(opening.texts) == 1
        self._num_texts = 1 if self._final_after else len(opening.texts)
        self._num_requests += 1
        name = f"opening-{self._num_requests}"  # clients' names begin with a number
        return frames.Generate(
            name,
            name,
            opening.texts[self._num_texts - 1],
            voice=opening.voice,
            seed=opening.seed,
            cfg=opening.cfg,
            steps=opening.steps,
            priority=_PRIORITY,
            paced=False,
            openings=True,
            final=self._num_texts == len(opening.texts),
        )

    def more(self, num_patches: int, is_enough: Callable[[str], bool]) -> tuple[str, bool] | None:
        """Return the text that arrives after so many patches, and whether it is whole; None: no more arrives now.

        Args:
            is_enough: whether a text is long enough for another patch.
        """
        texts = self._left[0].texts
        if self._num_texts == len(texts):
            return None
        if num_patches >= self._final_after:
            self._num_texts = len(texts)
        else:
            while self._num_texts < len(texts) and not is_enough(texts[self._num_texts - 1]):
                self._num_texts += 1
            self._is_last = self._num_texts == len(texts)
        return texts[self._num_texts - 1], self._num_texts == len(texts)

    def ended(self) -> None:
        """Note the end of the request, whatever the reason."""
        self.runs = False
        if self._is_last or self._num_texts < len(self._left[0].texts):  # it did not come to its whole text
            self._left.popleft()
            self._final_after = 0
        else:
            self._final_after += 1

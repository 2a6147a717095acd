"""Judgement of a stream's end by its place in the text. Pure.

The stop head signals the end of speech, the text head the place in the text. Either may be wrong: a stop that never
comes is babble, one that comes too soon cuts words off. docs/internals/model.md has the measurements behind them.
Positions and lengths are in characters of average duration.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from realtime_tts.engine.proofreader import Finding, Proofreader

LAST_S = 0.4  # audio after reaching the end that still belongs to the text
FADED_SHARE = 0.7  # of the usual mass on the text: with less, the head attends to something else
MAX_FADED_S = 0.5  # at the end
MAX_END_S, LAST_CHAR_S = 1.2, 0.16  # at the end, whatever the head attends to; and for each character of the last token
MIN_LEFT_CHARS = 4.0  # a stop that leaves more than that cuts a word off
PATIENCE_S = 0.9  # time in which that much must be spoken; otherwise the stop was right
AUDIBLE_SHARE = 1e-4  # of the loudest patch's power: 40 dB below it
BABBLE_S = 0.5  # audible at the end: less is the last sound


class PatchReading(NamedTuple):
    """One patch of speech.

    position: as the text head reads it; furthest: the maximum so far. mass: share of its attention on the text. power:
    mean square of the samples. end: beginning of the text's last token; length: end of the text.
    """

    position: float
    furthest: float
    mass: float
    power: float
    end: float
    length: float


AUDIBLE_FAULTS: Final = ("babbles", "skips", "repeats", "stuck")
# Names and meanings are those of `frames.TextCounts`.
FAULTS: Final = ("ends_cut", "ends_continued", *AUDIBLE_FAULTS, "skips_mended", "repeats_mended", "stuck_mended")


class EndDetector:
    """Judgement of one segment.

    num_sound: number of leading patches that are not after the text. proofreader: follows the position. finding: the
    fault that the last patch has proved, which counts as heard unless it is mended.

    Args:
        reach: minimum share of the text that positions reach when all is spoken. Text beyond it does not count against
            a stop, since the head never reaches it.
        patch_s: duration of a patch in seconds.
    """

    def __init__(self, reach: float, patch_s: float) -> None:
        self.faults = dict.fromkeys(FAULTS, 0)
        self.num_sound = 0
        self.proofreader = Proofreader(patch_s)
        self.finding: Finding | None = None
        self._mended_until = 0  # number of patches when speech was last cut, for the fault counted as `_mended`
        self._mended = ""
        self._reach, self.patch_s = reach, patch_s
        self._mass_sum, self._num_masses = 0.0, 0  # before the end
        self._loudest = 0.0
        self._at_end_s = self._faded_s = self._audible_s = 0.0
        self._doubted_at: float | None = None  # the furthest position when a stop was last overruled
        self._doubted_s = 0.0  # since then

    def observe(self, heard: PatchReading, *, stop: bool, may_stop: bool) -> bool:
        """Take in one more patch. Return whether it is the last.

        Args:
            stop: the stop head's decision.
            may_stop: whether it counts: all of the text is known and read, and the first patches are made.
        """
        attends_text = self._num_masses == 0 or heard.mass >= FADED_SHARE * self._mass_sum / self._num_masses
        self._loudest = max(self._loudest, heard.power)
        sounds = heard.power > AUDIBLE_SHARE * self._loudest
        self.finding = self.proofreader.observe(heard.position, end=heard.end, attends_text=attends_text, sounds=sounds)
        if self.finding is not None:
            self.faults[self.finding.fault] += 1
            if self.finding.num_good < self._mended_until:  # the same once more
                self.faults[self._mended] -= 1
                self._mended_until = 0
        is_at_end = self.proofreader.is_at_end
        if not is_at_end:
            self._mass_sum, self._num_masses = self._mass_sum + heard.mass, self._num_masses + 1
        elif may_stop:
            self._at_end_s += self.patch_s
            self._faded_s += self.patch_s * (not attends_text)
            self._audible_s += self.patch_s * sounds
            self.faults["babbles"] = int(self._audible_s > BABBLE_S)
        if self._at_end_s < LAST_S:
            self.num_sound += 1
        if not may_stop:
            return False
        if self._faded_s > MAX_FADED_S or self._at_end_s > MAX_END_S + LAST_CHAR_S * (heard.length - heard.end):
            self.faults["ends_cut"] = int(not stop)
            return True
        return self._ends(heard, attends_text, stop)

    def mend(self, finding: Finding, num_patches: int) -> None:
        """Go back to the first `num_patches`, which are before the end: those after them are made again."""
        self._mended, self._mended_until = f"{finding.fault}_mended", len(self.proofreader.places)
        self.faults[finding.fault] -= 1
        self.faults[self._mended] += 1
        self.proofreader.rewind(num_patches)
        self.num_sound = min(self.num_sound, num_patches)
        self._at_end_s = self._faded_s = self._audible_s = 0.0
        self.faults["babbles"], self._doubted_at = 0, None

    def _ends(self, heard: PatchReading, attends_text: bool, stop: bool) -> bool:
        """Return whether to stop: at this patch's stop, or at an earlier overruled one that nothing has disproved."""
        unreached = max(MIN_LEFT_CHARS, (1 - self._reach) * heard.end)
        if heard.end - heard.furthest <= unreached:
            self._doubted_at = None
            return stop
        if self._doubted_at is not None:
            self._doubted_s += self.patch_s
            if heard.furthest < self._doubted_at + MIN_LEFT_CHARS:
                return self._doubted_s > PATIENCE_S
            self._doubted_at = None
        if not stop or not attends_text:
            return stop
        self._doubted_at, self._doubted_s, self.faults["ends_continued"] = heard.furthest, 0.0, 1
        return False

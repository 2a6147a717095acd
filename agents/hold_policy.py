"""Policy for sounds of the caller while the bot speaks: hold the bot, then let it go on or end its turn. Pure."""

from __future__ import annotations

from typing import Literal

from speech_detector import Activity

# Chosen by `python agents/nods.py`, which shows what other values cost.
DECIDE_MS = 500.0  # a sound that lasts so long is an interruption
QUIET_MS = 200.0  # quiet after a shorter one: it was a nod ("mhm")
EAGER_MS = 200.0  # quiet in the caller's turn after which an answer is begun, though the turn may go on

Action = Literal["hold", "release", "cancel"]


class HoldPolicy:
    """Policy of one caller: hold at the first sound, cancel if it goes on, release if it was a nod.

    A sound that continues after a release holds again; its duration counts from its beginning.

    Attributes:
        is_held: the bot is held.
        is_nod: the last sound has not ended a turn of the bot, and asks for no answer.
    """

    def __init__(self, decide_ms: float = DECIDE_MS, quiet_ms: float = QUIET_MS) -> None:
        self.is_held = self.is_nod = False
        self._decide_ms, self._quiet_ms = decide_ms, quiet_ms

    def update(self, sound: Activity, bot_speaks: bool) -> Action | None:
        """Return what to do now that the detector has processed more audio. `bot_speaks`: its turn is not over."""
        if self.is_held:
            if sound.loud_ms >= self._decide_ms:
                self.is_held = self.is_nod = False
                return "cancel"
            if not sound.speaking or sound.quiet_ms >= self._quiet_ms:
                self.is_held = False
                return "release"
        elif sound.speaking and sound.quiet_ms == 0:
            self.is_held = self.is_nod = bot_speaks
            return "hold" if bot_speaks else None
        return None

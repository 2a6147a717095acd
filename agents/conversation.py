"""A conversation in turns, independent of the audio transport: next answer, interruption, playback position."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hold_policy import EAGER_MS, HoldPolicy
from realtime_tts_client import Context, Packet, RealtimeTTSError, Session
from script import ANSWERS, TOKENS_PER_SECOND, tokens
from speech_detector import SpeechDetector

logger = logging.getLogger("conversation")

_SPEECH = "(speech)"  # what the caller says: these bots recognise no words
History = list[dict[str, str]]
Answer = Callable[[History], AsyncIterator[str]]


async def scripted_answer(history: History) -> AsyncIterator[str]:
    """Yield the script's answers in turn, at the speed at which a language model writes."""
    num_given = sum(line["role"] == "assistant" for line in history)
    for token in tokens(ANSWERS[num_given % len(ANSWERS)]):
        yield token
        await asyncio.sleep(1 / TOKENS_PER_SECOND)


@dataclass
class Turn:
    """One turn of the bot's speech.

    Attributes:
        carried_ms: audio given to the line so far.
        played_ms: audio that the line has reported as played.
        is_over: the turn was played to its end, or interrupted.
        asked: what the caller has said, until it is in the history.
        is_draft: the answer is being written, but the caller may go on.
        num_holds: how often it was held. is_silent: the line plays nothing of it, since it is held.
    """

    number: int
    context: Context
    carried_ms: float = 0.0
    played_ms: float = 0.0
    is_over: bool = False
    asked: History = field(default_factory=list)
    is_draft: bool = False
    num_holds: int = 0
    is_silent: bool = False


class Conversation(ABC):
    """Conversation with one caller, over a line that carries packets and reports the playback position.

    Args:
        session: session of the client; its packets have the format that the line accepts.
        answer: returns the next answer for the history so far; read while it is spoken.
        rate_hz: sample rate of the caller's audio.

    Attributes:
        history: messages with their roles; for an interrupted turn, the text that was heard.
        turn: the latest turn.
    """

    def __init__(self, session: Session, answer: Answer, rate_hz: int) -> None:
        self.history: History = []
        self.turn: Turn | None = None
        self._session = session
        self._answer = answer
        self._num_turns = 0
        self._early: Turn | None = None  # begun in a pause of the caller
        self._detector = SpeechDetector(rate_hz)
        self._speaking: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self._changing: asyncio.Task[None] | None = None  # the last hold or release
        self._released = asyncio.Event()  # no release is under way: packets that come are carried
        self._released.set()
        self._policy = HoldPolicy()

    # ---- methods of the line -------------------------------------------------------------------------------------

    @abstractmethod
    async def _carry(self, turn: Turn, packet: Packet) -> None:
        """Send one packet. Raises ConnectionError: the caller has gone."""

    @abstractmethod
    async def _carry_end(self, turn: Turn) -> None:
        """Mark the end of the turn's audio. The line calls `_heard_out` once all of it was played.

        Raises: as `_carry`.
        """

    @abstractmethod
    async def _cut(self, turn: Turn) -> None:
        """Stop playback at once; then call `_played` if the line can report the playback position.

        Raises: as `_carry`.
        """

    @abstractmethod
    async def _silence(self, turn: Turn, held_ms: float) -> None:
        """Stop playback at a position, which is not far ahead.

        Raises: as `_carry`.
        """

    @abstractmethod
    def _reached_ms(self, turn: Turn) -> float:
        """Return the position in the turn up to which the caller hears it in any case."""

    def _on_released(self, turn: Turn, from_ms: float) -> None:
        """Prepare for packets from a position on again."""
        turn.carried_ms = from_ms

    def _on_heard(self, turn: Turn, text: str) -> None:
        """Handle the end of a turn: this much of it is in the history."""
        logger.info("heard: %r", text)

    def _on_failed(self, turn: Turn, error: Exception) -> None:
        """Handle a failed turn. Audio that the line already has is still played."""
        logger.warning("the turn ended early", exc_info=error)

    # ---- reports of the line -------------------------------------------------------------------------------------

    def _hear(self, samples: npt.NDArray[np.int16]) -> None:
        """Process samples of the caller's microphone, mono.

        At a sound the bot is held at the end of its word. A longer sound interrupts it; after a short one it goes on.
        In a pause of the caller the answer is begun as a draft, which is dropped if the caller goes on.
        """
        changes = self._detector.feed(samples)
        turn = self.turn if self.turn is not None and not self.turn.is_over else None
        action = self._policy.update(self._detector, bot_speaks=turn is not None)
        if turn is not None and action == "hold":
            self._change(self._hold_turn(turn))
        elif turn is not None and action == "release":
            self._change(self._release_turn(turn))
        elif action == "cancel":
            self.interrupt()
        if "stopped" in changes and not self._policy.is_nod:
            self._begin_turn(asked=_SPEECH)
        elif not (self._detector.speaking and self._detector.quiet_ms >= EAGER_MS):
            self._drop_early()
        elif self._early is None and not self._policy.is_nod and (self.turn is None or self.turn.is_over):
            self._early = self._open_turn(_SPEECH, draft=True)

    def _played(self, turn: Turn, played_ms: float) -> None:
        turn.played_ms = played_ms
        self._session.played(turn.context, played_ms)

    def _heard_out(self, turn: Turn) -> None:
        if not turn.is_over:
            self._end_turn(turn, turn.context.text if turn.context.done is not None else _spoken_of(turn.context))

    # ---- turns ---------------------------------------------------------------------------------------------------

    def _begin_turn(self, asked: str) -> None:
        is_written = self._early is not None and self._early.context.spoken is None  # else the server has refused it
        self.turn, self._early = (self._early if is_written else None) or self._open_turn(asked), None
        self._num_turns = self.turn.number
        self._speaking = asyncio.get_running_loop().create_task(self._speak(self.turn), name="speaking")

    def _open_turn(self, asked: str, *, draft: bool = False) -> Turn:
        lines = [{"role": "user", "content": asked}] if asked else []
        context = self._session.speak(self._words(lines), playback="manual", draft=draft)
        return Turn(self._num_turns + 1, context, asked=lines, is_draft=draft)

    def _drop_early(self) -> None:
        if self._early is not None:
            self._early.context.cancel_nowait()
            self._early = None

    async def _words(self, asked: History) -> AsyncIterator[str]:
        """Yield the answer, after the history has the text that was heard of the previous turn."""
        if self._settling is not None:
            await self._settling
        async for delta in self._answer([*self.history, *asked]):  # the turn adds them later
            yield delta

    async def _speak(self, turn: Turn) -> None:
        try:
            try:
                await self._confirm(turn)
                async for packet in turn.context:
                    await self._released.wait()  # the packets after a release come before its answer is processed
                    if turn.is_over:  # interrupted: drop the remaining packets
                        continue
                    turn.carried_ms = packet.start_ms + packet.duration_ms
                    await self._carry(turn, packet)
            except ConnectionError:
                raise
            except Exception as error:  # raised by the server or by the answer
                self._on_failed(turn, error)
            await self._released.wait()
            if not turn.is_over:
                await self._carry_end(turn)
        except ConnectionError:
            turn.context.cancel_nowait()

    async def _confirm(self, turn: Turn) -> None:
        """Add what was asked to the history, and have a draft spoken; the first time."""
        if self._settling is not None:
            await self._settling
        self.history += turn.asked
        turn.asked = []
        if turn.is_draft:
            turn.is_draft = False
            await turn.context.commit()

    def _change(self, change: Coroutine[Any, Any, None]) -> None:
        """Run a hold or a release after the one before."""
        self._changing = asyncio.get_running_loop().create_task(self._change_after(self._changing, change))

    async def _change_after(self, before: asyncio.Task[None] | None, change: Coroutine[Any, Any, None]) -> None:
        if before is not None:
            await before
        with contextlib.suppress(RealtimeTTSError, ConnectionError):  # the turn or the call has ended meanwhile
            await change

    async def _hold_turn(self, turn: Turn) -> None:
        self._played(turn, self._reached_ms(turn))
        held = await turn.context.hold()
        await self._silence(turn, held.played_ms)
        turn.num_holds += 1
        turn.is_silent = True

    async def _release_turn(self, turn: Turn) -> None:
        self._released.clear()
        try:
            from_ms = await turn.context.release()
            self._on_released(turn, from_ms)
            turn.is_silent = False
        finally:
            self._released.set()
        if self._speaking is None or self._speaking.done():  # all packets had been taken
            self._speaking = asyncio.get_running_loop().create_task(self._speak(turn), name="speaking")

    def interrupt(self) -> None:
        """Stop playback, then record the text that was heard."""
        turn = self.turn
        if turn is None or turn.is_over:
            return
        turn.is_over = True  # later reports may cover audio that was discarded
        self._settling = asyncio.get_running_loop().create_task(self._settle(turn), name="settling")

    async def _settle(self, turn: Turn) -> None:
        try:
            if self._changing is not None:
                await self._changing
            await self._cut(turn)
        finally:
            turn.context.cancel_nowait()
        spoken = await turn.context.cancel()
        self._end_turn(turn, spoken.text)

    def _end_turn(self, turn: Turn, heard: str) -> None:
        turn.is_over = True
        if heard.strip():
            self.history.append({"role": "assistant", "content": heard})
        self._on_heard(turn, heard)

    async def _quiet(self) -> None:
        """Stop speaking: the caller has gone."""
        for task in (self._changing, self._speaking, self._settling):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._drop_early()
        if self.turn is not None and not self.turn.is_over:
            self.turn.context.cancel_nowait()


def _spoken_of(context: Context) -> str:
    return context.spoken.text if context.spoken is not None else ""

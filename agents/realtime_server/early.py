"""Answer that is begun in a pause, before it is certain that the user's turn is over."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Coroutine
from typing import Any

from realtime_tts_client import Context, Session

from realtime_server.core import Core
from realtime_server.models import LanguageModel, Piece
from realtime_server.orders import Generate


def open_context(speech: Session, order: Generate, *, draft: bool = False) -> Context:
    """Open a context for an answer."""
    params = {"speed": order.speed} if order.speed != 1.0 else None
    return speech.speak(voice=order.voice, audio=order.audio, params=params, draft=draft)


class EarlyAnswer:
    """Transcript of a turn that may go on, and the answer to it. Until it is taken, its text is a draft, and its calls
    are kept back.

    Attributes:
        item_id: the turn's; empty once the answer is discarded.
        transcript: task of the recogniser, which goes on if the answer is discarded.
        draft: context with the text so far; None if there is none.
    """

    def __init__(
        self, item_id: str, recognising: Coroutine[Any, Any, str], core: Core, model: LanguageModel, speech: Session
    ) -> None:
        self.item_id = item_id
        self.draft: Context | None = None
        self._core, self._model, self._speech = core, model, speech
        self._order: Generate | None = None
        self._is_taken = self._is_committed = False
        self._pieces: asyncio.Queue[Piece | Exception | None] = asyncio.Queue()  # at most one answer
        loop = asyncio.get_running_loop()
        self.transcript = loop.create_task(recognising)
        self.transcript.add_done_callback(lambda task: task.cancelled() or task.exception())  # it may not be needed
        self._writing = loop.create_task(self._write())

    @property
    def tasks(self) -> tuple[asyncio.Task[Any], ...]:
        return self.transcript, self._writing

    def take(self, order: Generate) -> bool:
        """Return whether this is the answer that is ordered; if it is, it is no longer a draft. An answer of which the
        speech server has refused the draft is not."""
        is_refused = self.draft is not None and self.draft.spoken is not None
        self._is_taken = not is_refused and self._order == dataclasses.replace(order, response_id="")
        return self._is_taken

    def discard(self) -> None:
        """Stop writing, and drop the draft if it was not committed."""
        self.item_id, self._order = "", None
        self._writing.cancel()
        if self.draft is not None and not self._is_committed:
            self.draft.cancel_nowait()

    async def commit(self) -> None:
        """Have the draft spoken."""
        assert self.draft is not None
        self._is_committed = True
        await self.draft.commit()

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Yield the answer once it is taken; first, as one piece, what the draft has."""
        if self.draft is not None:
            yield self.draft.text
        while (piece := await self._pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    async def _write(self) -> None:
        await asyncio.wait([self.transcript])
        if self.transcript.cancelled() or self.transcript.exception() is not None:
            return
        self._order = self._core.early_answer(self.item_id, self.transcript.result())
        if self._order is None:
            return
        try:
            written = self._model.write(self._order.messages, self._order.options)
            async with contextlib.aclosing(written) as pieces:
                async for piece in pieces:
                    await self._add(self._order, piece)
        except Exception as error:  # raised to the reader of the answer
            self._pieces.put_nowait(error)
        self._pieces.put_nowait(None)

    async def _add(self, order: Generate, piece: Piece) -> None:
        """Add a piece to the draft, or after a call or once the answer is taken, to the pieces."""
        if not isinstance(piece, str) or order.audio is None or self._is_taken or not self._pieces.empty():
            self._pieces.put_nowait(piece)
            return
        if self.draft is None:
            self.draft = open_context(self._speech, order, draft=True)
        await self.draft.send(piece)

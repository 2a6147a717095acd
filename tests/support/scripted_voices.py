"""Scripts for `client_fake_server`: one that tells words, and one that fails."""

from __future__ import annotations

import re
from typing import Any

from client_fake_server import Connection, Voice

_WORD = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3][，。！.]*|[^\s\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3]+")


class TalkingVoice(Voice):
    """Tells words as it speaks: every word of the text takes two packets. A character of Chinese, Japanese or Korean is
    a word.

    Args:
        is_late: tell the last word after its audio, as the server does of a word that was written too late.
    """

    def __init__(self, is_late: bool = False) -> None:
        super().__init__()
        self.is_late = is_late

    async def speak(self, connection: Connection, context_id: str, last_sequence: int) -> None:
        text, number, sequence, position = self.texts[context_id], self.numbers[context_id], 1, 0
        words = _WORD.findall(text)
        for index, word in enumerate(words):
            start = text.index(word, position)
            position = start + len(word)
            told = {"text": word, "start": start, "end": position, "start_ms": index * 40, "end_ms": index * 40 + 40}
            is_late = self.is_late and index == len(words) - 1
            for packet in range(2):
                place = sequence + packet + (0 if is_late else 1)
                if packet == 0 and not is_late:
                    await self.tell(connection, context_id, sequence, told)
                await connection.audio(place, index * 2 + packet, number)
            if is_late:
                await self.tell(connection, context_id, sequence + 2, told)
            sequence += 3
        await connection.done(context_id, sequence, 2 * len(words), len(text))

    async def tell(self, connection: Connection, context_id: str, sequence: int, word: dict[str, Any]) -> None:
        await connection.send("words", context_id=context_id, sequence=sequence, timing="measured", words=[word])


def failing(code: str, *, retryable: bool, then: Voice | None = None) -> Any:
    """A server that fails its first context, and speaks the others if there are to be some."""
    failed = False

    async def script(connection: Connection) -> None:
        nonlocal failed
        await connection.begin()
        while True:
            message = await connection.read()
            if not failed and message["type"] == "text":
                failed = True
                await connection.accept(message["context_id"])
                heard = {"audio_ms": 0, "spoken_text": "", "spoken_chars": 0}
                fields = {"code": code, "message": f"because of {code}", "retryable": retryable, **heard}
                await connection.send("context.failed", context_id=message["context_id"], sequence=1, **fields)
                failed_id = message["context_id"]
            elif failed and then is not None and message.get("context_id") != failed_id:
                await then.handle(connection, message)

    return script

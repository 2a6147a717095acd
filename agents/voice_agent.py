"""Voice agent that speaks through a realtime-tts server, at this machine's microphone or in LiveKit rooms.

    python agents/voice_agent.py console          talk to it here; a realtime-tts server is all it needs
    python agents/voice_agent.py start            a worker for LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET
    python agents/voice_agent.py --stt deepgram --llm openai:gpt-5-mini start

Without --stt and --llm it needs no account: it detects speech and answers from a script. SIGTERM lets conversations
end (--drain-timeout of `start`); a second SIGTERM ends at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # for any way of starting this file

from hold_policy import QUIET_MS
from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    ConversationItemAddedEvent,
    JobContext,
    cli,
    room_io,
)
from livekit.agents.types import NOT_GIVEN, TimedString
from livekit.agents.voice.io import PlaybackProgressedEvent
from livekit.plugins import realtime_tts
from script import TOKENS_PER_SECOND
from scripted import LoudnessVAD, ScriptedLLM, UncomprehendingSTT
from speech_detector import START_MS

logger = logging.getLogger("voice_agent")

OPTIONS_VARIABLE = "VOICE_AGENT_OPTIONS"  # passes the options to the conversations' processes
COMMANDS = ("console", "start", "dev", "connect")  # LiveKit's commands
INSTRUCTIONS = "You are a friendly voice assistant. Write for the ear: short sentences, no Markdown, no lists."
GREETING = "Hello! What can I do for you?"
MAX_TYPED_CHARS = 4_000  # limit of a participant's message, as the language model bills its length


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--tts-url", help="the realtime-tts server (otherwise REALTIME_TTS_URL, else this machine)")
    made.add_argument("--voice", help="name of a voice")
    made.add_argument("--mode", choices=["live", "clause"], help="speak a clause as it is written, or when complete")
    made.add_argument("--seed", type=int, help="the same speech for the same text every time (with --mode clause)")
    made.add_argument("--stt", default="scripted", help="a LiveKit plugin that has STT, as name or name:model")
    made.add_argument("--llm", default="scripted", help="a LiveKit plugin that has LLM, as name or name:model")
    made.add_argument("--vad", default="silero", help="silero, loudness, or a LiveKit plugin that has VAD")
    made.add_argument("--instructions", default=INSTRUCTIONS, help="for the language model")
    made.add_argument("--greeting", default=GREETING, help="said first; empty for none")
    made.add_argument("--tokens-per-second", type=pace, default=TOKENS_PER_SECOND, help="of the scripted answers")
    made.add_argument(
        "--history",
        choices=["heard", "shown"],
        default="heard",
        help="of an interrupted turn: the words that were heard, or what LiveKit's transcript had shown",
    )
    made.add_argument("--health-port", type=int, default=8081, help="where the worker says over HTTP that it is well")
    made.add_argument(
        "--load-threshold",
        type=float,
        default=0.7,
        help="of the machine, above which no room is taken; from 1 on any is",
    )
    made.add_argument("--journal", help="a file that gets a line of JSON for all that happens")
    return made


def pace(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value


def own_arguments() -> list[str]:
    """Return this program's flags, given before LiveKit's command; in a conversation's process those of the worker."""
    if __name__ != "__main__":
        return list(json.loads(os.environ.get(OPTIONS_VARIABLE, "[]")))
    command = next((index for index, word in enumerate(sys.argv) if word in COMMANDS), len(sys.argv))
    own, sys.argv[1:] = sys.argv[1:command], sys.argv[command:]
    os.environ[OPTIONS_VARIABLE] = json.dumps(own)
    return own


OPTIONS = parser().parse_args(own_arguments())


def plugin_class(kind: str, name: str) -> Any:
    """Return `STT`, `LLM` or `VAD` of a LiveKit plugin, given as name or name:model.

    Raises:
        SystemExit: the plugin is not installed, or has no such class.
    """
    module_name = name.partition(":")[0]
    try:
        return getattr(importlib.import_module(f"livekit.plugins.{module_name}"), kind)
    except ImportError:
        sys.exit(f"pip install livekit-plugins-{module_name.replace('_', '-')}  # {name} is not installed")
    except AttributeError:
        sys.exit(f"livekit-plugins-{module_name} has no {kind}")


def plugin(kind: str, name: str) -> Any:
    """Return an instance; raises as `plugin_class`."""
    made, model = plugin_class(kind, name), name.partition(":")[2]
    make = getattr(made, "load", made)  # a VAD has `load`
    return make(model=model) if model else make()


def voice_detector(name: str) -> Any:
    """Return the voice detector. LiveKit's silero needs no plugin."""
    if name == "silero":
        return NOT_GIVEN
    return LoudnessVAD() if name == "loudness" else plugin("VAD", name)


class Journal:
    """Journal of events as lines of JSON, with time and room."""

    def __init__(self, path: str | None, room: str) -> None:
        self._path, self._room = path, room

    def note(self, event: str, **fields: Any) -> None:
        if self._path:
            line = json.dumps({"event": event, "at": time.time(), "room": self._room, **fields})
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line + "\n")


def speech(options: argparse.Namespace) -> realtime_tts.TTS:
    """Return the TTS. Raises ValueError: the server's address or its key is malformed."""
    return realtime_tts.TTS(options.tts_url or NOT_GIVEN, voice=options.voice, mode=options.mode, seed=options.seed)


class Assistant(Agent):
    def __init__(self, journal: Journal) -> None:
        super().__init__(instructions=OPTIONS.instructions)
        self._journal = journal

    async def on_enter(self) -> None:
        if OPTIONS.greeting:
            self.session.say(OPTIONS.greeting)

    async def transcription_node(self, text: Any, model_settings: Any) -> Any:
        """Yield words as they are spoken, with their times."""
        async for piece in text:
            if isinstance(piece, TimedString):
                self._journal.note("word", text=str(piece), start_s=piece.start_time, end_s=piece.end_time)
            yield piece


async def take_text(session: AgentSession[Journal], event: room_io.TextInputEvent) -> None:
    """Handle typed text: it interrupts as speech does; "/stop" gets no answer."""
    session.userdata.note("interrupting")
    await session.interrupt()
    if len(event.text) > MAX_TYPED_CHARS:
        logger.warning("a message of %d characters is not answered", len(event.text))
    elif event.text != "/stop":
        session.generate_reply(user_input=event.text)


def load_function(threshold: float) -> Callable[[], float] | None:
    """Return the function that measures the load that LiveKit is told; None: LiveKit's own.

    A LiveKit server gives no room to a worker whose load is 1, whatever its threshold is. A worker that takes rooms at
    any load therefore reports none.
    """
    return None if threshold < 1 else lambda: 0.0


server = AgentServer(
    load_fnc=load_function(OPTIONS.load_threshold), load_threshold=OPTIONS.load_threshold, port=OPTIONS.health_port
)


@server.rtc_session()
async def converse(job: JobContext) -> None:
    """Run one conversation, in one room or at the console."""
    journal = Journal(OPTIONS.journal, job.room.name)
    scripted = ScriptedLLM(
        tokens_per_second=OPTIONS.tokens_per_second, tell=lambda at: journal.note("first_token", token_at=at)
    )
    tts = speech(OPTIONS)
    session: AgentSession[Journal] = AgentSession(
        stt=UncomprehendingSTT() if OPTIONS.stt == "scripted" else plugin("STT", OPTIONS.stt),
        llm=scripted if OPTIONS.llm == "scripted" else plugin("LLM", OPTIONS.llm),
        vad=voice_detector(OPTIONS.vad),
        tts=tts,
        userdata=journal,
        use_tts_aligned_transcript=True,
        tts_text_transforms=None,  # they delay a token; the server skips unspeakable text
        aec_warmup_duration=None,  # a caller may interrupt the very first word
        turn_handling={
            "turn_detection": "vad",
            "endpointing": {"min_delay": 0.3},
            "preemptive_generation": {"preemptive_tts": True},
            # A sound pauses the agent; words interrupt it, and after a sound without words it goes on.
            "interruption": {
                "mode": "vad",
                "min_duration": START_MS / 1000,
                "resume_false_interruption": True,
                "false_interruption_timeout": QUIET_MS / 1000,
            },
        },
    )

    realtime_tts.draft_early_answers(session)

    @session.on("conversation_item_added")
    def note_item(event: ConversationItemAddedEvent) -> None:
        item = event.item
        if item.type == "message":
            journal.note(
                "said", role=item.role, text=item.text_content, interrupted=item.interrupted, metrics=dict(item.metrics)
            )

    @session.on("agent_state_changed")
    def note_agent(event: Any) -> None:
        journal.note("agent", state=event.new_state)

    @session.on("agent_false_interruption")
    def note_nod(event: Any) -> None:
        journal.note("nod", resumed=event.resumed)

    @session.on("user_state_changed")
    def note_user(event: Any) -> None:
        journal.note("user", state=event.new_state)

    def note_played(event: PlaybackProgressedEvent) -> None:
        """Record a stretch without a gap. If the next one begins later, there was a gap between."""
        journal.note("played", began_at=event.started_at, offset_s=event.offset, duration_s=event.duration)

    @session.on("close")
    def end_job(event: Any) -> None:
        job.shutdown("the conversation is over")  # earlier than the server's timeout for an empty room

    async def close_tts() -> None:
        await tts.aclose()
        journal.note("closed")

    job.add_shutdown_callback(close_tts)
    options = room_io.RoomOptions(text_input=room_io.TextInputOptions(text_input_cb=take_text))
    await session.start(agent=Assistant(journal), room=job.room, room_options=options)
    if OPTIONS.history == "heard":
        realtime_tts.keep_what_was_heard(session)
    if session.output.audio is not None:
        session.output.audio.on("playback_progressed", note_played)
    journal.note("started")


def check(options: argparse.Namespace) -> None:
    """Check the options at the start; otherwise each conversation would end in silence.

    Raises:
        SystemExit: an option cannot be used.
    """
    scripted = {"STT": ("scripted",), "LLM": ("scripted",), "VAD": ("silero", "loudness")}
    for kind, own in scripted.items():
        if (name := getattr(options, kind.lower())) not in own:
            plugin_class(kind, name)
    try:
        speech(options)
        Journal(options.journal, "").note("checked")
    except (ValueError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    check(OPTIONS)
    cli.run_app(server)

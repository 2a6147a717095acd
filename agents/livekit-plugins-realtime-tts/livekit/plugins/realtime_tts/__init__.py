"""LiveKit Agents plugin for a realtime-tts server.

AgentSession(tts=realtime_tts.TTS("ws://localhost:8000"), …)
"""

from livekit.agents import Plugin

from .heard import HeardOutput, keep_what_was_heard
from .log import logger
from .tts import TTS, ChunkedStream, SynthesizeStream, draft_early_answers
from .version import __version__

__all__ = [
    "TTS",
    "ChunkedStream",
    "HeardOutput",
    "SynthesizeStream",
    "__version__",
    "draft_early_answers",
    "keep_what_was_heard",
]


class RealtimeTTSPlugin(Plugin):
    def __init__(self) -> None:
        super().__init__(__name__, __version__, __package__ or __name__, logger)


Plugin.register_plugin(RealtimeTTSPlugin())

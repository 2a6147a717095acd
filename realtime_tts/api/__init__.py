from realtime_tts.api.async_tts import AsyncTTS
from realtime_tts.api.timed import Chunk, TimedChunk, TimedWord
from realtime_tts.api.tts import TTS

__all__ = ["TTS", "AsyncTTS", "Chunk", "TimedChunk", "TimedWord"]

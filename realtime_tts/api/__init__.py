from realtime_tts.api.async_tts import AsyncTTS, Chunk
from realtime_tts.api.tts import TTS

__all__ = ["TTS", "AsyncTTS", "Chunk"]

"""realtime-tts: a self-hosted real-time voice backend for voice agents."""

__version__ = "0.1.0"

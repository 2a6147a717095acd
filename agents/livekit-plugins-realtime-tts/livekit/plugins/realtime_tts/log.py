import logging

logger = logging.getLogger("livekit.plugins.realtime_tts")

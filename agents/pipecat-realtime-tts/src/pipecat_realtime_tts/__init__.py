"""Pipecat service for a realtime-tts server.

RealtimeTTSService(url="ws://localhost:8000")
"""

from pipecat_realtime_tts.service import RealtimeTTSService, RealtimeTTSSettings

__version__ = "0.1.0"

__all__ = ["RealtimeTTSService", "RealtimeTTSSettings", "__version__"]

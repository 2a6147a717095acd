"""Names and rates of the bundled starter voice, read from its own files, for tests that need understandable speech."""

from __future__ import annotations

import json

from realtime_tts.contract.location import STARTER_VOICE, local_directory
from realtime_tts.contract.policy import ServingPolicy

_directory = local_directory(STARTER_VOICE)
assert _directory is not None
STARTER_DIRECTORY = _directory
POLICY = ServingPolicy.load(STARTER_DIRECTORY)
VOICES = tuple(POLICY.voices)
DEFAULT_VOICE = POLICY.default_voice or VOICES[0]
OTHER_VOICE = next(name for name in VOICES if name != DEFAULT_VOICE)
_vae = json.loads((STARTER_DIRECTORY / "config.json").read_text(encoding="utf-8"))["audio_vae_config"]
SAMPLE_RATE_HZ: int = _vae.get("out_sample_rate") or _vae["sample_rate"]

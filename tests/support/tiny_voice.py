"""A small random checkpoint that a server treats like the starter voice, for tests that need no understandable speech.

It has named voices, a limited character set, measured word positions and patches of 160 ms, and makes noise.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from realtime_tts.bench.checkpoint import write_random_checkpoint
from realtime_tts.contract.policy import ServingPolicy, VoicePolicy

NAME = "tiny-voice"
VOICES = ("amber", "birch", "cedar")
RATE_HZ = 16_000
PATCH_SAMPLES = 2560


def write_tiny_voice(directory: Path) -> Path:
    """Write the checkpoint and return `directory`. A text ends by its length guard, always with as many patches."""
    write_random_checkpoint(directory, "tiny")
    policy = dataclasses.replace(
        ServingPolicy.load(directory),
        name=NAME,
        languages=("en",),
        default_steps=4,
        continuity="reference",
        charset="abcdefghijklmnopqrstuvwxyz ,.?!'-",
        default_voice=VOICES[0],
        voices={name: VoicePolicy(name, "random", "en") for name in VOICES},
    )
    vae = load_file(directory / "audiovae.safetensors")
    vae["decoder.model.7.weight_g"] *= (
        0.1  # of the last convolution; louder sound would be clipped, which hides differences
    )
    save_file(vae, directory / "audiovae.safetensors")
    (directory / "serving.json").write_text(json.dumps(policy.to_map()))
    return directory

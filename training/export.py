"""Writes a trained voice as an ordinary checkpoint directory, in half precision; and which of its heads tells what
character it is speaking.

python -m training.export --vae build/vae/decoder/vae.pt --tts build/tts/tts.pt --out build/starter_voice
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.calibrate import calibrate, write_serving
from realtime_tts.engine.head_choice import HeadScore, choose_head
from realtime_tts.model.checkpoint import load_model, save_weights
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.voxcpm import VoxCPM
from training.speakers import VOICES
from training.starter_config import LETTER_IDS, config_map, taught_head, tokenizer_map
from training.text_following import TAUGHT_LAG_MS

VOICE_DESCRIPTIONS = {
    "heart": "US English, a woman, warm",
    "michael": "US English, a man",
    "emma": "British English, a woman",
    "isabella": "British English, a woman, brighter",
}


def serving_map(cfg: float = 2.0) -> dict[str, Any]:
    """serving.json: what the gateway needs to know of this voice. cfg: its guidance; 1 after `--fold-guidance`."""
    return {
        "name": "starter-voice",
        "languages": ["en"],
        "default_steps": 4,
        "default_cfg": cfg,
        "continuity": "reference",
        "max_segment_chars": 200,
        "charset": "".join(LETTER_IDS),
        "max_patches_per_char": 1.0,
        "max_prompt_patches": 20,
        "onset_db": -50.0,
        "default_voice": VOICES[0],
        "voices": {
            voice: {"text_prefix": f"<{voice}>", "description": description, "language": "en"}
            for voice, description in VOICE_DESCRIPTIONS.items()
        },
    }


def export(
    vae: dict[str, torch.Tensor],
    tts: dict[str, torch.Tensor],
    config: dict[str, Any],
    directory: Path,
    cfg: float = 2.0,
) -> None:
    """Write a checkpoint directory. cfg: its default guidance.

    Raises:
        RuntimeError: the weights do not fit `config`.
    """
    model = VoxCPM(parse_config(config))
    state = {name: tensor.float() for name, tensor in tts.items()} | {
        f"vae.{name}": tensor for name, tensor in vae.items()
    }
    model.load_state_dict(state)
    directory.mkdir(parents=True, exist_ok=True)
    save_weights(model, directory, torch.float16)
    for name, content in (("config", config), ("tokenizer", tokenizer_map()), ("serving", serving_map(cfg))):
        (directory / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def note_text_head(directory: Path) -> TextHead | None:
    """Let an exported voice speak, and put the head by which its word times are measured into its serving.json."""
    loaded = load_model(directory)
    result = calibrate(loaded)
    head = None if result is None else choose(result.scores, taught_head(loaded.config))
    if head is not None:
        write_serving(directory, head)
    return head


def choose(scores: Sequence[HeadScore], taught: tuple[int, int]) -> TextHead | None:
    """Return the taught head, whose lag is known, if it follows the text; else the best other one."""
    own = next((score for score in scores if (score.layer, score.head) == taught and score.follows), None)
    if own is None:
        return choose_head(scores)
    return TextHead(*taught, TAUGHT_LAG_MS, math.floor(100 * own.reach) / 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vae", type=Path, default=Path("build/vae/decoder/vae.pt"))
    parser.add_argument("--tts", type=Path, default=Path("build/tts/tts.pt"))
    parser.add_argument("--out", type=Path, default=Path("build/starter_voice"))
    parser.add_argument("--cfg", type=float, default=2.0, help="the voice's guidance: 1 after --fold-guidance")
    args = parser.parse_args()
    vae, tts = (torch.load(path, weights_only=True) for path in (args.vae, args.tts))
    export(vae, tts, config_map(), args.out, args.cfg)
    head = note_text_head(args.out)
    size = sum(path.stat().st_size for path in args.out.glob("*.safetensors"))
    times = "measured" if head else "estimated: no head follows the text"
    print(f"{args.out}: {size / 1e6:.1f} MB of weights, word times are {times}")


if __name__ == "__main__":
    main()

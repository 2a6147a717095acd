"""Split a checkpoint directory, as written by `training.export`, into parts for further training.

    python -m training.unpack --checkpoint realtime_tts/starter_voice --build build

writes vae/init.pt and tts_init.pt, where `training.pipeline --from-checkpoint` begins.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from realtime_tts.model.checkpoint import load_model


def unpack(checkpoint: Path, build: Path) -> None:
    """Split a checkpoint. Raises the loader's errors for an invalid checkpoint."""
    state = load_model(checkpoint, "cpu", "float32").model.state_dict()
    (build / "vae").mkdir(parents=True, exist_ok=True)
    vae = {name.removeprefix("vae."): tensor for name, tensor in state.items() if name.startswith("vae.")}
    torch.save(vae, build / "vae" / "init.pt")
    torch.save({name: tensor for name, tensor in state.items() if not name.startswith("vae.")}, build / "tts_init.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=Path("realtime_tts/starter_voice"))
    parser.add_argument("--build", type=Path, default=Path("build"))
    args = parser.parse_args()
    unpack(args.checkpoint, args.build)


if __name__ == "__main__":
    main()

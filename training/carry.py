"""Weights of an unfinished voice in eight bits, small enough to be kept and carried to the next machine.

    python -m training.carry pack --build build --folder training/weights
    python -m training.carry unpack --folder training/weights --build build

`unpack` writes vae/init.pt, vae/init_critics.pt and tts_init.pt, where the stages go on with `--init` and
`--init-critics`. Each row of a matrix is rounded to
integers from -127 to 127 with a separate scale: a relative error of about 0.5 %, which further training soon removes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

_SCALE = ".scale"
# name → (where training leaves it, where the next training begins)
_PARTS = {
    "vae": ("vae/decoder/vae.pt", "vae/init.pt"),
    "critics": ("vae/decoder/critics.pt", "vae/init_critics.pt"),
    "tts": ("tts/tts.pt", "tts_init.pt"),
}


def packed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return matrices as int8 with a float32 scale [rows] each, other tensors as float16."""
    result = {}
    for name, tensor in state.items():
        if tensor.dim() < 2:
            result[name] = tensor.half().contiguous()
            continue
        rows = tensor.float().flatten(1)
        scale = rows.abs().amax(1).clamp(min=1e-12) / 127
        result[name] = (rows / scale[:, None]).round().to(torch.int8).view(tensor.shape).contiguous()
        result[name + _SCALE] = scale
    return result


def unpacked(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the float32 tensors of what `packed` made."""
    result = {}
    for name, tensor in state.items():
        if name.endswith(_SCALE):
            continue
        scale = state.get(name + _SCALE)
        if scale is None:
            result[name] = tensor.float()
        else:
            result[name] = (tensor.float().flatten(1) * scale[:, None]).view(tensor.shape)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("pack", "unpack"))
    parser.add_argument("--folder", type=Path, default=Path("training/weights"))
    parser.add_argument("--build", type=Path, default=Path("build"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.build / "vae").mkdir(parents=True, exist_ok=True)
    for name, (trained, continued) in _PARTS.items():
        kept = args.folder / f"{name}.safetensors"
        if args.action == "pack":
            save_file(packed(torch.load(args.build / trained, weights_only=True)), kept)
        else:
            torch.save(unpacked(load_file(kept)), args.build / continued)


if __name__ == "__main__":
    main()

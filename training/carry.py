"""What a training run begins with: the weights of a voice, and the discriminators that were trained beside it.

    python -m training.carry unpack --voice realtime_tts/starter_voice --folder training/weights --build build
    python -m training.carry pack --build build --folder training/weights

`unpack` writes vae/init.pt, tts_init.pt and vae/init_critics.pt, from which the stages begin with `--init` and
`--init-critics`. `pack` keeps the discriminators of a run in eight bits: each row of a matrix is rounded to integers
from -127 to 127 with a separate scale, a relative error of 0.5 to 2 %, which further training soon removes. The voice
keeps its own weights in half precision: a TTS model must go on with the very encoder that it was trained with.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from realtime_tts.model.checkpoint import load_model

_SCALE = ".scale"
_VAE = "vae."


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


def unpack_voice(voice: Path, build: Path) -> None:
    """Write a voice's VAE and TTS model, float32, as two state dictionaries."""
    state = load_model(voice).model.state_dict()
    vae = {name.removeprefix(_VAE): tensor for name, tensor in state.items() if name.startswith(_VAE)}
    torch.save(vae, build / "vae" / "init.pt")
    torch.save({name: tensor for name, tensor in state.items() if not name.startswith(_VAE)}, build / "tts_init.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("pack", "unpack"))
    parser.add_argument("--voice", type=Path, default=Path("realtime_tts/starter_voice"))
    parser.add_argument("--folder", type=Path, default=Path("training/weights"))
    parser.add_argument("--build", type=Path, default=Path("build"))
    args = parser.parse_args()
    kept = args.folder / "critics.safetensors"
    if args.action == "pack":
        args.folder.mkdir(parents=True, exist_ok=True)
        save_file(packed(torch.load(args.build / "vae" / "decoder" / "critics.pt", weights_only=True)), kept)
        return
    (args.build / "vae").mkdir(parents=True, exist_ok=True)
    unpack_voice(args.voice, args.build)
    torch.save(unpacked(load_file(kept)), args.build / "vae" / "init_critics.pt")


if __name__ == "__main__":
    main()

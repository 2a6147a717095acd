"""Let the reference read checkpoints that `save_weights` wrote, speak `speech_cases` with them, and write the audio.

Run like make_goldens.py, and after it, but with ours on the path, whose checkpoints and noise it uses:

    PYTHONPATH=. REF/bin/python tests/parity/make_speech_goldens.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from make_goldens import GOLDENS, MIN_MARGIN, SEEDS, Margin, import_reference
from random_checkpoints import CONFIGS, write_checkpoint
from safetensors import safe_open
from safetensors.torch import save_file
from speech_cases import PROMPT_TEXT, TOKENIZED, SpeechCase, cases_of, recording, write_word_tokenizer
from torch import Tensor

from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.model.checkpoint import load_model, save_weights


def read_by_reference(name: str, directory: Path) -> Any:
    """The reference's model, loaded by its own `from_local` from what our `save_weights` wrote."""
    with safe_open(GOLDENS / f"{name}.safetensors", "pt") as file:
        shapes = json.loads(file.metadata()["shapes"])
    write_checkpoint(directory, name, shapes)
    write_word_tokenizer(directory)
    loaded = load_model(directory)
    for path in directory.glob("*.safetensors"):
        path.unlink()
    save_weights(loaded.model, directory)
    voxcpm, voxcpm2, _, _ = import_reference()
    cls = voxcpm2.VoxCPM2Model if CONFIGS[name]["architecture"] == "voxcpm2" else voxcpm.VoxCPMModel
    return cls.from_local(str(directory), optimize=False, device="cpu")


def load_recording(kind: str, *args: Any, **kwargs: Any) -> tuple[Any, int]:
    """What librosa and torchaudio would make of a file at the rate that is asked for; its path is its kind."""
    return recording(kind).astype("float32") / 32768, 16000


def prompt_cache(model: Any, case: SpeechCase) -> Any:
    sys.modules["librosa"].load = load_recording  # type: ignore[attr-defined]
    sys.modules["torchaudio"].load = lambda path: (torch.from_numpy(load_recording(path)[0])[None], 16000)  # type: ignore[attr-defined]
    wanted: dict[str, str] = {}
    if case.recordings in ("prompt", "both"):
        wanted |= {"prompt_text": PROMPT_TEXT, "prompt_wav_path": "prompt"}
    if case.recordings in ("reference", "both"):
        wanted |= {"reference_wav_path": "reference"}
    return model.build_prompt_cache(**wanted) if wanted else None


def speak(model: Any, case: SpeechCase, seed: int) -> tuple[float, Tensor]:
    """The margin and the audio of one case, from the noise that our engine draws for a seed."""
    cache = prompt_cache(model, case)
    solve, key, num_patches = model.feat_decoder.solve_euler, torch.tensor([noise_key(seed)]), 0

    def solve_from_ours(x: Tensor, **kwargs: Any) -> Tensor:
        nonlocal num_patches
        noise = patch_noise(key, torch.tensor([num_patches]), model.patch_size, model.feat_dim)
        num_patches += 1
        return solve(x=noise.transpose(1, 2).contiguous(), **kwargs)

    margin = Margin(model)
    model.feat_decoder.solve_euler = solve_from_ours
    audio, _, _ = model.generate_with_prompt_cache(
        target_text=case.text,
        prompt_cache=cache,
        min_len=case.min_patches,
        max_len=case.max_patches,
        inference_timesteps=case.steps,
        cfg_value=case.cfg,
    )
    model.feat_decoder.solve_euler = solve
    return margin.close(), audio[0].clone()


def speech_of(name: str) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Audio and seeds of all cases of a config."""
    audio, seeds = {}, {}
    with tempfile.TemporaryDirectory() as directory:
        model = read_by_reference(name, Path(directory))
    num_samples = model.patch_size * int(getattr(model.audio_vae, "decode_chunk_size", model.audio_vae.chunk_size))
    for case_name, case in cases_of(name).items():
        for seed in SEEDS:
            margin, found = speak(model, case, seed)
            num_patches = len(found) // num_samples
            ends_well = num_patches == case.max_patches if case_name != "stops" else 4 <= num_patches < case.max_patches
            if margin >= MIN_MARGIN and ends_well:
                break
        else:
            raise AssertionError(f"{name}, {case_name}: no seed is fit")
        print(name, case_name, "seed", seed, "margin", margin)  # noqa: T201
        audio[f"{name}.{case_name}"], seeds[f"{name}.{case_name}"] = found, seed
    return audio, seeds


def token_ids() -> dict[str, list[int]]:
    """What the reference's wrapper around the tokenizer makes of each text."""
    import_reference()
    from transformers import LlamaTokenizerFast
    from voxcpm.model.utils import mask_multichar_chinese_tokens

    with tempfile.TemporaryDirectory() as directory:
        write_word_tokenizer(Path(directory))
        tokenizer = mask_multichar_chinese_tokens(LlamaTokenizerFast.from_pretrained(directory))
    return {text: tokenizer(text) for text in TOKENIZED}


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    audio: dict[str, Tensor] = {}
    seeds: dict[str, int] = {}
    for name in CONFIGS:
        new_audio, new_seeds = speech_of(name)
        audio |= new_audio
        seeds |= new_seeds
    save_file(audio, GOLDENS / "speech.safetensors", metadata={"seeds": json.dumps(seeds)})
    (GOLDENS / "token_ids.json").write_text(json.dumps(token_ids(), ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()

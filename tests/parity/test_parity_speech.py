"""The whole engine, from messages in to audio out, against what the reference spoke (make_speech_goldens.py).

The reference had read the checkpoints as `save_weights` wrote them, tokenised the same text, encoded the same
recordings, and been given the engine's noise.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from engine_harness import EngineHarness
from random_checkpoints import CONFIGS, random_weights, write_checkpoint
from safetensors import safe_open
from safetensors.torch import load_file
from speech_cases import PROMPT_TEXT, SpeechCase, cases_of, recording, write_word_tokenizer

from realtime_tts.contract import frames
from realtime_tts.engine.continuity import join_text
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.engine.voices import encode_voice
from realtime_tts.model.checkpoint import LoadedModel, load_model, save_weights
from realtime_tts.model.generate import decode, generate
from realtime_tts.model.sequence import build_sequence
from realtime_tts.model.tokenizer import TextTokenizer

GOLDENS = Path(__file__).parent / "goldens"


def shapes_of(name: str) -> dict[str, list[int]]:
    """Names of all tensors in the reference's model."""
    with safe_open(GOLDENS / f"{name}.safetensors", "pt") as file:
        return dict(json.loads(file.metadata()["shapes"]))


@pytest.fixture(scope="session")
def speech() -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    with safe_open(GOLDENS / "speech.safetensors", "pt") as file:
        seeds = json.loads(file.metadata()["seeds"])
        return {key: file.get_tensor(key) for key in seeds}, seeds


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> dict[str, LoadedModel]:
    """Each config as it was loaded, saved and loaded again, with words in its tokenizer."""
    found = {}
    for name in CONFIGS:
        directory = write_checkpoint(tmp_path_factory.mktemp(name), name, shapes_of(name))
        write_word_tokenizer(directory)
        save_weights(load_model(directory).model, directory)
        found[name] = load_model(directory)
    return found


def add_voice(harness: EngineHarness, recordings: str) -> None:
    """A voice named "v" from the case's recordings, which are first encoded as a worker does it."""
    reference = recording("reference").tobytes() if recordings in ("reference", "both") else b""
    prompt = recording("prompt").tobytes() if recordings in ("prompt", "both") else b""
    encoded = encode_voice(
        harness.engine.loaded, frames.EncodeVoice("v", 16000, len(reference), payload=reference + prompt)
    )
    harness.engine.post(
        frames.AddVoice(
            "v",
            encoded.num_reference_patches,
            encoded.num_prompt_patches,
            encoded.patch_size,
            encoded.latent_dim,
            prompt_text=PROMPT_TEXT if prompt else None,
            payload=encoded.payload,
        )
    )


def speak_offline(loaded: LoadedModel, case: SpeechCase, seed: int) -> np.ndarray:
    """More flow steps than the engine serves; the step itself has no bound."""
    config, key = loaded.config, torch.tensor([noise_key(seed)])

    def noise(index: int) -> torch.Tensor:
        return patch_noise(key, torch.tensor([index]), config.patch_size, config.latent_dim)[0]

    source = build_sequence(config, loaded.tokenizer.encode(case.text))
    (patches,) = generate(loaded.model, [source], [noise], [case.max_patches], flow_steps=case.steps, cfg=case.cfg)
    return decode(loaded.model, patches).numpy()


def speak(loaded: LoadedModel, case: SpeechCase, seed: int) -> np.ndarray:
    harness = EngineHarness(loaded, min_patches=case.min_patches, max_prefill_positions=48)
    if case.recordings:
        add_voice(harness, case.recordings)
    harness.say(
        "x",
        case.text,
        voice="v" if case.recordings else None,
        seed=seed,
        steps=case.steps,
        cfg=case.cfg,
        max_patches=case.max_patches,
    )
    harness.run()
    assert isinstance(harness.end("x"), frames.Done)
    return harness.pcm("x")


@pytest.mark.parametrize(("config", "case"), [(config, case) for config in CONFIGS for case in cases_of(config)])
def test_the_engine_says_what_the_reference_says(saved, speech, config, case):
    """Two to a hundred flow steps, guidance of none to much, every use of recordings, a stop, and 130 patches."""
    audio, seeds = speech
    theirs = audio[f"{config}.{case}"].numpy()
    say = speak_offline if case == "most_steps" else speak
    ours = say(saved[config], cases_of(config)[case], seeds[f"{config}.{case}"])
    assert theirs.std() > 0.02  # loud enough to tell
    assert len(ours) == len(theirs)
    assert np.linalg.norm(ours - theirs) < 1e-4 * np.linalg.norm(theirs)


def test_the_goldens_are_of_these_cases(speech):
    assert set(speech[0]) == {f"{config}.{case}" for config in CONFIGS for case in cases_of(config)}
    lengths = {case: len(speech[0][f"voxcpm_mean.{case}"]) // 30 for case in ("stops", "long")}
    assert 4 <= lengths["stops"] < 60
    assert lengths["long"] == 130


@pytest.mark.parametrize("name", list(CONFIGS))
def test_what_is_saved_is_what_the_reference_has_read(saved, name):
    """Its names, its shapes, and the values that the goldens come from: weight norm may only differ in its split."""
    files = {f"audio_vae.{key}": t for key, t in load_file(saved[name].path / "audiovae.safetensors").items()}
    files |= load_file(saved[name].path / "model.safetensors")
    assert {key: list(tensor.shape) for key, tensor in files.items()} == shapes_of(name)
    original = random_weights({key: shape for key, shape in shapes_of(name).items() if "sr_bin_boundaries" not in key})
    for key, tensor in original.items():
        if key.endswith("weight_v"):
            magnitude = key.replace("weight_v", "weight_g")
            theirs, ours = (torch._weight_norm(weights[key], weights[magnitude], 0) for weights in (original, files))
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
        elif not key.endswith("weight_g"):
            assert torch.equal(files[key], tensor), key


@pytest.fixture
def tokenizer(tmp_path) -> TextTokenizer:
    write_word_tokenizer(tmp_path)
    return TextTokenizer.from_file(tmp_path / "tokenizer.json", 512)


def test_token_ids_are_the_references(tokenizer):
    golden = json.loads((GOLDENS / "token_ids.json").read_text())
    assert {text: tokenizer.encode(text) for text in golden} == golden


def test_joined_texts_are_the_tokens_of_each(tokenizer):
    """Why a space goes between a prompt's text and the text, where the reference puts nothing: without it the first
    word is the rest of a word to the tokenizer, as the model has hardly ever seen it."""
    before, after = "the hen.", "then he hid"
    apart = tokenizer.encode(before) + tokenizer.encode(after)
    assert tokenizer.encode(join_text(before, after)) == apart
    assert tokenizer.encode(before + after) != apart
    assert join_text("你好。", "世界") == "你好。世界"

"""Offline generation: a stream is the same in any batch, and ends where it should."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from random_checkpoints import CONFIGS

from realtime_tts.model.config_file import parse_config
from realtime_tts.model.generate import Noise, OfflineRunner, Stream, decode, generate
from realtime_tts.model.sequence import Sequence, build_sequence
from realtime_tts.model.voxcpm import VoxCPM


@pytest.fixture(scope="module", params=["voxcpm_0_5b", "voxcpm2"])
def model(request) -> VoxCPM:
    torch.manual_seed(0)
    return VoxCPM(parse_config(CONFIGS[request.param])).requires_grad_(False).eval()


def noise_of(model: VoxCPM, seed: int) -> Noise:
    generator = torch.Generator().manual_seed(seed)
    return lambda index: torch.randn(model.config.patch_size, model.config.latent_dim, generator=generator)


def inputs_of(model: VoxCPM) -> list[Sequence]:
    patches = torch.randn(3, model.config.patch_size, model.config.latent_dim).numpy()
    return [
        build_sequence(model.config, [5, 6, 7]),
        build_sequence(model.config, [5, 6, 7, 8, 9], prompt=patches),
        build_sequence(model.config, [4]),
    ]


def speak(model: VoxCPM, inputs: list[Sequence], limits: list[int], first_seed: int = 0) -> list[np.ndarray]:
    noises = [noise_of(model, first_seed + number) for number in range(len(inputs))]
    return generate(model, inputs, noises, limits, flow_steps=3, cfg=2.0)


def never_stop(model: VoxCPM, monkeypatch: pytest.MonkeyPatch, stops: bool = False) -> None:
    monkeypatch.setattr(model, "stop_flags", lambda hidden: torch.full(hidden.shape[:1], stops))


def test_a_stream_is_the_same_alone_and_beside_others_that_end_earlier(model, monkeypatch):
    never_stop(model, monkeypatch)
    inputs, limits = inputs_of(model), [9, 4, 6]
    together = speak(model, inputs, limits)
    assert [len(patches) for patches in together] == limits
    for number, patches in enumerate(together):
        (alone,) = speak(model, [inputs[number]], [limits[number]], first_seed=number)
        np.testing.assert_allclose(patches, alone, atol=1e-4 * np.abs(alone).max())


def test_stop_flags_count_after_the_first_patches_and_the_stopping_patch_is_kept(model, monkeypatch):
    never_stop(model, monkeypatch, stops=True)
    made = speak(model, inputs_of(model), [9, 9, 2])
    assert [len(patches) for patches in made] == [model.config.min_patches + 2] * 2 + [2]


def test_streams_that_start_must_come_before_streams_that_go_on(model):
    first, second, _ = inputs_of(model)
    runner = OfflineRunner(model, 4, flow_steps=2)
    running = Stream(first, noise_of(model, 0), [0, 1], cfg=2.0)
    runner.step([running])
    starting = Stream(second, noise_of(model, 1), [2, 3], cfg=2.0)
    with pytest.raises(ValueError, match="first"):
        runner.step([running, starting])
    runner.step([starting, running])
    assert (len(running.patches), len(starting.patches)) == (2, 1)


def streamed(model: VoxCPM, patches: np.ndarray, context: np.ndarray) -> torch.Tensor:
    state, slots = model.vae.new_state(1, "cpu"), torch.arange(1)
    latents = torch.from_numpy(np.concatenate((context, patches)))[:, None]
    parts = [model.vae.decode_stream(patch, state, slots)[0] for patch in latents]
    return torch.cat(parts)[len(context) * model.config.patch_samples :]


def test_audio_patch_by_patch_is_the_whole_audio_and_continues_from_a_context(model):
    patches = torch.randn(7, model.config.patch_size, model.config.latent_dim).numpy()
    whole = decode(model, patches)
    assert whole.shape == (7 * model.config.patch_samples,)
    torch.testing.assert_close(streamed(model, patches, patches[:0]), whole, atol=1e-5, rtol=0)
    rest = streamed(model, patches[4:], patches[:4])
    torch.testing.assert_close(rest, whole[-len(rest) :], atol=1e-5, rtol=0)

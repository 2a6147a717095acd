"""Noise depends on the seed and the patch, on nothing else."""

from __future__ import annotations

import torch

from realtime_tts.engine.runtime.noise import noise_key, patch_noise


def noise(pairs: list[tuple[int, int]], patch_size: int = 4, latent_dim: int = 64) -> torch.Tensor:
    keys = torch.tensor([noise_key(seed) for seed, _ in pairs])
    return patch_noise(keys, torch.tensor([index for _, index in pairs]), patch_size, latent_dim)


def test_a_stream_has_the_same_noise_in_any_batch_and_place() -> None:
    batch = noise([(7, 3), (1, 0), (7, 4)])
    assert torch.equal(batch[0], noise([(7, 3)])[0])
    assert torch.equal(batch[2], noise([(0, 0), (7, 4)])[1])


def test_these_are_the_numbers_that_seeds_have_always_given() -> None:
    expected = torch.tensor([0.7490621, -0.0270858, 0.5412503, -0.4901987, 1.4327985, -0.1374398])
    assert torch.allclose(noise([(0, 0), (1, 5)], 1, 3).flatten(), expected, atol=1e-6)


def test_it_is_standard_normal_and_uncorrelated() -> None:
    many = noise([(seed, index) for seed in range(100) for index in range(20)]).double()
    values = many.flatten()
    assert abs(values.mean()) < 0.006  # 512,000 values: four standard errors
    assert abs(values.std() - 1) < 0.005
    assert abs((values**3).mean()) < 0.015
    assert abs((values**4).mean() - 3) < 0.06
    for share, bound in ((0.1587, 1.0), (0.02275, 2.0), (0.00135, 3.0)):
        assert abs((values > bound).double().mean() - share) < 0.1 * share + 2e-4
    streams = many.flatten(1)
    correlation = torch.corrcoef(streams[:200])
    off_diagonal = correlation - torch.eye(200)
    assert off_diagonal.abs().max() < 0.35  # 256 values a stream: 5.6 standard errors
    assert off_diagonal.std() < 0.07


def test_seeds_and_patches_never_share_noise_and_any_integer_is_a_seed() -> None:
    pairs = [(seed, index) for seed in (0, 1, 2**31, 2**63, 2**64 - 1, -5) for index in (0, 1, 999, 100_000)]
    rows = noise(pairs)
    assert torch.isfinite(rows).all()
    assert len({tuple(row.flatten().tolist()) for row in rows}) == len(pairs)


def test_an_odd_number_of_values_is_filled() -> None:
    assert noise([(3, 1)], 3, 5).shape == (1, 3, 5)

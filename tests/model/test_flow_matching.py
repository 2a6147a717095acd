from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from random_checkpoints import CONFIGS

from realtime_tts.model.config_file import parse_config
from realtime_tts.model.flow_matching import guide, step_grid
from realtime_tts.model.voxcpm import VoxCPM


@pytest.fixture(scope="module", params=["voxcpm_0_5b", "voxcpm2", "voxcpm2_variant"])
def model(request) -> VoxCPM:
    torch.manual_seed(0)
    return VoxCPM(parse_config(CONFIGS[request.param])).requires_grad_(False)


def flow_inputs(model: VoxCPM, num_streams: int):
    config = model.config
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(2, num_streams, config.base.hidden_size, generator=generator)
    shape = (num_streams, config.patch_size, config.latent_dim)
    prefix, noise = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    return model.condition(*hidden), prefix, noise


@pytest.mark.parametrize(("num_steps", "num_evaluations"), [(2, 1), (4, 3), (6, 5), (10, 9), (25, 24), (60, 58)])
def test_the_first_steps_cost_nothing(num_steps, num_evaluations):
    assert len(step_grid(num_steps)) == num_evaluations


def test_the_grid_sways_towards_the_noise_and_ends_at_zero():
    steps = step_grid(10)
    times = [t for t, _ in steps]
    assert times[0] == pytest.approx(2 * 0.9 - 1 + math.cos(math.pi / 2 * 0.9), abs=1e-6)
    assert times == sorted(times, reverse=True)
    assert times[-1] - steps[-1][1] == pytest.approx(0, abs=1e-6)
    deltas = [dt for _, dt in steps]
    assert deltas == sorted(deltas)


def test_guidance_of_one_is_the_conditional_velocity():
    positive, negative = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(guide(positive, negative, torch.ones(3, 1, 1)), positive)


def test_guidance_extrapolates_from_the_projection_of_the_unconditional_velocity():
    positive, negative = torch.tensor([[[3.0, 1.0]]]), torch.tensor([[[2.0, 0.0]]])
    # The projection of (3, 1) on (2, 0) is (3, 0); what differs from it is (0, 1), three times.
    torch.testing.assert_close(guide(positive, negative, torch.full((1, 1, 1), 3.0)), torch.tensor([[[3.0, 3.0]]]))


def test_streams_do_not_influence_each_other(model):
    mu, prefix, noise = flow_inputs(model, 3)
    cfg, schedule = torch.tensor([1.0, 2.0, 4.0]), model.flow_schedule(6)
    together = model.flow(mu, prefix, noise, schedule, cfg)
    for i in range(3):
        rows = slice(i, i + 1)
        alone = model.flow(mu[rows], prefix[rows], noise[rows], schedule, cfg[rows])
        torch.testing.assert_close(together[rows], alone, atol=1e-5, rtol=1e-4)
    swapped = model.flow(mu, prefix, noise, schedule, cfg.flip(0))
    assert not torch.allclose(swapped[0], together[0], atol=1e-3)
    torch.testing.assert_close(swapped[1], together[1])


def test_all_randomness_is_in_the_noise(model):
    inputs = flow_inputs(model, 1)
    before = torch.random.get_rng_state()
    first = model.flow(*inputs, model.flow_schedule(4), torch.tensor([2.0]))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first, model.flow(*inputs, model.flow_schedule(4), torch.tensor([2.0])))


def test_time_embeddings_do_not_change_with_the_step_size_unless_velocities_are_means(model):
    estimator = model.feat_decoder.estimator
    schedule = model.flow_schedule(6)
    t = torch.tensor([time for time, _ in step_grid(6)])
    without_steps = estimator.embed_time(t, torch.zeros_like(t))
    assert torch.allclose(schedule.embeddings, without_steps, atol=1e-5) != model.config.dit_mean_mode


def test_the_training_view_of_the_velocity_is_the_servings(model):
    """`forward` on raw inputs and `velocity` on projected ones are one function."""
    mu, prefix, noise = flow_inputs(model, 2)
    estimator = model.feat_decoder.estimator
    t, dt = torch.tensor([0.3, 0.9]), torch.zeros(2)
    served = estimator.velocity(estimator.in_proj(noise), mu, estimator.embed_time(t, dt), estimator.cond_proj(prefix))
    torch.testing.assert_close(estimator(noise, mu, t, prefix, dt), served)


def test_no_guidance_is_guidance_by_one(model):
    (mu, prefix, noise), whole = flow_inputs(model, 2), model.flow_schedule(10)
    cfg, ones = torch.tensor([3.0, 2.0]), torch.ones(2)
    unguided = model.flow(mu, prefix, noise, dataclasses.replace(whole, guided=False), cfg)
    torch.testing.assert_close(unguided, model.flow(mu, prefix, noise, whole, ones), atol=1e-5, rtol=1e-4)
    assert not torch.allclose(unguided, model.flow(mu, prefix, noise, whole, cfg), atol=1e-3)


def test_a_single_step_is_refused(model):
    with pytest.raises(ValueError, match="at least 2"):
        model.flow_schedule(1)

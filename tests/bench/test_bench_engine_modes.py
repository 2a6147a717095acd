"""What the engine's modes are compared by: patches of the same states, and errors of the same sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.engine_modes import Mode, Onlooker, _by_stream, _difference, modes, round_products, to_bfloat16, to_fp8
from realtime_tts.model.checkpoint import load_model
from realtime_tts.model.flow_matching import GuidedTimes


def test_a_modes_patch_is_compared_with_that_of_the_same_state(tiny_directory: Path) -> None:
    torch.manual_seed(0)
    model, eight, sixteen = (load_model(tiny_directory, dtype="float32").model for _ in range(3))
    for other, rounded in ((eight, to_fp8), (sixteen, to_bfloat16)):
        round_products(other.feat_decoder.estimator.decoder, rounded)
    chosen = [Mode("same", 10), Mode("bfloat16", 10), Mode("fp8", 10), Mode("unguided", 10, GuidedTimes(0.0, 0.0))]
    flows = [model.feat_decoder, sixteen.feat_decoder, eight.feat_decoder, model.feat_decoder]
    onlooker = Onlooker(model.feat_decoder, list(zip(chosen, flows, strict=True)))
    config = model.config
    mu = model.condition(*torch.randn(2, 3, config.base.hidden_size))
    shape = (3, config.patch_size, config.latent_dim)
    schedule = onlooker.schedule(10)
    patches = onlooker(mu, torch.randn(shape), noise := torch.randn(shape), schedule, torch.full((3,), 2.0))
    same, bfloat16, fp8, unguided = (onlooker.squares[:, 0] / onlooker.squares[:, 1]) ** 0.5
    assert same == 0.0
    assert torch.equal(onlooker.made[0][0], patches)
    assert not torch.equal(patches, noise)
    assert 0.0 < bfloat16 < fp8 / 4
    assert fp8 < 0.5
    assert unguided > 0.0


def test_steps_become_streams_again_as_they_end() -> None:
    steps = [torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[10.0], [12.0]]), torch.tensor([[22.0]])]
    assert [stream.tolist() for stream in _by_stream(steps, [2, 1, 3])] == [[[0], [10]], [[1]], [[2], [12], [22]]]


def test_modes_have_names_of_their_own_and_the_first_is_the_model_as_it_is() -> None:
    for steps in (4, 10):
        chosen = modes(steps)
        assert len({mode.name for mode in chosen}) == len(chosen)
        assert (chosen[0].steps, chosen[0].rounded, chosen[0].guided_times) == (steps, "nothing", GuidedTimes())
        assert all(mode.steps <= steps for mode in chosen)


def test_an_interval_holds_the_difference_and_is_none_for_the_same() -> None:
    base = np.array([(1, 10), (0, 8), (3, 12), (1, 9)] * 6)
    assert _difference(base, base) == {"wer_more": 0.0, "wer_more_low": 0.0, "wer_more_high": 0.0}
    worse = base + np.array([1, 0])
    found = _difference(worse, base)
    assert found["wer_more"] == pytest.approx(100 * 4 / 39)
    assert 0 < found["wer_more_low"] <= found["wer_more"] <= found["wer_more_high"]

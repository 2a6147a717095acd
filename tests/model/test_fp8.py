"""Rows in eight bits: what an fp8 product takes."""

from __future__ import annotations

import pytest
import torch

from realtime_tts.model.fp8 import LARGEST, in_eight_bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_keeps_its_size_and_three_bits_of_each_value(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-8, 30, 31)[:, None]
    x = (torch.randn(31, 512, generator=generator) * sizes).to(dtype)
    rows = in_eight_bits(x)
    assert rows.values.dtype == torch.float8_e4m3fn
    assert rows.scales.shape == (31,)
    peaks = rows.values.float().abs().amax(dim=1)
    assert torch.equal(peaks, torch.full((31,), LARGEST))
    # Down to 1 / 28,672 of the peak e4m3 has normal numbers: half a unit of the third bit.
    errors, exact = (rows.exact - x.float()).abs(), x.float().abs()
    is_normal = exact > exact.amax(dim=1, keepdim=True) / 28_000
    assert bool((errors[is_normal] <= exact[is_normal] / 15.9).all())
    below = exact.amax(dim=1, keepdim=True) / LARGEST * 2.0**-10 * 1.01
    assert bool((errors[~is_normal] <= below.expand_as(errors)[~is_normal]).all())


def test_a_row_of_zeros_stays_one() -> None:
    assert torch.equal(in_eight_bits(torch.zeros(2, 16)).exact, torch.zeros(2, 16))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_does_not_become_one(value: float) -> None:
    """Its stream must end, as with any other format; and no other row is touched."""
    x = torch.ones(3, 16)
    x[1, 5] = value
    exact = in_eight_bits(x).exact
    assert exact.isfinite().all(dim=1).tolist() == [True, False, True]

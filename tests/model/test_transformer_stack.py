from __future__ import annotations

import dataclasses

import pytest
import torch
from random_checkpoints import CONFIGS

from realtime_tts.model.attention import FullAttention
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.minicpm import DecoderLayer, MiniCPM, RotaryEmbedding, rotate

CONFIG = parse_config(CONFIGS["voxcpm2"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def textbook_rotation(x, positions, rope):
    """Rotates each pair (i, i + head_dim / 2) by its angle, as complex numbers."""
    half = x.shape[-1] // 2
    frequency = rope.theta ** (-torch.arange(half) / half) / torch.tensor(rope.factors)
    angle = positions[:, None, None] * frequency
    rotated = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.full_like(angle, rope.scale), angle)
    return torch.cat((rotated.real, rotated.imag), dim=-1)


@pytest.mark.parametrize("name", ["voxcpm2", "voxcpm_1_5"])
def test_rotation_is_the_textbooks(name):
    rope = parse_config(CONFIGS[name]).base.rope
    positions = torch.tensor([0, 1, 77])
    x = torch.randn(3, 2, 16)
    expected = textbook_rotation(x, positions, rope)
    torch.testing.assert_close(rotate(x, RotaryEmbedding(rope)(positions)), expected, atol=1e-5, rtol=1e-5)


def test_rotation_tables_stay_float32_in_a_half_precision_model():
    model = MiniCPM(CONFIG.base).to(torch.bfloat16)
    assert model.norm.weight.dtype == torch.bfloat16
    assert model.rope.cos.dtype == torch.float32
    exact = RotaryEmbedding(CONFIG.base.rope).cos
    assert torch.equal(model.rope.cos, exact)


def test_a_stack_without_rope_does_not_see_positions():
    """Bidirectional attention without RoPE treats its input as a set; with RoPE it does not."""
    x = torch.randn(1, 5, 64)
    order = torch.tensor([3, 0, 4, 1, 2])
    for config, blind in ((CONFIG.residual, True), (CONFIG.base, False)):
        model = MiniCPM(config)
        rope = model.first_rotary(5)
        assert (rope is None) == blind
        straight = model(x, rope, FullAttention(causal=False))[:, order]
        shuffled = model(x[:, order], rope, FullAttention(causal=False))
        assert torch.allclose(straight, shuffled, atol=1e-5) == blind


def test_the_depth_scale_multiplies_what_each_sublayer_adds():
    plain = DecoderLayer(CONFIG.base)
    scaled = DecoderLayer(dataclasses.replace(CONFIG.base, residual_scale=0.5))
    scaled.load_state_dict(plain.state_dict())
    for layer in (plain, scaled):
        layer.mlp.down_proj.weight.data.zero_()  # only attention adds
    x = torch.randn(1, 3, 64)
    attend = FullAttention(causal=True)
    torch.testing.assert_close(scaled(x, None, attend, 0) - x, 0.5 * (plain(x, None, attend, 0) - x))


def test_computing_only_the_last_rows_changes_nothing_for_them():
    model = MiniCPM(CONFIG.dit)
    x = torch.randn(3, 11, 64)
    rope = model.first_rotary(11)
    whole = model(x, rope, FullAttention(causal=False))[:, -4:]
    torch.testing.assert_close(model.forward_tail(x, rope, 4), whole, atol=1e-5, rtol=1e-5)

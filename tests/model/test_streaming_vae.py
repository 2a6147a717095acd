from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from random_checkpoints import CONFIGS, random_weight

from realtime_tts.model import audio_vae
from realtime_tts.model.audio_vae import AudioVAE, CausalConv1d, CausalUpsample
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.weights import _from_transposed, _to_transposed


@pytest.fixture(scope="module", params=list(CONFIGS))
def vae(request) -> AudioVAE:
    # Double precision: any difference is then a mistake and not rounding.
    vae = AudioVAE(parse_config(CONFIGS[request.param]).vae).double().requires_grad_(False)
    for name, parameter in vae.named_parameters():
        parameter.copy_(random_weight(name, tuple(parameter.shape)))
    return vae


def latents(vae: AudioVAE, num_streams: int, num_frames: int):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(num_streams, num_frames, vae.config.latent_dim, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("split", [[4] * 6, [1] * 24, [7, 1, 16], [24]])
def test_any_split_into_blocks_gives_the_whole_decode(vae, split):
    z = latents(vae, 2, 24)
    state, slots = vae.new_state(2, "cpu", torch.float64), torch.arange(2)
    streamed = torch.cat([vae.decode_stream(block, state, slots) for block in z.split(split, dim=1)], dim=1)
    assert streamed.shape == (2, 24 * vae.config.decode_hop)
    torch.testing.assert_close(streamed, vae.decode(z), atol=1e-10, rtol=0)


def test_streams_in_scattered_slots_keep_apart(vae):
    """Three streams, of which a different pair advances each time."""
    z = latents(vae, 3, 12)
    slots = torch.tensor([5, 0, 3])
    state = vae.new_state(6, "cpu", torch.float64)
    audio: list[list[torch.Tensor]] = [[], [], []]
    position = [0, 0, 0]
    for pair in ([0, 1], [2, 0], [1, 2], [0, 1], [2, 0], [1, 2]):
        block = torch.stack([z[i, position[i] : position[i] + 3] for i in pair])
        for i, pcm in zip(pair, vae.decode_stream(block, state, slots[pair]), strict=True):
            audio[i].append(pcm)
            position[i] += 3
    torch.testing.assert_close(torch.stack([torch.cat(parts) for parts in audio]), vae.decode(z), atol=1e-10, rtol=0)


def test_a_reset_slot_is_a_new_stream_and_the_others_are_not(vae):
    z = latents(vae, 2, 8)
    state, slots = vae.new_state(2, "cpu", torch.float64), torch.arange(2)
    vae.decode_stream(z[:, :4], state, slots)
    state.reset(torch.tensor([1]))
    audio = vae.decode_stream(z[:, 4:], state, slots)
    whole = vae.decode(z)[:, 4 * vae.config.decode_hop :]
    torch.testing.assert_close(audio[0], whole[0], atol=1e-10, rtol=0)
    torch.testing.assert_close(audio[1], vae.decode(z[1:, 4:])[0], atol=1e-10, rtol=0)


def test_the_state_stays_where_it_is(vae):
    """A captured graph holds its address, and nothing of the past is decoded again."""
    state = vae.new_state(2, "cpu", torch.float64)
    addresses = [tensor.data_ptr() for tensor in state.tensors]
    vae.decode_stream(latents(vae, 1, 4), state, torch.tensor([1]))
    assert addresses == [tensor.data_ptr() for tensor in state.tensors]
    assert all(tensor[0].eq(0).all() and tensor[1].ne(0).any() for tensor in state.tensors)


def test_the_decoder_is_causal(vae):
    z = latents(vae, 1, 6)
    changed = z.clone()
    changed[:, 4:] += 1
    kept = 4 * vae.config.decode_hop
    difference = (vae.decode(z) - vae.decode(changed)).abs()[0]
    assert difference[:kept].max() < 1e-10
    assert difference[kept:].max() > 1e-3


def test_a_recording_is_padded_to_whole_frames(vae):
    hop = vae.config.encode_hop
    pcm = torch.randn(1, 5 * hop - 1, dtype=torch.float64)
    assert vae.encode(pcm).shape == (1, 5, vae.config.latent_dim)
    torch.testing.assert_close(vae.encode(pcm), vae.encode(F.pad(pcm, (0, 1))))


def test_gradients_reach_every_weight_that_decodes_or_encodes(vae):
    trained = AudioVAE(vae.config).double()
    trained.load_state_dict(vae.state_dict())
    pcm = trained.decode(trained.encode(torch.randn(1, 4 * vae.config.encode_hop, dtype=torch.float64)))
    pcm.square().sum().backward()
    without = [name for name, parameter in trained.named_parameters() if parameter.grad is None]
    assert without == ["encoder.fc_logvar.weight", "encoder.fc_logvar.bias"]


@pytest.mark.parametrize("few_frames", [0, 1000])
@pytest.mark.parametrize("stride", [2, 3, 5])
def test_upsampling_is_a_transposed_convolution(monkeypatch, few_frames, stride):
    """Both ways to compute it, against torch's own."""
    monkeypatch.setattr(audio_vae, "_FEW_FRAMES", few_frames)
    torch.manual_seed(0)
    upsample = CausalUpsample(6, 4, stride).requires_grad_(False)
    weight = torch.randn(6, 4, 2 * stride)
    upsample.weight.copy_(_from_transposed(weight))
    upsample.bias.copy_(torch.randn(4))
    x = torch.randn(2, 6, 7)
    expected = F.conv_transpose1d(x, weight, upsample.bias, stride=stride)[..., :-stride]
    torch.testing.assert_close(upsample(x), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(_to_transposed(upsample.weight, stride), weight)


@pytest.mark.parametrize(
    ("channels", "out_channels", "kernel", "dilation", "groups"),
    [(8, 6, 1, 1, 1), (8, 8, 7, 3, 8), (8, 1, 7, 1, 1), (8, 1, 3, 2, 1), (8, 4, 3, 1, 4), (8, 6, 7, 9, 1)],
)
@pytest.mark.parametrize("length", [3, 500, 6000])
def test_short_ways_compute_the_convolution(
    channels: int, out_channels: int, kernel: int, dilation: int, groups: int, length: int
) -> None:
    torch.manual_seed(0)
    context = (kernel - 1) * dilation
    conv = CausalConv1d(channels, out_channels, kernel, dilation=dilation, groups=groups, context=context)
    x = torch.randn(2, channels, length)
    expected = F.conv1d(F.pad(x, (context, 0)), conv.weight, conv.bias, dilation=dilation, groups=groups)
    torch.testing.assert_close(conv(x), expected)

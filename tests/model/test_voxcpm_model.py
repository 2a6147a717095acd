from __future__ import annotations

import dataclasses

import pytest
import torch
from random_checkpoints import CONFIGS
from torch._subclasses.fake_tensor import FakeTensorMode

from realtime_tts.model.attention import AttentionMetadata, KVCache, PagedAttention, SDPABackend
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.generate import OfflineRunner, Stream
from realtime_tts.model.sequence import build_sequence
from realtime_tts.model.voxcpm import ScalarQuantizer, VoxCPM


@pytest.fixture(scope="module", params=["voxcpm_0_5b", "voxcpm2"])
def model(request) -> VoxCPM:
    torch.manual_seed(0)
    return VoxCPM(parse_config(CONFIGS[request.param])).requires_grad_(False).eval()


def random_patches(model: VoxCPM, count: int):
    return torch.randn(count, model.config.patch_size, model.config.latent_dim)


def test_text_positions_bypass_the_local_encoder(model, monkeypatch):
    seen = []
    forward = model.feat_encoder.forward
    monkeypatch.setattr(model.feat_encoder, "forward", lambda patches: seen.append(len(patches)) or forward(patches))
    none = torch.zeros(0, dtype=torch.int64)
    embeddings, is_audio = model.embed(torch.tensor([5, 6, 101]), random_patches(model, 0), none)
    assert seen == []
    assert not is_audio.any()
    patches = random_patches(model, 2)
    embeddings, is_audio = model.embed(torch.tensor([5, 0, 101, 0]), patches, torch.tensor([1, 3]))
    assert seen == [2]
    assert is_audio[:, 0].tolist() == [False, True, False, True]
    torch.testing.assert_close(embeddings[[1, 3]], model.embed_patches(patches))


def test_text_embeddings_are_scaled_only_with_mup(model):
    ids = torch.tensor([7])
    ratio = model.embed_text(ids) / model.base_lm.embed_tokens(ids)
    torch.testing.assert_close(ratio, torch.full_like(ratio, 1.0 if model.config.concat_conditions else 12.0))


def test_a_patch_embedding_does_not_depend_on_its_neighbours(model):
    """The bidirectional encoder sees one patch at a time, without padding."""
    patches = random_patches(model, 5)
    torch.testing.assert_close(model.embed_patches(patches)[3:4], model.embed_patches(patches[3:4]))


def test_quantisation_applies_at_audio_positions_only(model):
    hidden = torch.randn(4, model.config.base.hidden_size)
    is_audio = torch.tensor([[False], [True], [False], [True]])
    mixed = model.quantize(hidden, is_audio)
    assert torch.equal(mixed[[0, 2]], hidden[[0, 2]])
    torch.testing.assert_close(mixed[[1, 3]], model.fsq_layer(hidden[[1, 3]]))
    torch.testing.assert_close(model.quantize(hidden, None), model.fsq_layer(hidden))


def test_the_quantiser_has_nineteen_levels_in_each_dimension():
    quantizer = ScalarQuantizer(8, 4, 9).requires_grad_(False)
    quantizer.out_proj = torch.nn.Identity()
    levels = quantizer(torch.randn(1000, 8) * 10) * 9
    torch.testing.assert_close(levels, levels.round(), atol=1e-5, rtol=0)
    assert levels.abs().max().round() == 9


def test_the_residual_lm_hears_nothing_at_text_positions(model):
    hidden, embeddings = torch.randn(2, 3, model.config.base.hidden_size)
    is_audio = torch.tensor([[False], [True], [True]])
    inputs = model.residual_inputs(hidden, embeddings, is_audio)
    other = model.residual_inputs(hidden, embeddings + 1, is_audio)
    assert torch.equal(inputs[0], other[0])
    assert not torch.allclose(inputs[1:], other[1:])


def test_the_condition_is_two_tokens_or_one_sum(model):
    hidden = torch.randn(2, 3, model.config.base.hidden_size)
    mu = model.condition(*hidden)
    assert mu.shape == (3, 2 if model.config.concat_conditions else 1, model.config.dit.hidden_size)


def test_stop_is_the_larger_logit(model):
    hidden = torch.randn(20, model.config.base.hidden_size)
    flags = model.stop_flags(hidden)
    assert torch.equal(flags, model.stop_logits(hidden).argmax(-1).bool())
    assert flags.any()
    assert not flags.all()


@pytest.mark.parametrize("pad", ["left", "right"])
def test_a_recording_becomes_whole_patches_with_silence_on_the_given_side(model, pad):
    length = model.config.patch_encode_samples
    pcm = torch.rand(2 * length - 5) + 0.5
    patches = model.encode_recording(pcm, pad=pad)
    assert patches.shape == (2, model.config.patch_size, model.config.latent_dim)
    silence = torch.zeros(5)
    padded = torch.cat((silence, pcm) if pad == "left" else (pcm, silence))
    torch.testing.assert_close(patches.flatten(0, 1), model.vae.encode(padded[None])[0])


def test_a_decode_step_never_waits_for_the_device(model):
    """Fake tensors have no values: whatever reads one back to the host, or depends on it, fails here. What is left can
    be captured into a CUDA graph."""
    real = model.flow_schedule(6)  # made once, outside a capture
    with FakeTensorMode(), torch.inference_mode():
        fake = VoxCPM(model.config)
        kv = KVCache.allocate(model.config, 8, 4, "cpu", torch.float32)
        schedule = dataclasses.replace(real, embeddings=torch.empty(real.embeddings.shape))
        state = fake.vae.new_state(4, "cpu")
        patches = random_patches(fake, 2)
        embeddings, is_audio = fake.embed(torch.zeros(2, dtype=torch.int64), patches, torch.arange(2))
        meta = AttentionMetadata.build([1, 1], [6, 3], [[1, 2], [3, 4]], block_size=4)
        hidden, residual = fake.lm_forward(embeddings, is_audio, PagedAttention(SDPABackend(), kv, meta))
        flags = fake.stop_flags(hidden)
        made = fake.flow(fake.condition(hidden, residual), patches, random_patches(fake, 2), schedule, torch.ones(2))
        pcm = fake.vae.decode_stream(made, state, torch.tensor([3, 1]))
    assert flags.shape == (2,)
    assert pcm.shape == (2, model.config.patch_samples)


def test_it_runs_in_half_precision_with_a_full_precision_flow_state(model):
    half = VoxCPM(model.config).to(torch.bfloat16)
    half.vae.float()
    with torch.inference_mode():
        noise = random_patches(model, 2)
        stream = Stream(build_sequence(model.config, [5, 6, 7]), noise.__getitem__, [0], cfg=1.0)
        runner = OfflineRunner(half, 1, flow_steps=4)
        hidden = [runner.step([stream]).lm_hidden for _ in noise]
    assert [step.dtype for step in hidden] == [torch.bfloat16] * 2
    assert [patch.dtype for patch in stream.patches] == [torch.float32] * 2
    assert torch.stack(stream.patches).isfinite().all()

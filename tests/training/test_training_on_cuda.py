"""Training's GPU forms against the plain ones: Triton layers, packed attention, captured steps."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from realtime_tts.model.audio_vae import AudioVAE
from training.captured import CapturedStep
from training.fast_layers import use_fast_layers
from training.packed_attention import PackedAttention
from training.run_state import adam_w, set_rate
from training.starter_config import starter_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
    pytest.mark.usefixtures("cuda_context"),
]


@pytest.fixture(autouse=True)
def full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's convolutions round to TF32 unless told not to, each form of a layer elsewhere."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def test_fast_layers_have_the_plain_ones_values_and_gradients() -> None:
    torch.manual_seed(0)
    plain = AudioVAE(starter_config().vae).cuda()
    fast = copy.deepcopy(plain)
    use_fast_layers(fast)
    pcm = 0.1 * torch.randn(3, 640 * 7, device="cuda")
    outputs = []
    for vae in (plain, fast):
        decoded = vae.decode(vae.encode(pcm))
        decoded.square().mean().backward()
        outputs.append((decoded, {name: p.grad for name, p in vae.named_parameters() if p.grad is not None}))
    torch.testing.assert_close(outputs[1][0], outputs[0][0], atol=1e-4, rtol=1e-3)
    for name, gradient in outputs[0][1].items():
        scale = gradient.abs().max().item()
        torch.testing.assert_close(outputs[1][1][name], gradient, atol=2e-3 * scale, rtol=2e-2, msg=name)


@pytest.mark.parametrize("kv_heads", [2, 6])
def test_packed_attention_agrees_with_the_masked_one(kv_heads: int) -> None:
    torch.manual_seed(0)
    lengths = [5, 100, 1, 22]
    starts = torch.tensor([0, 5, 105, 106, 128, 128, 128], dtype=torch.int32)
    rows = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
    parts = [torch.randn(128, heads, 64, requires_grad=True) for heads in (6, kv_heads, kv_heads)]
    g = torch.randn(128, 6 * 64)
    expected = PackedAttention(starts, rows, 128)(0, *parts)
    gradients = torch.autograd.grad(expected, parts, g)
    on_gpu = [part.detach().cuda().bfloat16().requires_grad_() for part in parts]
    actual = PackedAttention(starts.cuda(), rows.cuda(), 128)(0, *on_gpu)
    torch.testing.assert_close(actual.float().cpu(), expected, atol=3e-2, rtol=3e-2)
    for ours, theirs in zip(torch.autograd.grad(actual, on_gpu, g.cuda().bfloat16()), gradients, strict=True):
        torch.testing.assert_close(ours.float().cpu(), theirs, atol=6e-2, rtol=6e-2)


def test_a_captured_step_trains_as_an_eager_one() -> None:
    """The rate and the input change between replays, and both must be seen."""
    device = torch.device("cuda")
    results = []
    for captured in (False, True):
        torch.manual_seed(0)
        layer = torch.nn.Linear(8, 1, device=device)
        optimizer = adam_w(layer.parameters(), device, (0.9, 0.98))
        x = torch.zeros(16, 8, device=device)

        def update(layer=layer, optimizer=optimizer, x=x):
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(layer(x)[:, 0], x.sum(1))
            loss.backward()
            optimizer.step()
            return {"loss": loss.detach()}

        step = CapturedStep(update, device) if captured else update
        losses = []
        for n in range(30):
            set_rate(optimizer, 0.02 if n % 3 else 0.05)
            x.copy_(torch.randn(16, 8, device=device))
            losses.append(step()["loss"].item())
        results.append(torch.tensor(losses))
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-3)
    assert results[0][-3:].mean() < 0.5 * results[0][:3].mean()

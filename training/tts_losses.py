"""The TTS model's training forward: flow matching, stop and text-following losses over packed sequences.

It runs the serving model's own modules; only the rounding of the quantiser gets a straight-through gradient here.
"""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor

from realtime_tts.model.flow_matching import guide
from realtime_tts.model.local_transformers import LocDiT
from realtime_tts.model.minicpm import MiniCPM, Rope
from realtime_tts.model.voxcpm import ScalarQuantizer, VoxCPM
from training.packed_attention import PackedAttention
from training.starter_config import taught_head
from training.text_following import following, head_inputs
from training.tts_batches import MAX_POSITIONS, Batch


@dataclasses.dataclass(frozen=True, slots=True)
class LossSettings:
    guidance_drop: float = 0.12  # of the predictions are made without their condition, for classifier-free guidance
    max_noise: float = 0.2  # on the latents fed back, drawn for each batch row up to this
    stop_weight: float = 0.1
    text_weight: float = 0.1  # of the head that follows the text
    uniform_time: float = 0.2  # share of flow times drawn uniformly instead of logit-normally


def quantise(layer: ScalarQuantizer, hidden: Tensor) -> Tensor:
    """What the layer computes, with the gradient of no rounding."""
    bounded = torch.tanh(layer.in_proj(hidden))
    rounded = torch.round(bounded * layer.scale) / layer.scale
    return layer.out_proj(bounded + (rounded - bounded).detach())


def hidden_states(model: VoxCPM, batch: Batch, features: Tensor) -> tuple[Tensor, Tensor]:
    """Both LMs over N packed positions with features [A, patch_size, latent_dim] at the audio positions →
    lm_hidden, residual_hidden [N, hidden]."""
    lm_hidden, residual_hidden, _, _ = states_and_head(model, batch, features)
    return lm_hidden, residual_hidden


def states_and_head(model: VoxCPM, batch: Batch, features: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `hidden_states`, and q and k [N, head_dim] of the head that is taught to follow the text."""
    embeddings = model.embed_text(batch.tokens)
    audio = model.embed_patches(features).to(embeddings.dtype)
    embeddings = embeddings.index_copy(0, batch.audio_index, audio)
    is_audio = torch.zeros(batch.tokens.shape[0], 1, dtype=torch.bool, device=batch.tokens.device)
    is_audio = is_audio.index_fill(0, batch.audio_index, True)
    attend = PackedAttention(batch.row_starts, batch.row_index, MAX_POSITIONS)
    layer, head = taught_head(model.config)
    rope = model.base_lm.rotary(batch.positions)
    hidden, layer_input = _base_lm(model.base_lm, embeddings, rope, attend, layer)
    q, k = head_inputs(model.base_lm.layers[layer], layer_input, rope, head)
    hidden = torch.where(is_audio, quantise(model.fsq_layer, hidden), hidden)
    inputs = model.residual_inputs(hidden, embeddings.to(hidden.dtype), is_audio)
    return hidden, model.residual_lm(inputs, model.residual_lm.rotary(batch.positions), attend), q, k


def _base_lm(
    stack: MiniCPM, x: Tensor, rope: Rope | None, attend: PackedAttention, wanted: int
) -> tuple[Tensor, Tensor]:
    """Return the stack's output, and the input of its layer `wanted`."""
    found = x
    for index, layer in enumerate(stack.layers):
        if index == wanted:
            found = x
        x = layer(x, rope, attend, index)
    return stack.norm(x), found


def flow_times(count: int, settings: LossSettings, device: torch.device) -> Tensor:
    """[count] in (0, 1): mostly in the middle, where the velocity is hardest to tell."""
    times = torch.sigmoid(torch.randn(count, device=device))
    uniform = torch.rand(count, device=device)
    return torch.where(torch.rand(count, device=device) < settings.uniform_time, uniform, times)


def flow_errors(model: VoxCPM, mu: Tensor, prefix: Tensor, target: Tensor, settings: LossSettings) -> Tensor:
    """mu [M, num_mu, dit_hidden], prefix and target [M, patch_size, latent_dim] → mean squared velocity errors [M]."""
    count, device = target.shape[0], target.device
    kept = (torch.rand(count, 1, 1, device=device) >= settings.guidance_drop).to(mu.dtype)
    noise = torch.randn_like(target)
    times = flow_times(count, settings, device)
    mixed = torch.lerp(target, noise, times[:, None, None])
    velocity = model.feat_decoder.estimator(mixed, mu * kept, times, prefix, torch.zeros_like(times))
    return (velocity.float() - (noise - target)).square().mean((1, 2))


@dataclasses.dataclass(frozen=True, slots=True)
class Guided:
    """Velocities that the flow learns to give without guidance: those of a copy of it with guidance `cfg`."""

    estimator: LocDiT
    cfg: float

    def errors(self, model: VoxCPM, mu: Tensor, prefix: Tensor, target: Tensor, settings: LossSettings) -> Tensor:
        """Return mean squared errors [M]; arguments as `flow_errors`'. Rows without their condition stay as they were,
        so that guidance can still be added."""
        count, device = target.shape[0], target.device
        kept = torch.rand(count, 1, 1, device=device) >= settings.guidance_drop
        times = flow_times(count, settings, device)
        mixed = torch.lerp(target, torch.randn_like(target), times[:, None, None])
        with torch.no_grad():
            both = [torch.cat((part, part)) for part in (mixed, times, prefix)]
            conditions = torch.cat((mu, torch.zeros_like(mu)))
            velocities = self.estimator(both[0], conditions, both[1], both[2], torch.zeros_like(both[1])).float()
            positive, negative = velocities.chunk(2)
            wanted = torch.where(
                kept, guide(positive, negative, torch.full_like(times, self.cfg)[:, None, None]), negative
            )
        velocity = model.feat_decoder.estimator(mixed, mu * kept.to(mu.dtype), times, prefix, torch.zeros_like(times))
        return (velocity.float() - wanted).square().mean((1, 2))


def losses(
    model: VoxCPM, batch: Batch, patches: Tensor, settings: LossSettings, guided: Guided | None = None
) -> dict[str, Tensor]:
    """Return "total", "flow", "stop", "stop_error" (wrong stop flags over the number of last patches), "text" and
    "text_error" (`text_following`: loss, distance in characters) of a batch.

    patches: the corpus's table [all patches, patch_size, latent_dim]. guided: what the flow learns in place of the
    corpus.
    """
    scale = settings.max_noise * torch.rand(batch.row_starts.shape[0], device=patches.device)[batch.row_index]
    features = patches[batch.audio_patches].float()
    features = features + scale[batch.audio_index][:, None, None] * torch.randn_like(features)
    lm_states, residual_states, q, k = states_and_head(model, batch, features)
    lm_hidden, residual_hidden = lm_states[batch.target_index], residual_states[batch.target_index]
    has_prefix = (batch.prefix_patches >= 0)[:, None, None]
    prefix = patches[batch.prefix_patches.clamp(min=0)].float()
    # the flow's view of the previous patch is as noisy as the LM's, independently
    prefix = has_prefix * (prefix + scale[batch.target_index][:, None, None] * torch.randn_like(prefix))
    mu = model.condition(lm_hidden, residual_hidden)
    count = batch.weight.sum()
    flow_errors_of = flow_errors if guided is None else guided.errors
    errors = flow_errors_of(model, mu, prefix, patches[batch.target_patches].float(), settings)
    flow = (batch.weight * errors).sum() / count
    logits = model.stop_logits(lm_hidden).float()
    stop = (batch.weight * F.cross_entropy(logits, batch.is_last, reduction="none")).sum() / count
    missed = (batch.weight * (logits.argmax(-1) != batch.is_last)).sum() / batch.is_last.sum()
    text, text_error = following(q, k, batch)
    total = flow + settings.stop_weight * stop + settings.text_weight * text
    parts = {"flow": flow, "stop": stop, "stop_error": missed, "text": text, "text_error": text_error}
    return {"total": total, **parts}

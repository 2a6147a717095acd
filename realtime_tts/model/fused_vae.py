"""The streaming VAE decoder in half precision through fused kernels; it replaces that of `audio_vae`.

An upsampling is one product over two frames. A residual unit is one kernel that includes its 1 × 1 convolution (few
channels), or one kernel and one product. A bias that no product can add is pending: the next kernel adds it on reading.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from realtime_tts.model.audio_vae import AudioVAE, StreamState
from realtime_tts.model.kernels.vae import StreamRows

_WHOLE_CHANNELS = 128  # up to this number, a residual unit is one kernel
_MIN_CHANNELS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class _Unit:
    dilation: int
    offset: int
    pending: Tensor
    parts: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Block:
    offset: int
    stride: int
    before: tuple[Tensor, Tensor, Tensor, Tensor]  # pending, scale, bias, alpha
    weight: Tensor  # [2 * in_channels, stride * out_channels]
    units: tuple[_Unit, ...]
    whole: bool


class FusedDecoder:
    """The decoder's weights in the kernels' layout. patch_frames: latent frames of one pass."""

    def __init__(self, vae: AudioVAE, patch_frames: int, dtype: torch.dtype = torch.float16) -> None:
        parts: list[Any] = list(vae.decoder.model)
        first, mix, *blocks, snake, last, _ = parts
        self._dtype, self._patch_frames, self._total = dtype, patch_frames, 0
        self._first = _taps(first), _float(first.bias)
        self._first_offset = self._reserve(6 * vae.config.latent_dim)
        self._mix = mix.weight[..., 0].t().contiguous().to(dtype), mix.bias.to(dtype)
        self._blocks: list[_Block] = []
        pending = torch.zeros_like(mix.bias)
        for index, block in enumerate(blocks):
            condition = vae.decoder.sr_cond_model[str(index + 2)] if len(vae.decoder.sr_cond_model) else None
            pending = self._add_block(block.block, condition, pending)
        self._last = _alpha(snake), _taps_dense(last), _float(last.bias)
        self._last_offset = self._reserve(6 * last.in_channels)

    def _reserve(self, size: int) -> int:
        offset, self._total = self._total, self._total + size
        return offset

    def _add_block(self, block: Any, condition: Any, pending: Tensor) -> Tensor:
        """Add a block. Return the bias that its last product has not added."""
        snake, up, *units = block
        channels, out_channels = up.in_channels, up.out_channels // up.upsampling
        one, zero = torch.ones_like(pending), torch.zeros_like(pending)
        scale = one if condition is None else _float(condition.scale_embed.weight[condition.bucket])
        bias = zero if condition is None else _float(condition.bias_embed.weight[condition.bucket])
        offset = self._reserve(channels)
        # [out, stride, in, tap] → rows (tap, in), columns (stride, out): frames leave channels last
        weight = up.weight.view(out_channels, up.upsampling, channels, 2).permute(3, 2, 1, 0)
        weight = weight.reshape(2 * channels, up.upsampling * out_channels).to(self._dtype).contiguous()
        before = pending, scale, bias, _alpha(snake)
        whole = out_channels <= _WHOLE_CHANNELS
        pending = _float(up.bias)
        made = []
        for unit in units:
            alpha, conv, alpha_out, product = unit.block
            size = 6 * conv.dilation[0] * out_channels
            matrix = product.weight[..., 0].to(self._dtype).contiguous()
            parts = _alpha(alpha), _taps(conv), _float(conv.bias), _alpha(alpha_out), matrix, _float(product.bias)
            made.append(_Unit(conv.dilation[0], self._reserve(size), pending, parts))
            pending = torch.zeros_like(pending) if whole else pending + _float(product.bias)
        self._blocks.append(_Block(offset, up.upsampling, before, weight, tuple(made), whole))
        return pending

    def new_state(self, num_slots: int, device: torch.device | str) -> StreamState:
        """Return left contexts of every convolution in one tensor, [num_slots, values], half precision."""
        return StreamState((torch.zeros(num_slots, self._total, device=device, dtype=self._dtype),))

    def decode_stream(self, z: Tensor, state: StreamState, slots: Tensor) -> Tensor:
        """Return the same as `AudioVAE.decode_stream`, for whole patches."""
        parts = [self._decode(part.contiguous(), state, slots) for part in z.float().split(self._patch_frames, dim=1)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _decode(self, z: Tensor, state: StreamState, slots: Tensor) -> Tensor:
        rows, length = StreamRows(state.tensors[0], slots), z.shape[1]
        x = torch.addmm(self._mix[1], rows.first(z, *self._first), self._mix[0])
        for block in self._blocks:
            x = rows.before_upsample(x, block.offset, length, *block.before)
            x = torch.mm(x, block.weight)
            length *= block.stride
            x = x.view(-1, block.weight.shape[1] // block.stride)
            for unit in block.units:
                out = rows.unit(x, unit.offset, length, unit.dilation, unit.pending, unit.parts, whole=block.whole)
                x = out if block.whole else x.addmm_(out, unit.parts[4].t())
        pcm = rows.last(x, self._last_offset, length, *self._last)
        rows.commit()
        return pcm


def can_fuse(vae: AudioVAE) -> bool:
    """Return whether the kernels support a decoder: depthwise, widths that are powers of two, and at most a scale and a
    bias by the output rate."""
    config = vae.config
    is_power = config.decoder_dim & (config.decoder_dim - 1) == 0
    wide = config.decoder_dim >> len(config.decoder_rates)
    plain = not config.num_rate_buckets or (config.condition_type == "scale_bias" and not config.condition_out_layer)
    return bool(config.depthwise and is_power and _MIN_CHANNELS <= wide <= _WHOLE_CHANNELS and plain)


def _float(value: Tensor) -> Tensor:
    return value.detach().float().contiguous()


def _alpha(snake: Any) -> Tensor:
    return _float(snake.alpha.flatten())


def _taps(conv: Any) -> Tensor:
    """Return a depthwise weight [channels, 1, 7] as [7, channels]."""
    return _float(conv.weight[:, 0].t())


def _taps_dense(conv: Any) -> Tensor:
    """Return a weight to one channel [1, channels, 7] as [7, channels]."""
    return _float(conv.weight[0].t())

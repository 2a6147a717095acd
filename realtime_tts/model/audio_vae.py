"""Causal convolutional audio VAE: recordings → latents at 25 Hz, latents → waveform, whole or patch by patch.

Every decoder convolution is causal, so a streamed decode that keeps each one's left context equals the whole
decode. Weight norm is folded at load (`weights`). Latents are time-major outside: [batch, frames, latent_dim].
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realtime_tts.model.config import AudioVAEConfig

# On CPUs, torch's convolution has a high cost per call and is slow with few frames. Up to this number of frames, a
# matrix product is faster; up to this number of values, a depthwise convolution is faster tap by tap.
_FEW_FRAMES, _FEW_VALUES = 400, 2**15


@dataclasses.dataclass(frozen=True, slots=True)
class StreamState:
    """Left contexts of the decoder's convolutions, one tensor [slot, channels, context] each, in call order."""

    tensors: tuple[Tensor, ...]

    def reset(self, slots: Tensor) -> None:
        """Reset `slots` [n] int64 for new streams."""
        for tensor in self.tensors:
            tensor.index_fill_(0, slots, 0)


class _Stream:
    """One pass over a `StreamState`: each convolution reads its context and stores the next one."""

    def __init__(self, state: StreamState, slots: Tensor) -> None:
        self._remaining = iter(state.tensors)
        self._slots = slots

    def extend(self, x: Tensor) -> Tensor:
        """Prepend the context: x [S, channels, length] → [S, channels, context + length]; the tail is stored."""
        state = next(self._remaining)
        x = torch.cat((state.index_select(0, self._slots), x), dim=-1)
        state.index_copy_(0, self._slots, x[..., -state.shape[-1] :])
        return x


class CausalConv1d(nn.Conv1d):
    """A convolution padded on the left only. `context`: number of input samples before a block that it reads."""

    bias: Tensor

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, *, context: int = 0, **sizes: int
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, **sizes)  # type: ignore[arg-type]
        self.context = context

    def forward(self, x: Tensor, stream: _Stream | None = None) -> Tensor:
        if self.context:
            x = F.pad(x, (self.context, 0)) if stream is None else stream.extend(x)
        if x.is_cuda or self.stride[0] > 1:
            return super().forward(x)
        if self.kernel_size[0] == 1 and x.shape[0] * x.shape[-1] <= _FEW_FRAMES:
            return F.linear(x.transpose(1, 2), self.weight[..., 0], self.bias).transpose(1, 2)
        if self.in_channels == self.groups == self.out_channels and x.numel() <= _FEW_VALUES:
            return self._tap_by_tap(x)
        if self.out_channels == 1 and self.dilation[0] == 1:
            return self._to_one_channel(x)
        return super().forward(x)

    def _tap_by_tap(self, x: Tensor) -> Tensor:
        """Return a depthwise convolution of x [B, channels, context + length] → [B, channels, length]."""
        length = x.shape[-1] - self.context
        taps = self.weight.unbind(-1)
        out = torch.addcmul(self.bias[:, None], x[..., :length], taps[0])
        for index, tap in enumerate(taps[1:], 1):
            out.addcmul_(x.narrow(-1, index * self.dilation[0], length), tap)
        return out

    def _to_one_channel(self, x: Tensor) -> Tensor:
        """Return x [B, channels, context + length] → [B, 1, length]: one product, then a sum of shifted rows."""
        length = x.shape[-1] - self.context
        products = self.weight[0].t() @ x
        out = products[:, :1, :length] + self.bias
        for index in range(1, self.kernel_size[0]):
            out = out + products[:, index : index + 1, index : index + length]
        return out


class CausalUpsample(nn.Conv1d):
    """Upsampling by `stride`: each input frame and the one before it make `stride` output samples.

    This is a transposed convolution with a kernel of twice the stride, computed as a convolution over two frames with
    `stride` times the channels: weight [out_channels * stride, in_channels, 2], the previous frame first.
    """

    context = 1
    bias: Tensor

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__(in_channels, out_channels * stride, 2)
        self.upsampling = stride
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, stream: _Stream | None = None) -> Tensor:
        x = F.pad(x, (1, 0)) if stream is None else stream.extend(x)
        batch, _, length = x.shape
        bias = self.bias.repeat_interleave(self.upsampling, output_size=self.out_channels)
        if batch * length <= _FEW_FRAMES:
            frames = x.unfold(-1, 2, 1).transpose(1, 2).flatten(2)
            blocks = F.linear(frames, self.weight.flatten(1), bias).transpose(1, 2)
        else:
            blocks = F.conv1d(x, self.weight, bias)
        return blocks.unflatten(1, (-1, self.upsampling)).transpose(2, 3).flatten(2)


class Snake1d(nn.Module):
    """Activation x + sin²(αx) / α with one α per channel: [B, channels, length], in the same shape."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor, stream: _Stream | None = None) -> Tensor:
        return torch.addcmul(x, (self.alpha * x).sin().square(), (self.alpha + 1e-9).reciprocal())


class Tanh(nn.Module):
    """Hyperbolic tangent with the signature of the other layers."""

    def forward(self, x: Tensor, stream: _Stream | None = None) -> Tensor:
        return x.tanh()


class CausalSequential(nn.Sequential):
    """Layers one after the other; each receives the stream."""

    def forward(self, x: Tensor, stream: _Stream | None = None) -> Tensor:
        for module in self:
            x = module(x, stream)
        return x


class ResidualUnit(nn.Module):
    """Input plus a dilated convolution of 7 taps and a 1 × 1 convolution: [B, channels, length], in the same shape."""

    def __init__(self, channels: int, dilation: int, groups: int) -> None:
        super().__init__()
        conv = CausalConv1d(channels, channels, 7, dilation=dilation, groups=groups, context=6 * dilation)
        self.block = CausalSequential(Snake1d(channels), conv, Snake1d(channels), CausalConv1d(channels, channels, 1))

    def forward(self, x: Tensor, stream: _Stream | None = None) -> Tensor:
        return x + self.block(x, stream)


def _residual_units(channels: int, depthwise: bool) -> list[nn.Module]:
    return [ResidualUnit(channels, dilation, channels if depthwise else 1) for dilation in (1, 3, 9)]


class _Block(nn.Module):
    """Keeps the checkpoint's nesting: `block.N`."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.block = CausalSequential(*layers)

    def forward(self, x: Tensor, stream: _Stream | None = None) -> Tensor:
        return self.block(x, stream)


class VAEEncoder(nn.Module):
    """Recordings [B, 1, samples] to means of latents [B, latent_dim, frames]."""

    def __init__(self, config: AudioVAEConfig) -> None:
        super().__init__()
        channels = config.encoder_dim
        layers: list[nn.Module] = [CausalConv1d(1, channels, 7, context=6)]
        for stride in config.encoder_rates:
            crop = stride % 2 if config.odd_stride_crop else 0
            down = CausalConv1d(channels, 2 * channels, 2 * stride, stride=stride, context=2 * -(-stride // 2) - crop)
            layers.append(_Block(*_residual_units(channels, config.depthwise), Snake1d(channels), down))
            channels *= 2
        self.block = CausalSequential(*layers)
        self.fc_mu = CausalConv1d(channels, config.latent_dim, 3, context=2)
        self.fc_logvar = CausalConv1d(channels, config.latent_dim, 3, context=2)  # only training reads it

    def forward(self, x: Tensor) -> Tensor:
        """Return the means: x [B, 1, samples] → [B, latent_dim, frames]."""
        return self.fc_mu(self.block(x))


class RateCondition(nn.Module):
    """Adapts a decoder block to the output rate, which is fixed for a checkpoint, by one row of an embedding."""

    def __init__(self, channels: int, config: AudioVAEConfig) -> None:
        super().__init__()
        self.bucket = config.rate_bucket
        self.kind = config.condition_type
        width = channels
        if self.kind.startswith("scale_bias"):
            self.scale_embed = nn.Embedding(config.num_rate_buckets, channels)
            self.bias_embed = nn.Embedding(config.num_rate_buckets, channels)
        else:
            size = config.condition_dim if self.kind == "concat" else channels
            self.cond_embed = nn.Embedding(config.num_rate_buckets, size)
            width = channels + size if self.kind == "concat" else channels
        out = (Snake1d(width), CausalConv1d(width, channels, 1)) if config.condition_out_layer else ()
        self.out_layer = CausalSequential(*out)

    def forward(self, x: Tensor) -> Tensor:
        """Return x [B, channels, length] in the same shape."""
        if self.kind.startswith("scale_bias"):
            x = torch.addcmul(
                self.bias_embed.weight[self.bucket, :, None], x, self.scale_embed.weight[self.bucket, :, None]
            )
        elif self.kind == "add":
            x = x + self.cond_embed.weight[self.bucket, :, None]
        else:
            embedding = self.cond_embed.weight[self.bucket, :, None].expand(x.shape[0], -1, x.shape[-1])
            x = torch.cat((x, embedding), dim=1)
        return self.out_layer(x)


class VAEDecoder(nn.Module):
    """Latents [B, latent_dim, frames] to audio [B, 1, samples], causal."""

    def __init__(self, config: AudioVAEConfig) -> None:
        super().__init__()
        latent, channels = config.latent_dim, config.decoder_dim
        if config.depthwise:
            first = [CausalConv1d(latent, latent, 7, groups=latent, context=6), CausalConv1d(latent, channels, 1)]
        else:
            first = [CausalConv1d(latent, channels, 7, context=6)]
        layers: list[nn.Module] = [*first]
        conditions: dict[int, RateCondition] = {}
        for stride in config.decoder_rates:
            if config.num_rate_buckets:
                conditions[len(layers)] = RateCondition(channels, config)
            up = CausalUpsample(channels, channels // 2, stride)
            channels //= 2
            layers.append(_Block(Snake1d(2 * channels), up, *_residual_units(channels, config.depthwise)))
        self.model = nn.ModuleList([*layers, Snake1d(channels), CausalConv1d(channels, 1, 7, context=6), Tanh()])
        self.sr_cond_model = nn.ModuleDict({str(index): module for index, module in conditions.items()})

    def forward(self, z: Tensor, stream: _Stream | None = None) -> Tensor:
        """Return the waveform: z [B, latent_dim, frames] → [B, 1, samples]."""
        for index, layer in enumerate(self.model):
            if str(index) in self.sr_cond_model:
                z = self.sr_cond_model[str(index)](z)
            z = layer(z, stream)
        return z


class FusedStream(Protocol):
    """Replacement for a streamed decode: see `AudioVAE.fused`."""

    def new_state(self, num_slots: int, device: torch.device | str) -> StreamState: ...

    def decode_stream(self, z: Tensor, state: StreamState, slots: Tensor) -> Tensor: ...


class AudioVAE(nn.Module):
    """Encoder and decoder, with latents time-major. fused: replacement for the streamed decode on CUDA.

    num_context_frames: frames before a latent that its audio depends on.
    """

    fused: FusedStream | None = None

    def __init__(self, config: AudioVAEConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = VAEEncoder(config)
        self.decoder = VAEDecoder(config)
        convolutions = (m for m in self.decoder.modules() if isinstance(m, (CausalConv1d, CausalUpsample)))
        self._contexts = [(conv.in_channels, conv.context) for conv in convolutions if conv.context]
        self.num_context_frames = _num_context_frames(self.decoder)

    def encode(self, pcm: Tensor) -> Tensor:
        """Encode pcm [B, samples] at `encode_rate_hz` in [-1, 1], padded to frames → [B, frames, latent_dim]."""
        pcm = F.pad(pcm, (0, -pcm.shape[-1] % self.config.encode_hop))
        return self.encoder(pcm[:, None]).transpose(1, 2)

    def decode(self, z: Tensor) -> Tensor:
        """Decode whole utterances: z [B, frames, latent_dim] → [B, frames * decode_hop]."""
        return self.decoder(z.transpose(1, 2))[:, 0]

    def new_state(self, num_slots: int, device: torch.device | str, dtype: torch.dtype = torch.float32) -> StreamState:
        """Return zeroed decoder state: every slot is a new stream."""
        if self.fused is not None:
            return self.fused.new_state(num_slots, device)
        shapes = ((num_slots, channels, context) for channels, context in self._contexts)
        return StreamState(tuple(torch.zeros(shape, device=device, dtype=dtype) for shape in shapes))

    def decode_stream(self, z: Tensor, state: StreamState, slots: Tensor) -> Tensor:
        """Decode the next frames of S streams: z [S, frames, latent_dim] → [S, frames * decode_hop].

        `slots` [S] int64: their rows of the state, which are updated in place.
        """
        if self.fused is not None:
            return self.fused.decode_stream(z, state, slots)
        return self.decoder(z.transpose(1, 2), _Stream(state, slots))[:, 0]


def _num_context_frames(decoder: VAEDecoder) -> int:
    num_frames, rate = 0.0, 1  # samples a frame, so far
    for layer in decoder.modules():
        if isinstance(layer, (CausalConv1d, CausalUpsample)):
            num_frames += layer.context / rate
            rate *= layer.upsampling if isinstance(layer, CausalUpsample) else 1
    return math.ceil(num_frames)

"""Weights with which a random checkpoint's text head follows the text, and its stop head ends speech at the text's end.

Both do so with the voice `VOICE`, whose two tokens are in front of the text. Each patch then speaks the same number
of tokens. Without that voice the head stays in one place, and no stream stops.

1. In layer 0 each head compares two anchors by a score that turns with the distance (RoPE): a token of text compares
   these two tokens, audio the beginning of its own part and the first of these tokens. The result is the
   cosine or the sine of a place: of the token in the text, or of the speech after so many patches.
2. These angles are stored in channels of the hidden state to which nothing else adds.
3. Query and key of the text head are these channels: its score is highest where both places agree. Behind the text it
   is the token where audio begins; its value there is read by the stop head.
"""

from __future__ import annotations

import math

from torch import Tensor

from realtime_tts.contract.policy import TextHead, VoicePolicy
from realtime_tts.model.config import ModelConfig, RopeConfig
from realtime_tts.model.minicpm import Attention
from realtime_tts.model.sequence import AUDIO_START
from realtime_tts.model.voxcpm import VoxCPM

VOICE, POLICY = "steady", VoicePolicy("<s></s>", "its text head follows the text")
_FIRST, _SECOND = 1, 2  # ids of these tokens
_RATE = 0.45  # tokens a patch, as far as the frequencies allow it
_SLOWEST = 0.045  # radians a token; text of up to 70 tokens is told apart
_SWING = 0.6  # between two anchors; the hyperbolic tangent of its cosine is nearly a cosine
_SHARP = 8.0  # score of each angle in the text head, for the radians a token of the fastest one
_ALONE = 30.0  # score by which anchors, and the text, exceed all else
_TEXT, _AUDIO, _START, _ANCHOR, _ANCHOR2, _END, _ANGLES = range(7)  # channels; angles: the first of theirs


def follows(config: ModelConfig) -> bool:
    """Return whether these weights exist for a shape; not for one that scales its embeddings."""
    return config.embedding_scale == 1.0 and config.base.rope is not None


def text_head(config: ModelConfig) -> TextHead:
    """Return the head that follows the text."""
    return TextHead(layer=config.base.num_layers // 2, head=0)


def follow_text(model: VoxCPM) -> None:
    """Set these weights in a random model."""
    config = model.config.base
    rope = config.rope
    assert rope is not None
    shift, size = _shift(rope), math.sqrt(config.hidden_size)
    pairs = list(range(_pairs_to(rope, _SLOWEST), -1, -shift - 1))[: config.num_heads // 2]
    reserved = slice(0, _ANGLES + 2 * len(pairs))
    layers, read = model.base_lm.layers, text_head(model.config).layer
    for layer in layers:
        for weight in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
            weight[reserved] = 0.0
    _mark(model, reserved, size)
    _store_angles(layers[0].self_attn, rope, pairs, shift, size / config.residual_scale)
    _compare_angles(layers[read].self_attn, len(pairs), read, _SHARP / _frequency(rope, pairs[-1]))
    _stop_at_end(model)


def _frequency(rope: RopeConfig, pair: int) -> float:
    """Return the radians by which a pair of a head's dimensions turns from position to position."""
    return float(rope.theta ** (-pair / len(rope.factors)))


def _shift(rope: RopeConfig) -> int:
    """Return how many pairs further the frequency is about `_RATE` of a pair's."""
    return max(1, _pairs_to(rope, _RATE))


def _pairs_to(rope: RopeConfig, frequency: float) -> int:
    return round(-len(rope.factors) * math.log(frequency, rope.theta))


def _mark(model: VoxCPM, reserved: slice, size: float) -> None:
    """Mark the kinds of positions, each in a channel."""
    assert model.base_lm.embed_tokens is not None
    embeddings, audio = model.base_lm.embed_tokens.weight, model.enc_to_lm_proj
    embeddings[:, reserved] = 0.0
    embeddings[:, _TEXT] = size
    for token, channel in ((_FIRST, _ANCHOR), (_SECOND, _ANCHOR2), (AUDIO_START, _START)):
        embeddings[token, _TEXT] = 0.0
        embeddings[token, channel] = size
    audio.weight[reserved] = audio.bias[reserved] = 0.0
    audio.bias[_AUDIO] = size


def _heads(attention: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights of queries, keys and values as views [heads, head_dim, hidden]."""
    by_head = attention.qkv_proj.weight.unflatten(0, (-1, attention.head_dim))
    q, k, v = by_head.split((attention.num_heads, attention.num_kv_heads, attention.num_kv_heads))
    return q, k, v


def _turn(weight: Tensor, pair: int, channel: int, size: float, angle: float) -> None:
    """Set what a channel adds to a pair of dimensions. weight: [..., head_dim, hidden]."""
    weight[..., pair, channel] = size * math.cos(angle)
    weight[..., pair + weight.shape[-2] // 2, channel] = size * math.sin(angle)


def _store_angles(attention: Attention, rope: RopeConfig, pairs: list[int], shift: int, size: float) -> None:
    """Let layer 0 store the angles with this size."""
    q, k, v = _heads(attention)
    half, unit = attention.head_dim // 2, math.sqrt(2 / attention.qkv_proj.weight.shape[1])  # a mark is half of all
    scale = unit * math.sqrt(attention.head_dim)
    q[:], k[:], v[:, 0] = 0.0, 0.0, 0.0
    for pair in pairs:
        _turn(k, pair, _ANCHOR, unit, 0.0)
        _turn(k, pair, _ANCHOR2, unit, math.pi - _frequency(rope, pair))  # the opposite of the first one
        _turn(k, pair + shift, _START, unit, 0.0)
    k[:, half - 1, [_ANCHOR, _ANCHOR2]] = k[:, half - 2, [_ANCHOR, _START]] = unit
    q[:, half - 1, [_TEXT, _START]] = q[:, half - 2, _AUDIO] = _ALONE * scale
    v[:, 0, _ANCHOR], v[:, 0, [_ANCHOR2, _START]] = unit, -unit
    for number, pair in enumerate(pairs):
        for head, quarter in ((2 * number, 0.0), (2 * number + 1, math.pi / 2)):
            for channel in (_TEXT, _START):
                _turn(q[head], pair, channel, _SWING * scale, -2 * _frequency(rope, pair) - quarter)
            _turn(q[head], pair + shift, _AUDIO, 2 * _SWING * scale, math.pi - quarter)
            attention.o_proj.weight[_ANGLES + head, head * attention.head_dim] = size


def _compare_angles(attention: Attention, num_angles: int, layer: int, sharp: float) -> None:
    """Let head 0 look at the text where its angles are those of the speech."""
    q, k, v = _heads(attention)
    half, hidden = attention.head_dim // 2, attention.qkv_proj.weight.shape[1]
    # Mean square of the hidden state: 1 each of the embedding, the mark and each angle, about 0.4 of each layer.
    unit = math.sqrt((2 + num_angles + 0.4 * layer) / hidden)
    size = unit * math.sqrt(math.sqrt(attention.head_dim))
    q[0], k[0], v[0, 0] = 0.0, 0.0, 0.0
    sharp, alone = size * math.sqrt(sharp), size * math.sqrt(_ALONE)
    for number in range(2 * num_angles):
        dim, channel = half - 1 - number // 2 + number % 2 * half, _ANGLES + number
        q[0, dim, channel] = k[0, dim, channel] = sharp
    q[0, half - num_angles : half, _START] = 30 * sharp  # the place of the first patch, in spite of its own in the text
    q[0, half - 1 - num_angles, [_AUDIO, _START]] = k[0, half - 1 - num_angles, [_TEXT, _START]] = alone
    v[0, 0, _START] = 1.0
    attention.o_proj.weight[_END, 0] = 1.0


def _stop_at_end(model: VoxCPM) -> None:
    """Carry the value of the end to the stop head."""
    fsq, stop = model.fsq_layer, model.stop_proj
    for linear in (fsq.in_proj, fsq.out_proj, stop):
        linear.weight[:2] = linear.bias[:2] = 0.0
    fsq.in_proj.weight[0, _END], fsq.in_proj.bias[0] = 3.0, -1.0
    fsq.out_proj.weight[0, 0] = 16.0
    stop.weight[0, 0], stop.bias[1] = 1.0, 8.0  # a stop is above 8
    model.stop_head.weight.zero_()
    model.stop_head.weight[1, 0] = model.stop_head.weight[0, 1] = 1.0

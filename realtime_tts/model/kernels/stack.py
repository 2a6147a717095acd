"""Whole stacks over few rows, each in one kernel: `cuda/stack.cu`, its sizes and its arguments.

With few rows, the time goes into launches rather than bytes or operations. Here layers are separated only by a counter
in memory. Weights are read from the model's tensors.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from realtime_tts.model.attention import AttentionMetadata, KVCache
from realtime_tts.model.kernels.cuda import build
from realtime_tts.model.minicpm import MiniCPM, Rope

if TYPE_CHECKING:
    from realtime_tts.model.flow_matching import FlowSchedule
    from realtime_tts.model.local_transformers import LocDiT

_MAX_EVALUATIONS, _MAX_LAYERS = 64, 64  # of a flow, which has fewer than `MAX_FLOW_STEPS`; of a stack
_HEAD_DIM, _CHUNK, _SETS = 128, 1024, 4
# Processors left to the decoder, which runs beside the LMs of a few streams and would otherwise wait for them.
_SPARE_BLOCKS, _SPARED_STREAMS = 4, 2

_Pointer, _Int, _Float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class _Args(ctypes.Structure):
    _fields_ = (
        *((name, _Pointer) for name in ("layers", "x", "h", "results", "cos", "sin", "counter")),
        ("num_layers", _Int),
        ("rows", _Int),
        ("eps", _Float),
        ("residual_scale", _Float),
    )


class _PagedArgs(_Args):
    _fields_ = (
        *((name, _Pointer) for name in ("keys", "values", "slot_mapping", "sequences", "positions", "tables")),
        *((name, _Int) for name in ("layer_stride", "table_width", "block_size")),
        ("probed", _Pointer),
        ("probed_layer", _Int),
    )


class _FlowArgs(_Args):
    _fields_ = (
        *((name, _Pointer) for name in ("mu", "times", "prefix", "in_weight", "in_bias", "gain_out", "out_weight")),
        *((name, _Pointer) for name in ("out_bias", "noise", "cfg", "velocity", "out")),
        ("streams", _Int),
        ("evaluations", _Int),
        ("deltas", _Float * _MAX_EVALUATIONS),
    )


def missing_on(device: torch.device) -> str | None:
    """Return the reason why no stack can run in one kernel on a CUDA device; None: those of the right sizes can."""
    if torch.cuda.get_device_capability(device)[0] != 9:
        return "the kernels are for Hopper"
    return build.what_is_missing()


def what_is_missing(stack: MiniCPM) -> str | None:
    """Return the reason why a stack cannot run in one kernel here; None if it can."""
    weight = stack.norm.weight
    if weight.dtype != torch.bfloat16:
        return f"the weights are {str(weight.dtype).removeprefix('torch.')}, not bfloat16"
    layer = stack.layers[0]
    sizes = weight.shape[0], layer.mlp.down_proj.in_features, layer.self_attn.o_proj.in_features
    if layer.self_attn.head_dim != _HEAD_DIM or any(size % _CHUNK for size in sizes):
        return f"sizes other than multiples of {_CHUNK}, and heads other than of {_HEAD_DIM} values"
    if len(stack.layers) > _MAX_LAYERS:
        return f"more than {_MAX_LAYERS} layers"
    return missing_on(weight.device)


class _Stack:
    """Common part of all uses: the shape, the layers' addresses, buffers, kernels by the number of row tiles."""

    def __init__(self, stack: MiniCPM, length: int, tiles: tuple[int, ...], defines: dict[str, int]) -> None:
        layers = list(stack.layers)
        attention, mlp, norm = layers[0].self_attn, layers[0].mlp, layers[0].input_layernorm
        self.hidden, self.width = attention.qkv_proj.in_features, attention.qkv_proj.out_features
        self.inner, self.heads = mlp.down_proj.in_features, attention.num_heads
        self.device = norm.weight.device
        self._weights = [
            tensor.detach().contiguous()
            for layer in layers
            for tensor in (
                layer.self_attn.qkv_proj.weight, layer.self_attn.o_proj.weight, layer.mlp.gate_up_proj.weight,
                layer.mlp.down_proj.weight, layer.input_layernorm.weight, layer.post_attention_layernorm.weight,
            )
        ]  # fmt: skip
        self._table = torch.tensor([tensor.data_ptr() for tensor in self._weights], device=self.device)
        self._counter = torch.zeros(1, dtype=torch.int32, device=self.device)
        self._num_layers, self._eps, self._scale = len(layers), norm.eps, layers[0].residual_scale
        self._blocks = torch.cuda.get_device_properties(self.device).multi_processor_count
        self._tiles = tiles
        shape = {"HIDDEN": self.hidden, "FFN": self.inner, "HEADS": self.heads, "KV_HEADS": attention.num_kv_heads}
        shape |= {"LENGTH": length, **defines}
        with concurrent.futures.ThreadPoolExecutor() as pool:  # the compiler works outside the interpreter
            kernels = pool.map(lambda count: self._load({**shape, "TOKENS": count}), tiles)
            self._kernels = dict(zip(tiles, kernels, strict=True))

    def _load(self, defines: dict[str, int]) -> build.Kernel:
        return build.load("stack.cu", "stack", defines, self.device)

    @property
    def max_rows(self) -> int:
        return 8 * self._tiles[-1]

    def _launch(self, args: _Args, rows: int, num_streams: int, x: Tensor | None, rope: Rope | None) -> Tensor:
        """Set the common arguments and launch. Return h [rows, hidden]."""
        h = torch.empty(rows, self.hidden, device=self.device, dtype=torch.bfloat16)
        widths = 2 * self.hidden + self.width + self.heads * _HEAD_DIM + self.inner
        results = torch.full((_SETS * rows * widths // 4 + 1,), -1, device=self.device)  # 64-bit values
        args.layers, args.counter = self._table.data_ptr(), self._counter.data_ptr()
        args.x = (h if x is None else x).data_ptr()
        args.h, args.results = h.data_ptr(), results.data_ptr()
        if rope is not None:
            args.cos, args.sin = (table.data_ptr() for table in rope)
        args.num_layers, args.rows, args.eps, args.residual_scale = self._num_layers, rows, self._eps, self._scale
        count = next(count for count in self._tiles if 8 * count >= rows)
        num_blocks = self._blocks - _SPARE_BLOCKS * (num_streams <= _SPARED_STREAMS)
        self._kernels[count].launch(num_blocks, args, together=True)
        return h


class LocalStack(_Stack):
    """Sequences of `length` rows, each with attention to all of its own."""

    def __init__(self, stack: MiniCPM, length: int) -> None:
        super().__init__(stack, length, (1, 3, 5), {"LATENT": 0})
        self.length = length

    def forward(self, x: Tensor, rope: Rope | None) -> Tensor:
        """Return x [N * length, hidden], at most `max_rows`, after all layers, not normed; rope: `length` positions."""
        return self._launch(_Args(), x.shape[0], x.shape[0] // self.length, x.contiguous(), rope)


class PagedStack(_Stack):
    """Rows of any sequences over their paged caches: decode, and short prefills."""

    def __init__(self, stack: MiniCPM) -> None:
        super().__init__(stack, 0, (1,), {"LATENT": 0})

    def forward(
        self, x: Tensor, rope: Rope | None, kv: KVCache, first_layer: int, meta: AttentionMetadata, probed: int | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return x [T, hidden], at most `max_rows`, after all layers, not normed, and the rotated queries of layer
        `probed` [T, heads * head_dim]. rope: of each row. Writes to the cache's layers from `first_layer` on."""
        x = x.contiguous()
        keys, values = kv.layer(first_layer)
        args = _PagedArgs(
            keys=keys.data_ptr(), values=values.data_ptr(), slot_mapping=meta.slot_mapping.data_ptr(),
            sequences=meta.sequences.data_ptr(), positions=meta.positions.data_ptr(),
            tables=meta.block_tables.data_ptr(), table_width=meta.block_tables.stride(0),
            layer_stride=kv.pool.stride(0), block_size=kv.block_size, probed_layer=-1,
        )  # fmt: skip
        queries = None
        if probed is not None:
            queries = torch.empty(x.shape[0], self.heads * _HEAD_DIM, device=self.device, dtype=x.dtype)
            args.probed, args.probed_layer = queries.data_ptr(), probed
        return self._launch(args, x.shape[0], x.shape[0], x, rope), queries


class FlowStack(_Stack):
    """The flow loop of a DiT: all evaluations of all layers, guidance and Euler steps, in one launch."""

    MAX_STREAMS = 2

    def __init__(self, dit: LocDiT, num_mu: int, patch_size: int) -> None:
        length = num_mu + dit.separate_time + 2 * patch_size
        tiles = tuple(dict.fromkeys(-(-2 * streams * length // 8) for streams in range(1, self.MAX_STREAMS + 1)))
        shape = {"NUM_MU": num_mu, "SEPARATE_TIME": int(dit.separate_time), "PATCH": patch_size}
        super().__init__(dit.decoder, length, tiles, {"LATENT": dit.in_proj.in_features, **shape})
        self._dit, self._length = dit, length

    def solve(
        self, mu: Tensor, prefix: Tensor, noise: Tensor, schedule: FlowSchedule, cfg: Tensor, rope: Rope | None
    ) -> Tensor:
        """Run `FlowMatching.forward`, with prefix [S, patch_size, hidden] projected already; rope: one sequence's."""
        dit, num_streams = self._dit, noise.shape[0]
        velocity = torch.empty(2, *noise.shape, device=self.device)
        out = torch.empty_like(noise, dtype=torch.float32)
        given = {
            "mu": mu.contiguous(), "times": schedule.embeddings, "prefix": prefix.contiguous(),
            "in_weight": dit.in_proj.weight, "in_bias": dit.in_proj.bias, "gain_out": dit.decoder.norm.weight,
            "out_weight": dit.out_proj.weight, "out_bias": dit.out_proj.bias,
            "noise": noise.float().contiguous(), "cfg": cfg.float().contiguous(), "velocity": velocity, "out": out,
        }  # fmt: skip
        args = _FlowArgs(streams=num_streams, evaluations=len(schedule.deltas))
        for name, tensor in given.items():
            setattr(args, name, tensor.data_ptr())
        args.deltas[: len(schedule.deltas)] = schedule.deltas
        self._launch(args, 2 * num_streams * self._length, num_streams, None, rope)
        return out

"""Attention over the rows of a patch as a kernel in CUDA: `cuda/patch_attention.cu`, its sizes and its arguments."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from realtime_tts.model.kernels.cuda import build
from realtime_tts.model.minicpm import Rope

HEAD_DIM = 128
# With fewer its blocks, of all heads that share a KV head, are too few: `attention.local_attention` is faster.
MIN_SEQUENCES = 64


class _Args(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("qkv", "cos", "sin", "out")),
        ("first_query", ctypes.c_int64),
    )


class PatchAttention:
    """As `attention.local_attention`, of one length and with heads of 128 values in bfloat16, on Hopper."""

    def __init__(self, length: int, heads: int, kv_heads: int, device: torch.device) -> None:
        self.length, self._heads, self._kv_heads = length, heads, kv_heads
        shape = {"LENGTH": length, "HEADS": heads, "KV_HEADS": kv_heads}
        self._kernel = build.load("patch_attention.cu", "patch_attention", shape, device)

    def __call__(self, qkv: Tensor, rope: Rope | None, num_queries: int) -> Tensor:
        """qkv [N * length, width] contiguous; rope: cosine and signed sine [length, 1, head_dim] float32 → of each
        sequence's last `num_queries` positions, [N * num_queries, heads * head_dim]."""
        num_sequences = qkv.shape[0] // self.length
        out = torch.empty(num_sequences * num_queries, self._heads * HEAD_DIM, device=qkv.device, dtype=qkv.dtype)
        args = _Args(qkv=qkv.data_ptr(), out=out.data_ptr(), first_query=self.length - num_queries)
        if rope is not None:
            args.cos, args.sin = (table.data_ptr() for table in rope)
        self._kernel.launch(num_sequences * self._kv_heads, args)
        return out

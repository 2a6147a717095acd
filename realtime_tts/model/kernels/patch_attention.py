"""Attention over the rows of a patch by the CUDA kernel `cuda/patch_attention.cu`: its sizes and its arguments."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from realtime_tts.model.kernels.cuda import build
from realtime_tts.model.minicpm import Rope

HEAD_DIM, _WARPS = 128, 4
# With fewer there are too few blocks: `attention.local_attention` is faster.
MIN_SEQUENCES = 64


class _Args(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("qkv", "cos", "sin", "out")),
        ("first_query", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("kept", "time", "zeros", "fresh")),
        *((name, ctypes.c_int64) for name in ("streams", "conditions")),
    )


class PatchAttention:
    """`attention.local_attention` for one length, with heads of 128 values in bfloat16, on Hopper."""

    def __init__(self, length: int, heads: int, kv_heads: int, device: torch.device) -> None:
        self.length, self._heads = length, heads
        group = heads // kv_heads
        self._blocks = heads // (group if group % _WARPS else _WARPS)  # of a sequence
        shape = {"LENGTH": length, "HEADS": heads, "KV_HEADS": kv_heads}
        self._kernel = build.load("patch_attention.cu", "patch_attention", shape, device)

    def __call__(self, qkv: Tensor, rope: Rope | None, num_queries: int) -> Tensor:
        """Return attention of each sequence's last `num_queries` positions, [N * num_queries, heads * head_dim].

        qkv [N * length, width] contiguous; rope: cosine and signed sine [length, 1, head_dim] float32.
        """
        return self._run(_Args(qkv=qkv.data_ptr()), qkv, rope, qkv.shape[0] // self.length, num_queries)

    def shared(self, kept: Tensor, time: Tensor, zeros: Tensor, fresh: Tensor, rope: Rope | None) -> Tensor:
        """Return attention of every position of S streams' sequences (conditions, time, previous patch, noisy patch):
        those with conditions and then those without. Projections of rows that are equal in several sequences are given
        once, contiguous.

        kept: [S * (conditions + patch_size), width], for each stream its conditions, then the previous patch. time,
        zeros: [width], of the time, which all share, and of a condition that is left out. fresh: [S * patch_size,
        width], of the noisy patch.
        """
        num_streams = (len(kept) + len(fresh)) // (self.length - 1)
        args = _Args(kept=kept.data_ptr(), time=time.data_ptr(), zeros=zeros.data_ptr(), fresh=fresh.data_ptr())
        args.streams, args.conditions = num_streams, (len(kept) - len(fresh)) // num_streams
        return self._run(args, kept, rope, 2 * num_streams, self.length)

    def _run(self, args: _Args, like: Tensor, rope: Rope | None, num_sequences: int, num_queries: int) -> Tensor:
        out = torch.empty(num_sequences * num_queries, self._heads * HEAD_DIM, device=like.device, dtype=like.dtype)
        args.out, args.first_query = out.data_ptr(), self.length - num_queries
        if rope is not None:
            args.cos, args.sin = (table.data_ptr() for table in rope)
        self._kernel.launch(num_sequences * self._blocks, args)
        return out

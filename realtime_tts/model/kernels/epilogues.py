"""Epilogues of products on Hopper, written for QuACK. Importable only where that is installed."""

from __future__ import annotations

import functools
from typing import Any

from quack.activation import swiglu
from quack.epilogue.frontend import gemm_epilogue
from quack.epilogue.math import unpack
from quack.epilogue.ops import ColVecLoad, RowVecLoad


@functools.cache
def scaled_swiglu() -> Any:
    """Return an epilogue: silu(gate) * up of neighbouring columns of a product scaled by its `rows` and `columns`."""
    ops = {"rows": ColVecLoad("rows"), "columns": RowVecLoad("columns")}

    @gemm_epilogue(outputs=("out",), mode="acc_pair", ops=ops)
    def end(acc, rows, columns):
        gate, up = unpack(acc * columns * rows)
        return {"out": swiglu(gate, up)}

    return end

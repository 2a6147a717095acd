"""Low-rank adapters (LoRA) on a loaded model, several in one batch: each row is changed by its own adapter or by none.

`AdapterBank` replaces every linear layer that adapters may change by an `AdaptedLinear` with the same weight;
without a bank a model has none of them. A product then adds the rank-r update `scale · B(Ax)` of its row's adapter.
Nothing is merged into the weights, so adapters can be loaded and unloaded while other streams speak.

On the CPU, the rows of each adapter are computed separately. On CUDA, a captured step has fixed shapes and cannot read
from the device which adapters occur. There all rows are multiplied with all adapters, and a mask selects one of them:
two products over `max_adapters · max_rank` columns, whatever is loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realtime_tts.model.voxcpm import VoxCPM
from realtime_tts.model.weights import FUSED, fused_sizes

NO_ADAPTER = -1  # the index of a row without an adapter
# Linear layers by group, under upstream's names. By default, upstream's training changes attention and projections.
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
PROJECTIONS = ("enc_to_lm_proj", "lm_to_dit_proj", "res_to_dit_proj", "fusion_concat_proj")
LM_STACKS = ("base_lm", "residual_lm")
DIT_STACK = "feat_decoder.estimator.decoder"

LowRank = tuple[Tensor, Tensor]  # A [r, in] and scale · B [out, r]


class Selection:
    """Adapter of each row of a forward pass.

    Args:
        rows: [S] int64, an adapter's index or `NO_ADAPTER`, for each stream (or patch, or position).
        copies: number of repetitions of all S in a layer's rows; each of the S may be several rows.
    """

    def __init__(self, rows: Tensor, copies: int = 1) -> None:
        self._rows, self._copies = rows, copies
        self._by_row: dict[int, Tensor] = {}
        self._groups: dict[int, list[tuple[int, Tensor | None]]] = {}

    def by_row(self, num_rows: int) -> Tensor:
        """Return the adapter index of each of a layer's rows, [num_rows]."""
        if num_rows not in self._by_row:
            rows = self._rows.repeat(self._copies)
            self._by_row[num_rows] = rows.repeat_interleave(num_rows // len(rows)) if num_rows != len(rows) else rows
        return self._by_row[num_rows]

    def groups(self, num_rows: int) -> list[tuple[int, Tensor | None]]:
        """Return the adapters that occur, each with its rows; None: all rows. Synchronises with the device."""
        if num_rows not in self._groups:
            by_row = self.by_row(num_rows)
            present = sorted(set(self._rows.tolist()))
            self._groups[num_rows] = [
                (index, (by_row == index).nonzero().view(-1) if len(present) > 1 else None)
                for index in present
                if index != NO_ADAPTER
            ]
        return self._groups[num_rows]


class AdaptedLinear(nn.Linear):
    """A linear layer with room for the updates of several adapters.

    parts: upstream's names and sizes of slices of its output: [("….q_proj", 64), ("….k_proj", 32), …].
    lowered: [max_adapters, R, in], the A matrices of each adapter, those of its parts concatenated; raised:
    [max_adapters, R, out], the scaled B matrices, transposed, each in the columns of its part. R is `max_rank` for each
    part. num_used: number of an adapter's R rows in use; 0: it does not change this layer.
    """

    def __init__(self, bank: AdapterBank, linear: nn.Linear, parts: Sequence[tuple[str, int]]) -> None:
        weight = linear.weight
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = weight, linear.bias
        self.bank, self.parts = bank, tuple(parts)
        shape = (bank.limits.max_adapters, bank.limits.max_rank * len(parts))
        self._lowered = torch.zeros(*shape, linear.in_features, device=weight.device, dtype=weight.dtype)
        self._raised = torch.zeros(*shape, linear.out_features, device=weight.device, dtype=weight.dtype)
        self._num_used = [0] * bank.limits.max_adapters

    def forward(self, x: Tensor) -> Tensor:
        return self.update(F.linear(x, self.weight, self.bias), x)

    def update(self, out: Tensor, x: Tensor, scale: float = 1.0) -> Tensor:
        """Add `scale` times the updates for x [..., in] to out [..., out] in place, and return it."""
        selection = self.bank.selection
        if selection is not None:
            rows, outs = x.reshape(-1, x.shape[-1]), out.view(-1, out.shape[-1])
            if self.bank.is_captured:
                self._update_masked(outs, rows, selection, scale)
            else:
                self._update_groups(outs, rows, selection, scale)
        return out

    def _update_groups(self, out: Tensor, x: Tensor, selection: Selection, scale: float) -> None:
        for index, rows in selection.groups(len(x)):
            used = self._num_used[index]
            if not used:
                continue
            down, up = self._lowered[index, :used], self._raised[index, :used]
            if rows is None:
                out.addmm_(x @ down.t(), up, alpha=scale)
            else:
                out.index_add_(0, rows, (x.index_select(0, rows) @ down.t()) @ up, alpha=scale)

    def _update_masked(self, out: Tensor, x: Tensor, selection: Selection, scale: float) -> None:
        num_adapters, num_columns, _ = self._lowered.shape
        columns = x @ self._lowered.flatten(0, 1).t()
        is_own = selection.by_row(len(x))[:, None] == self.bank.indices
        # Not a product with the mask: an overflow of another adapter's columns must not become NaN here.
        own = torch.where(is_own[:, :, None], columns.view(-1, num_adapters, num_columns), 0.0)
        out.addmm_(own.flatten(1), self._raised.flatten(0, 1), alpha=scale)

    def put(self, index: int, updates: Mapping[str, LowRank]) -> None:
        """Set an adapter's updates, by upstream's names. Parts without one, or all for `{}`, are not changed by it."""
        self._lowered[index].zero_()
        self._raised[index].zero_()
        row = column = 0
        for name, size in self.parts:
            if name in updates:
                down, up = updates[name]
                rows = slice(row, row + len(down))
                self._lowered[index, rows] = down.to(self._lowered)
                self._raised[index, rows, column : column + size] = up.t().to(self._raised)
                row += len(down)
            column += size
        self._num_used[index] = row


@dataclasses.dataclass(frozen=True, slots=True)
class AdapterLimits:
    """max_adapters: number loaded at a time. max_rank: of each. mlp: whether they may change the MLPs, too, which takes
    three times the memory."""

    max_adapters: int = 4
    max_rank: int = 32
    mlp: bool = False

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the layers of a stack that may be changed."""
        return ATTENTION + MLP if self.mlp else ATTENTION


class AdapterBank:
    """Room for adapters on one model, whose layers it replaces by adapted ones. Make it before layers are fused or
    captured. Belongs to the thread that runs the model.

    selection: adapters of the current forward pass; None: no row has one, and nothing is added.
    is_captured: passes are or may be captured into graphs, so the device is never read.
    """

    def __init__(self, model: VoxCPM, limits: AdapterLimits, *, is_captured: bool | None = None) -> None:
        device = model.stop_proj.weight.device
        self.limits = limits
        self.selection: Selection | None = None
        self.is_captured = device.type == "cuda" if is_captured is None else is_captured
        self.indices = torch.arange(limits.max_adapters, device=device)
        self._layers: list[AdaptedLinear] = []
        for owner, name, parts in list(_adaptable(model, limits.targets)):
            self._layers.append(AdaptedLinear(self, getattr(owner, name), parts))
            setattr(owner, name, self._layers[-1])

    @contextlib.contextmanager
    def using(self, rows: Tensor, copies: int = 1) -> Iterator[None]:
        """Return a context in which forward passes are over these rows; see `Selection`."""
        if self.is_captured or bool((rows != NO_ADAPTER).any()):
            self.selection = Selection(rows, copies)
        try:
            yield
        finally:
            self.selection = None

    @torch.inference_mode()
    def put(self, index: int, updates: Mapping[str, LowRank]) -> None:
        """Load an adapter that was checked already at `index`, replacing another: updates by upstream's names of the
        layers. Empty updates clear it."""
        for layer in self._layers:
            layer.put(index, updates)


def upstream_shapes(model: VoxCPM, targets: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return (out, in) of every linear layer that an adapter may change, by upstream's name."""
    return {
        part: (size, getattr(owner, name).in_features)
        for owner, name, parts in _adaptable(model, targets)
        for part, size in parts
    }


def is_adapting(*layers: nn.Module) -> bool:
    """Return whether the current pass has adapters for one of these layers, so that a kernel that uses only their
    weights cannot replace them."""
    return any(isinstance(layer, AdaptedLinear) and layer.bank.selection is not None for layer in layers)


def adapted(layer: nn.Module, out: Tensor, x: Tensor, scale: float = 1.0) -> Tensor:
    """Return `out`, `layer`'s product for x computed elsewhere, with its adapters' updates added."""
    return layer.update(out, x, scale) if isinstance(layer, AdaptedLinear) else out


def _adaptable(model: VoxCPM, targets: Sequence[str]) -> Iterator[tuple[nn.Module, str, list[tuple[str, int]]]]:
    """Yield a layer's owner, its name there, and its parts under upstream's names with their sizes."""
    for stack in (*LM_STACKS, DIT_STACK):
        for number, layer in enumerate(model.get_submodule(stack).layers):  # type: ignore[arg-type]
            for block in ("self_attn", "mlp"):
                owner = getattr(layer, block)
                for name, linear in owner.named_children():
                    parts = FUSED.get(name, (name,))
                    if isinstance(linear, nn.Linear) and parts[0] in targets:
                        sizes = fused_sizes(owner, name) if name in FUSED else [linear.out_features]
                        names = [f"{stack}.layers.{number}.{block}.{part}" for part in parts]
                        yield owner, name, list(zip(names, sizes, strict=True))
    for name in PROJECTIONS:
        if isinstance(linear := getattr(model, name), nn.Linear):
            yield model, name, [(name, linear.out_features)]

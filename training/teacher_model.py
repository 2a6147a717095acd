"""Kokoro-82M as the teacher: its weights out of packages, and synthesis of many texts at once.

The weights are an int8 ONNX export in four packages; `float_weights` turns them back into the floats of the torch
modules. The modules come from the package `kokoro`. Utterances of one batch have equally many frames: its
normalisations run over time, so that padding would change what is heard.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FRAME_SAMPLES = 600  # of one frame of a phone's duration, at 24 kHz
_FRAME_GRID = 8  # the last silence is stretched to a multiple, so that batches are large
_SHAPE = {
    "hidden_dim": 512,
    "style_dim": 128,
    "n_layer": 3,
    "n_token": 178,
    "istftnet": {
        "resblock_kernel_sizes": [3, 7, 11],
        "upsample_rates": [10, 6],
        "upsample_initial_channel": 512,
        "resblock_dilation_sizes": [[1, 3, 5]] * 3,
        "upsample_kernel_sizes": [20, 12],
        "gen_istft_n_fft": 20,
        "gen_istft_hop_size": 5,
    },
    "plbert": {
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 2048,
        "max_position_embeddings": 512,
        "num_hidden_layers": 12,
    },
}


class _Export:
    """The quantised tensors of an ONNX graph, as floats."""

    def __init__(self, path: Path) -> None:
        import onnx
        from onnx import numpy_helper

        self.graph = onnx.load(str(path)).graph
        self._raw = {tensor.name: tensor for tensor in self.graph.initializer}
        self._array = numpy_helper.to_array
        self._zero_points = {}
        for node in self.graph.node:
            if node.op_type in ("MatMulInteger", "ConvInteger") and len(node.input) >= 4:
                self._zero_points[node.input[1]] = node.input[3]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def dims(self, name: str) -> int:
        return len(self._raw[name].dims)

    def array(self, name: str) -> NDArray[Any]:
        return self._array(self._raw[name])

    def floats(self, name: str, axis: int) -> NDArray[np.float32]:
        """Return (integers - zero point) * scale, both along `axis` if there is one for each channel."""
        base = name.removesuffix("_quantized")
        values = self.array(name).astype(np.float32)
        scale = self.array(f"{base}_scale").astype(np.float32)
        zero_name = self._zero_points.get(name, f"{base}_zero_point")
        zero = self.array(zero_name).astype(np.float32) if zero_name in self._raw else np.zeros_like(scale)
        shape = [1] * values.ndim
        if scale.size > 1:
            shape[axis] = scale.size
        return (values - (zero.reshape(shape) if zero.size > 1 else zero.reshape([1] * values.ndim))) * scale.reshape(
            shape
        )


def float_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of Kokoro's torch modules from the int8 ONNX file. Needs the package onnx."""
    export, weights = _Export(path), {}

    def put(name: str, value: NDArray[Any]) -> None:
        weights[re.sub(r"^(encoder|decoder)\.", "", name)] = _tensor(value)

    for name in export:
        if not name.startswith(("encoder.", "decoder.")):
            continue
        if name.endswith("_quantized"):
            value = export.floats(name, 0 if export.dims(name) == 3 else -1)
            is_linear = export.dims(name) == 2 and ".fc.weight" in name
            put(name.removesuffix("_quantized"), value.T if is_linear else value)
        elif not name.endswith(("_scale", "_zero_point")):
            put(name, export.array(name))
    for node in export.graph.node:
        path_name = node.name.strip("/").replace("/", ".")
        if node.op_type in ("MatMulInteger", "MatMul") and node.input[1].startswith("onnx::"):
            name = re.sub(r"(_\d+)?\.MatMul(_quant)?$", "", path_name) + ".weight"
            if re.sub(r"^(encoder|decoder)\.", "", name) not in weights:
                is_quantized = node.op_type == "MatMulInteger"
                value = export.floats(node.input[1], 1) if is_quantized else export.array(node.input[1])
                put(name, value.T)
        elif node.op_type == "DynamicQuantizeLSTM":
            _put_lstm(export, node, path_name.removesuffix(".LSTM_quant"), put)
        elif node.op_type in ("Conv", "ConvTranspose", "ConvInteger") and node.input[1].startswith("/"):
            source = node.input[1]
            value = export.floats(source, 0) if source.endswith("_quantized") else export.array(source)
            weights[_module(node.name) + ".weight"] = _tensor(value)
    for name in [name for name in weights if name.startswith("shared.")]:
        weights[f"predictor.{name}"] = weights.pop(name)
    return weights


def _tensor(value: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(value.astype(np.float32)))


def _put_lstm(export: _Export, node: Any, name: str, put: Any) -> None:
    """Both directions of an LSTM; ONNX orders its gates input, output, forget, cell."""

    def floats(values: str, scale: str, zero: str) -> NDArray[np.float32]:
        per_direction = [export.array(part).astype(np.float32) for part in (scale, zero)]
        scales, zeros = (part.reshape(2, 1, 1) if part.size == 2 else part.reshape(2, 1, -1) for part in per_direction)
        return (export.array(values).astype(np.float32) - zeros) * scales

    inputs = floats(node.input[1], node.input[8], node.input[9])
    hidden = floats(node.input[2], node.input[10], node.input[11])
    bias, size = export.array(node.input[3]), hidden.shape[1]

    def reordered(matrix: NDArray[Any]) -> NDArray[Any]:
        gates = [matrix[index * size : (index + 1) * size] for index in (0, 2, 3, 1)]
        return np.concatenate(gates)

    for direction, suffix in enumerate(("", "_reverse")):
        put(f"{name}.weight_ih_l0{suffix}", reordered(inputs[direction].T))
        put(f"{name}.weight_hh_l0{suffix}", reordered(hidden[direction].T))
        put(f"{name}.bias_ih_l0{suffix}", reordered(bias[direction][: 4 * size]))
        put(f"{name}.bias_hh_l0{suffix}", reordered(bias[direction][4 * size :]))


def _module(node_name: str) -> str:
    """Return the torch module of a node: its path repeats what it nests."""
    kept: list[str] = []
    for part in node_name.strip("/").split("/")[:-1]:
        if kept and part.startswith(kept[-1] + "."):
            kept[-1] = part
        else:
            kept.append(part)
    if kept[0] in ("encoder", "decoder"):
        kept = kept[1:]
    if kept[0].split(".")[0] in ("F0", "N", "shared"):
        kept = ["predictor", *kept]
    return ".".join(kept)


def _kokoro_modules(source: Path | None) -> tuple[Any, Any]:
    """Import `kokoro.modules` and `kokoro.istftnet` alone: the package's own start wants a hub and a pronouncer."""
    if source is not None:
        sys.path.insert(0, str(source))
    spec = importlib.util.find_spec("kokoro")
    assert spec is not None
    assert spec.submodule_search_locations
    package = types.ModuleType("kokoro")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["kokoro"] = package
    return importlib.import_module("kokoro.modules"), importlib.import_module("kokoro.istftnet")


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """One utterance between the two halves: phone ids [T], frames of each [T], the row of its text in the batch."""

    ids: Tensor
    durations: Tensor
    encoded: Tensor  # [T, 512 + 128], for pitch and energy
    text: Tensor  # [T, 512], for the decoder


class Teacher(nn.Module):
    """Kokoro for batches, in inference mode."""

    def __init__(self, source: Path | None = None) -> None:
        super().__init__()
        modules, istftnet = _kokoro_modules(source)
        from transformers import AlbertConfig

        hidden, width = _SHAPE["hidden_dim"], _SHAPE["style_dim"]
        config = AlbertConfig(vocab_size=_SHAPE["n_token"], **_SHAPE["plbert"])
        config._attn_implementation = "sdpa"
        self.bert = modules.CustomAlbert(config)
        self.bert_encoder = nn.Linear(config.hidden_size, hidden)
        self.predictor = modules.ProsodyPredictor(style_dim=width, d_hid=hidden, nlayers=3, max_dur=50, dropout=0.0)
        self.text_encoder = modules.TextEncoder(channels=hidden, kernel_size=5, depth=3, n_symbols=_SHAPE["n_token"])
        self.decoder = istftnet.Decoder(dim_in=hidden, style_dim=width, dim_out=80, **_SHAPE["istftnet"])
        for module in self.modules():
            if any("weight_g" in name for name, _ in module.named_parameters(recurse=False)):
                nn.utils.remove_weight_norm(module)
        self.eval().requires_grad_(False)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Raises RuntimeError for weights of other modules: only norms that are the identity may be missing."""
        missing, _ = self.load_state_dict(weights, strict=False)
        real = [name for name in missing if ".norm" not in name and "pooler" not in name and "position_ids" not in name]
        if real:
            raise RuntimeError(f"the teacher's weights lack {', '.join(real[:5])}")

    @torch.inference_mode()
    def plan(self, ids: list[NDArray[np.int64]], styles: Tensor, speeds: Tensor) -> list[Planned]:
        """Durations and encodings of n texts: phone ids [T] each, styles [n, 256], speeds [n]."""
        device = styles.device
        lengths = torch.tensor([len(part) for part in ids])
        tokens = torch.zeros(len(ids), int(lengths.max()), dtype=torch.int64)
        for row, part in enumerate(ids):
            tokens[row, : len(part)] = torch.from_numpy(part)
        tokens = tokens.to(device)
        mask = torch.arange(tokens.shape[1], device=device) >= lengths.to(device)[:, None]
        prosody = styles[:, 128:]
        embedded = self.bert_encoder(self.bert(tokens, attention_mask=(~mask).int())).transpose(1, 2)
        encoded = self.predictor.text_encoder(embedded, prosody, lengths, mask)
        packed = nn.utils.rnn.pack_padded_sequence(encoded, lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.predictor.lstm(packed)[0], batch_first=True)
        spread = torch.sigmoid(self.predictor.duration_proj(hidden)).sum(-1) / speeds[:, None]
        durations = spread.round().clamp(min=1).long()
        text = self.text_encoder(tokens, lengths, mask).transpose(1, 2)
        counts = durations.cpu()
        result = []
        for row, length in enumerate(lengths.tolist()):
            own = counts[row, :length].clone()
            own[-1] += -int(own.sum()) % _FRAME_GRID
            result.append(Planned(tokens[row, :length], own, encoded[row, :length], text[row, :length]))
        return result

    @torch.inference_mode()
    def speak(self, planned: list[Planned], styles: Tensor, pitches: Tensor) -> Tensor:
        """Audio [n, samples] of n utterances with equally many frames: styles [n, 256], pitches [n] multiply F0."""
        device = styles.device
        rows = [torch.repeat_interleave(torch.arange(len(part.ids)), part.durations).to(device) for part in planned]
        encoded = torch.stack([part.encoded[row] for part, row in zip(planned, rows, strict=True)]).transpose(1, 2)
        text = torch.stack([part.text[row] for part, row in zip(planned, rows, strict=True)]).transpose(1, 2)
        pitch, energy = self.predictor.F0Ntrain(encoded, styles[:, 128:])
        audio: Tensor = self.decoder(text, pitch * pitches[:, None], energy, styles[:, :128])
        return audio.flatten(1)

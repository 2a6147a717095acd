"""Adapters beside the weights do what the reference's LoRA layers and what merged weights do, in every generation."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch
from adapter_config import ADAPTED, CONFIG
from generation import new_runner, run
from golden_inputs import NUM_FLOW_STEPS
from random_checkpoints import random_weight
from safetensors.torch import load_file
from test_parity_generation import relative_error, stream_of

sys.path.append(str(Path(__file__).parents[1] / "support"))

from random_adapters import EVERYTHING, merge, write_adapter

from realtime_tts.bench.checkpoint import adapter_tensors
from realtime_tts.model.adapted import AdapterBank, AdapterLimits, upstream_shapes
from realtime_tts.model.adapter_file import read_adapter

LIMITS = AdapterLimits(max_adapters=2, max_rank=8, mlp=True)
# A random adapter makes a random model wilder: the rounding of a step comes back tenfold some steps later.
NUM_PATCHES = 5
MADE = ("lm_hidden", "residual_hidden", "patches")
captured = pytest.mark.parametrize("is_captured", [False, True], ids=["by groups", "masked"])


def spoken(golden, model, num_patches=NUM_PATCHES, num_flow_steps=NUM_FLOW_STEPS):
    stream = stream_of(golden, "continuation", list(range(10, 30)), num_patches=num_patches)
    run(new_runner(model, num_flow_steps), [stream])
    return {name: torch.stack(getattr(stream, name)) for name in MADE}


def adapted(golden, directory, tensors, config, *, is_captured):
    """A copy of the model, and its bank with the adapter in the second place; another one is in the first."""
    model = copy.deepcopy(golden.loaded.model)
    bank = AdapterBank(model, LIMITS, is_captured=is_captured)
    adapter = read_adapter("a", write_adapter(directory, tensors, **config), model, LIMITS)
    bank.put(0, {layer: (down.flip(0), up) for layer, (down, up) in adapter.updates.items()})
    bank.put(1, adapter.updates)
    return model, bank


@captured
@pytest.mark.parametrize("golden", ADAPTED, indirect=True)
def test_an_adapter_is_what_the_references_own_layers_make_of_it(golden, tmp_path, is_captured):
    theirs = {
        key.removeprefix(f"{golden.name}."): value
        for key, value in load_file(Path(__file__).parent / "goldens" / "adapters.safetensors").items()
        if key.startswith(f"{golden.name}.")
    }
    shapes = {}
    for layer, (num_out, num_in) in upstream_shapes(golden.loaded.model, LIMITS.targets).items():
        shapes |= {f"{layer}.lora_A": (CONFIG["r"], num_in), f"{layer}.lora_B": (num_out, CONFIG["r"])}
    tensors = {key: random_weight(key, shape) for key, shape in shapes.items()}
    model, bank = adapted(golden, tmp_path, tensors, CONFIG, is_captured=is_captured)
    case = golden._replace(tensors={f"continuation.{key}": value for key, value in theirs.items()})
    with bank.using(torch.tensor([1])):
        ours = spoken(case, model)
    plain = spoken(case, golden.loaded.model)
    for mine, wanted in zip(MADE, ("lm_hidden", "residual_hidden", "latents"), strict=True):
        assert relative_error(ours[mine], theirs[wanted][:NUM_PATCHES]) < 1e-4, mine
        assert relative_error(plain[mine], theirs[wanted][:NUM_PATCHES]) > 0.1, (
            f"{mine}: the adapter is too quiet for this test"
        )


@captured
def test_an_adapter_beside_the_weights_equals_merged_weights(golden, tmp_path, is_captured):
    # Quantised so finely that a number next to a boundary, on its other side by rounding, is no other number.
    loaded = copy.deepcopy(golden.loaded)
    loaded.model.fsq_layer.scale = 2**16
    golden = golden._replace(loaded=loaded)
    tensors = adapter_tensors(loaded.model, seed=1, mlp=True)
    model, bank = adapted(golden, tmp_path, tensors, EVERYTHING, is_captured=is_captured)
    merged = copy.deepcopy(loaded.model)
    merge(merged, tensors, scale=EVERYTHING["alpha"] / EVERYTHING["r"])
    with bank.using(torch.tensor([1])):
        ours = spoken(golden, model, 3, 4)
    theirs, plain, without = (spoken(golden, other, 3, 4) for other in (merged, loaded.model, model))
    for name in MADE:
        assert relative_error(ours[name], theirs[name]) < 1e-4, name
        assert relative_error(plain[name], theirs[name]) > 0.1, f"{name}: the adapter is too quiet for this test"
        assert torch.equal(without[name], plain[name]), name

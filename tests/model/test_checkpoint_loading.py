from __future__ import annotations

import json
import math
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from hub_server import hub_of
from random_checkpoints import CONFIGS, write_checkpoint
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from voices import DEFAULT_VOICE, SAMPLE_RATE_HZ, STARTER_DIRECTORY

from realtime_tts.contract.location import STARTER_VOICE
from realtime_tts.errors import CheckpointError
from realtime_tts.model import weights
from realtime_tts.model.checkpoint import Uninitialised, load_model, resolve_directory, save_weights
from realtime_tts.model.config_file import parse_config
from realtime_tts.model.voxcpm import VoxCPM

GOLDENS = Path(__file__).parents[1] / "parity" / "goldens"
NAME = "voxcpm2"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    with safe_open(GOLDENS / f"{NAME}.safetensors", "pt") as file:
        shapes = json.loads(file.metadata()["shapes"])
    return write_checkpoint(tmp_path_factory.mktemp("original"), NAME, shapes)


@pytest.fixture
def directory(original, tmp_path) -> Path:
    return shutil.copytree(original, tmp_path / "checkpoint")


def same_weights(a, b) -> bool:
    first, second = a.model.state_dict(), b.model.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def change(path: Path, edit) -> None:
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


def test_it_is_ready_to_serve(directory):
    loaded = load_model(directory)
    assert loaded.name == "checkpoint"
    assert not loaded.model.training
    assert {parameter.requires_grad for parameter in loaded.model.parameters()} == {False}
    assert {parameter.device.type for parameter in loaded.model.parameters()} == {"cpu"}
    assert loaded.tokenizer.encode("ab") == [3, 4]


def test_a_token_that_the_model_does_not_have_is_an_error_of_its_text(directory):
    tokenizer = json.loads((directory / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["c"] = 5000
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    loaded = load_model(directory)
    assert loaded.tokenizer.encode("ab") == [3, 4]
    with pytest.raises(CheckpointError, match=r"tokenizer\.json has a token 5000, but the model has"):
        loaded.tokenizer.encode("abc")


@pytest.mark.parametrize(
    ("file", "weight"),
    [
        ("model.safetensors", "base_lm.layers.1.self_attn.k_proj.weight"),
        ("model.safetensors", "residual_lm.norm.weight"),
        ("model.safetensors", "feat_decoder.estimator.decoder.layers.0.mlp.up_proj.weight"),
        ("audiovae.safetensors", "decoder.model.0.bias"),
        ("audiovae.safetensors", "encoder.fc_mu.weight_g"),
    ],
)
def test_a_missing_weight_is_named(directory, file, weight):
    change(directory / file, lambda tensors: tensors.pop(weight))
    with pytest.raises(CheckpointError, match=f"{weight} is missing"):
        load_model(directory)


@pytest.mark.parametrize("file", ["model.safetensors", "audiovae.safetensors"])
def test_an_unknown_weight_is_named(directory, file):
    change(directory / file, lambda tensors: tensors.update({"extra.lora_A": torch.zeros(1)}))
    with pytest.raises(CheckpointError, match=r"unknown weight extra\.lora_A"):
        load_model(directory)


def test_a_weight_of_another_shape_is_named(directory):
    change(directory / "model.safetensors", lambda tensors: tensors.update({"stop_head.weight": torch.zeros(3, 64)}))
    with pytest.raises(CheckpointError, match=r"stop_head\.weight is shaped \[3, 64\], not \[2, 64\]"):
        load_model(directory)


FAULTS = {
    "a dimension more": lambda t: t[None],
    "a dimension less": lambda t: t[0],
    "no dimension": lambda t: t.flatten()[0],
    "a row more": lambda t: torch.cat((t, t[:1])),
    "a row less": lambda t: t[:-1],
    "no rows": lambda t: t[:0],
    "a column more": lambda t: torch.cat((t, t[..., :1]), dim=-1),
    "a column less": lambda t: t[..., :-1],
    "no columns": lambda t: t[..., :0],
    "integers": lambda t: t.to(torch.int32),
    "booleans": lambda t: t > 0,
    "complex numbers": lambda t: t.to(torch.complex64),
}


@pytest.fixture(scope="module")
def tensors(original) -> dict[str, dict[str, torch.Tensor]]:
    """What is on disk, by the part of the model that it belongs to."""
    vae = {k: t for k, t in load_file(original / "audiovae.safetensors").items() if k != weights.RATE_BOUNDARIES}
    return {"model": load_file(original / "model.safetensors"), "vae": vae}


@pytest.fixture(scope="module")
def modules() -> dict[str, nn.Module]:
    with torch.device("meta"), Uninitialised():
        model = VoxCPM(parse_config(CONFIGS[NAME]))
    vae = model.vae
    del model.vae
    return {"model": model, "vae": vae}


def renamed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The VAE's tensors as torch's newer weight norm names them."""
    new = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
    split = {key: key.rpartition(".") for key in tensors}
    return {f"{stem}.{new.get(leaf, leaf)}": tensors[key] for key, (stem, _, leaf) in split.items()}


def folded(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The VAE's tensors without weight norm."""
    return {key.replace("weight_v", "weight"): t for key, t in tensors.items() if not key.endswith("weight_g")}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("part", ["model", "vae", "renamed vae", "folded vae"])
def test_any_misshapen_tensor_is_refused_by_its_name(tensors, modules, part, fault):
    """By ours: torch would raise errors of its own, broadcast, or read memory that is not the tensor's.

    Each fault is made in every third tensor, each tensor has a third of the faults.
    """
    kind = part.split()[-1]
    spelt = {"renamed vae": renamed, "folded vae": folded}.get(part, dict)(tensors[kind])
    for name in list(spelt)[list(FAULTS).index(fault) % 3 :: 3]:
        changed = FAULTS[fault](spelt[name])
        with pytest.raises(CheckpointError, match=f"weight {re.escape(name)} is"):
            weights.to_model({**spelt, name: changed}, modules[kind], torch.float32)


def test_every_spelling_of_the_vae_loads(tensors, modules):
    plain = weights.to_model(tensors["vae"], modules["vae"], torch.float32)
    again = weights.to_model(renamed(tensors["vae"]), modules["vae"], torch.float32)
    assert all(torch.equal(plain[key], again[key]) for key in plain)
    # Without weight norm a weight is its direction at its own length.
    weights.to_model(folded(tensors["vae"]), modules["vae"], torch.float32)


def test_a_magnitude_with_too_few_rows_is_refused_before_it_is_folded(directory):
    """Torch's weight norm reads and writes past its end: the process aborts, or crashes somewhere else later."""
    change(
        directory / "audiovae.safetensors",
        lambda tensors: tensors.update({"encoder.fc_mu.weight_g": tensors["encoder.fc_mu.weight_g"][:1]}),
    )
    with pytest.raises(CheckpointError, match=r"encoder\.fc_mu\.weight_g is shaped \[1, 1, 1\], not \[8, 1, 1\]"):
        load_model(directory)


@pytest.mark.parametrize(("one", "other"), [("self_attn.q_proj", "self_attn.k_proj"), ("mlp.gate_proj", "mlp.up_proj")])
def test_parts_that_only_together_have_the_right_size_are_refused(directory, one, other):
    """Rows that moved from the second to the first of two matrices that become one are found."""
    stem = "base_lm.layers.0."

    def move_rows(tensors):
        first, second = tensors[f"{stem}{one}.weight"], tensors[f"{stem}{other}.weight"]
        rows = torch.cat((first, second))
        tensors[f"{stem}{one}.weight"] = rows[: len(first) + 5].clone()
        tensors[f"{stem}{other}.weight"] = rows[len(first) + 5 :].clone()

    change(directory / "model.safetensors", move_rows)
    with pytest.raises(CheckpointError, match=rf"{stem}{one}\.weight is shaped"):
        load_model(directory)


PUBLISHED_BYTES = 4_580_080_592  # of openbmb/VoxCPM2's model.safetensors


def test_the_published_file_has_the_weights_that_are_expected_of_it():
    """Its size is known, and follows from the names and shapes: another weight, name or shape would change it."""
    local = {"hidden_dim": 1024, "ffn_dim": 4096, "num_heads": 16, "num_layers": 12, "kv_channels": 128}
    sizes = {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 16, "num_hidden_layers": 28}
    factors = {"short_factor": [1.0] * 64, "long_factor": [1.0] * 64, "original_max_position_embeddings": 32768}
    sizes |= {"kv_channels": 128, "vocab_size": 73448, "max_position_embeddings": 32768, "rope_scaling": factors}
    lm = CONFIGS[NAME]["lm_config"] | sizes
    raw = {"architecture": NAME, "lm_config": lm, "encoder_config": local, "dit_config": local}
    with torch.device("meta"), Uninitialised():
        model = VoxCPM(parse_config(raw))
    del model.vae
    header, end = {}, 0
    for name, shape in sorted(upstream_shapes(model).items()):
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    num_header = -(-len(json.dumps(header, separators=(",", ":"))) // 8) * 8
    assert 8 + num_header + end == PUBLISHED_BYTES


def upstream_shapes(model: nn.Module) -> dict[str, list[int]]:
    shapes = {}
    for name, tensor in model.state_dict().items():
        prefix, _, leaf = name.rpartition(".")
        stem, _, layer = prefix.rpartition(".")
        if layer in weights.FUSED:
            rows = weights.fused_sizes(model.get_submodule(stem), layer)
            parts = zip(weights.FUSED[layer], rows, strict=True)
            shapes |= {f"{stem}.{part}.{leaf}": [size, *tensor.shape[1:]] for part, size in parts}
        else:
            shapes[name] = list(tensor.shape)
    return shapes


def test_query_and_key_in_each_others_place_are_refused(directory):
    def swap(tensors):
        q, k = (f"base_lm.layers.0.self_attn.{name}_proj.weight" for name in "qk")
        tensors[q], tensors[k] = tensors[k], tensors[q]

    change(directory / "model.safetensors", swap)
    with pytest.raises(CheckpointError, match=r"q_proj\.weight is shaped \[32, 64\], not \[96, 64\]"):
        load_model(directory)


@pytest.mark.parametrize("boundaries", [[20000, 30000, 41000], [20000, 30000], []])
def test_rate_boundaries_that_differ_from_the_config_are_refused(directory, boundaries):
    stored = torch.tensor(boundaries, dtype=torch.int32)
    change(directory / "audiovae.safetensors", lambda tensors: tensors.update({weights.RATE_BOUNDARIES: stored}))
    with pytest.raises(CheckpointError, match="sr_bin_boundaries"):
        load_model(directory)


def test_rate_boundaries_may_stand_in_the_config_alone(original, directory):
    change(directory / "audiovae.safetensors", lambda tensors: tensors.pop(weights.RATE_BOUNDARIES))
    assert same_weights(load_model(directory), load_model(original))


def test_shards_with_and_without_an_index(original, directory):
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, keys in shards.items():
        save_file({key: tensors[key] for key in keys}, directory / file)
    assert same_weights(load_model(directory), load_model(original))
    index = {"weight_map": {key: file for file, keys in shards.items() for key in keys}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert same_weights(load_model(directory), load_model(original))
    (directory / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="model-00002"):
        load_model(directory)


def test_a_stray_safetensors_file_does_not_displace_the_models_own(original, directory):
    """An adapter, for example. The reference implementation reads model.safetensors or pytorch_model.bin alone."""
    save_file({"lora.weight": torch.zeros(1)}, directory / "lora_weights.safetensors")
    assert same_weights(load_model(directory), load_model(original))
    torch.save(load_file(directory / "model.safetensors"), directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    assert same_weights(load_model(directory), load_model(original))


@pytest.mark.parametrize(
    "content", ["{", "{}", '{"weight_map": {"a": "../model.safetensors"}}', '{"weight_map": {"a": 1}}']
)
def test_an_index_that_is_damaged_or_points_outside_is_refused(directory, content):
    (directory / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match="index"):
        load_model(directory)


def test_a_weight_in_two_shards_is_refused(directory):
    shutil.copy(directory / "model.safetensors", directory / "model-00001-of-00002.safetensors")
    (directory / "model.safetensors").rename(directory / "model-00002-of-00002.safetensors")
    with pytest.raises(CheckpointError, match="in two files"):
        load_model(directory)


def to_pickles(directory: Path) -> None:
    torch.save(load_file(directory / "model.safetensors"), directory / "pytorch_model.bin")
    torch.save({"state_dict": load_file(directory / "audiovae.safetensors")}, directory / "audiovae.pth")
    for path in directory.glob("*.safetensors"):
        path.unlink()


def test_torch_files_load_like_safetensors(original, directory):
    to_pickles(directory)
    assert same_weights(load_model(directory), load_model(original))


def test_a_torch_file_never_runs_code(directory, tmp_path):
    to_pickles(directory)

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin cannot be read"):
        load_model(directory)
    assert not (tmp_path / "ran").exists()


def test_a_torch_file_over_the_cap_is_not_opened(directory, monkeypatch):
    to_pickles(directory)
    monkeypatch.setattr(weights, "MAX_PICKLE_BYTES", 100)
    with pytest.raises(CheckpointError, match="larger than 100 bytes"):
        load_model(directory)


@pytest.mark.parametrize("content", [[1], {}, {"epoch": 3}, {"state_dict": [1]}, {"state_dict": {"epoch": 3}}])
def test_a_torch_file_that_is_no_state_dict_is_refused(directory, content):
    to_pickles(directory)
    torch.save(content, directory / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="no state dict"):
        load_model(directory)


def test_what_a_trainer_left_beside_the_tensors_is_passed_over(original, directory):
    to_pickles(directory)
    for name, key in (("pytorch_model.bin", None), ("audiovae.pth", "state_dict")):
        content = torch.load(directory / name, weights_only=True)
        extras = {"epoch": 3, "args": {"lr": 1e-4}, "best": None, "_extra_state": [1, "two"], 7: torch.zeros(1)}
        (content if key is None else content[key]).update(extras)
        torch.save({**content, "optimizer": {"step": torch.zeros(1)}}, directory / name)
    assert same_weights(load_model(directory), load_model(original))


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of torch 2.11, when it reads the file
@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, lambda t: t.to("meta")])
def test_a_tensor_without_plain_values_is_refused_by_its_name(directory, make):
    to_pickles(directory)
    content = torch.load(directory / "pytorch_model.bin", weights_only=True)
    torch.save({**content, "stop_head.weight": make(content["stop_head.weight"])}, directory / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"stop_head\.weight of pytorch_model\.bin is no plain tensor"):
        load_model(directory)


@pytest.mark.parametrize("name", ["model.safetensors", "audiovae.safetensors"])
def test_missing_and_truncated_weight_files_are_named(directory, name):
    path = directory / name
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=name):
        load_model(directory)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"no (model|VAE) weights"):
        load_model(directory)


def test_half_precision_files_load_into_the_requested_type(directory):
    for name in ("model.safetensors", "audiovae.safetensors"):
        half = {key: t.half() if t.is_floating_point() else t for key, t in load_file(directory / name).items()}
        save_file(half, directory / name)
    loaded = load_model(directory)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    loaded = load_model(directory, dtype="bfloat16")
    assert loaded.model.dtype == torch.bfloat16
    # The VAE and the rotation tables stay exact.
    assert {parameter.dtype for parameter in loaded.model.vae.parameters()} == {torch.float32}
    assert loaded.model.base_lm.rope.cos.dtype == torch.float32
    with pytest.raises(CheckpointError, match="int3"):
        load_model(directory, dtype="int3")


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_saved_model_has_upstreams_names_and_loads_again(tmp_path, name):
    with safe_open(GOLDENS / f"{name}.safetensors", "pt") as file:
        shapes = json.loads(file.metadata()["shapes"])
    directory = write_checkpoint(tmp_path / "first", name, shapes)
    loaded = load_model(directory)
    copy = shutil.copytree(directory, tmp_path / "copy")
    save_weights(loaded.model, copy)
    saved = {f"audio_vae.{key}": t for key, t in load_file(copy / "audiovae.safetensors").items()}
    saved |= load_file(copy / "model.safetensors")
    assert {key: list(tensor.shape) for key, tensor in saved.items()} == shapes
    again = load_model(copy).model.state_dict()
    for key, tensor in loaded.model.state_dict().items():
        torch.testing.assert_close(again[key], tensor, atol=1e-6, rtol=1e-5)
    save_weights(loaded.model, copy, torch.float16)
    assert load_file(copy / "model.safetensors")["stop_head.weight"].dtype == torch.float16


def test_a_hub_id_is_downloaded(original, monkeypatch):
    calls = []

    def download(repo, **kwargs):
        calls.append(repo)
        return str(original)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    loaded = load_model("openbmb/VoxCPM2")
    assert calls == ["openbmb/VoxCPM2"]
    assert (loaded.name, loaded.path) == ("VoxCPM2", original)


@pytest.mark.parametrize("pickled", [False, True])
def test_of_a_repository_only_the_files_of_its_checkpoint_are_downloaded(directory, tmp_path, monkeypatch, pickled):
    """By the hub's own client: neither its card, nor what training left there, nor weights that are there twice."""
    if pickled:
        for safe, pickle in (("model.safetensors", "pytorch_model.bin"), ("audiovae.safetensors", "audiovae.pth")):
            torch.save(load_file(directory / safe), directory / pickle)
            (directory / safe).unlink()
    wanted = {path.name for path in directory.iterdir()}
    for extra in ("pytorch_model.bin", "audiovae.pth"):
        if not pickled:
            (directory / extra).write_text("the same weights again")
    for extra in ("README.md", "tokenizer_config.json", "optimizer.pth", "step_500/model.safetensors"):
        (directory / extra).parent.mkdir(exist_ok=True)
        (directory / extra).write_text("something else")
    code = "from realtime_tts.model.checkpoint import resolve_directory as r; print(r('openbmb/VoxCPM2'))"
    with hub_of(directory, "openbmb/VoxCPM2") as address:
        env = os.environ | {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(tmp_path / "hub"), "NO_PROXY": "127.0.0.1"}
        downloaded = Path(subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip())
    assert {path.name for path in downloaded.iterdir()} == wanted
    assert same_weights(load_model(downloaded), load_model(directory))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert resolve_directory("openbmb/VoxCPM2") == downloaded  # complete, though the repository has more files


def test_an_unknown_path_or_failed_download_is_a_checkpoint_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="could not be taken from the hub: Cannot find"):
        resolve_directory("nobody/nothing")
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file", "one-word"):
        with pytest.raises(CheckpointError, match="neither"):
            resolve_directory(path)


def test_the_starter_voice_loads():
    loaded = load_model(STARTER_DIRECTORY)
    assert loaded.name == STARTER_VOICE
    assert loaded.config.sample_rate == SAMPLE_RATE_HZ
    assert loaded.config.patch_samples == 0.16 * SAMPLE_RATE_HZ
    assert len(loaded.tokenizer.encode_trusted(f"<{DEFAULT_VOICE}>")) == 1


def test_nothing_is_drawn_only_to_be_overwritten(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device a drawn tensor makes torch load its compiler, or sympy."""
    drawn: list[str] = []

    def noting(name: str) -> Callable[..., torch.Tensor]:
        return lambda tensor, *rest, **named: (drawn.append(name), tensor)[1]

    for name in ("normal_", "uniform_"):
        monkeypatch.setattr(torch.Tensor, name, noting(name))
    for name in ("rand", "randn"):
        monkeypatch.setattr(torch, name, lambda *size, name=name: (drawn.append(name), torch.zeros(size))[1])
    torch.nn.Embedding(2, 2)
    assert drawn == ["normal_"]
    load_model(original)
    assert drawn == ["normal_"]

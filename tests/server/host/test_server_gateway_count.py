"""How many gateways a host has of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from realtime_tts.config import EngineConfig, ServerConfig, Settings
from realtime_tts.server.host import gateway_count as subject
from realtime_tts.server.host.gateway_count import GATEWAY_MS, GPU_STREAMS, WORKER_CORES, choose, gateway_count, has_gpu

FULL = -(-GPU_STREAMS * GATEWAY_MS // 1000)  # cores that feed all listeners of one GPU


@pytest.mark.parametrize(
    ("num_cores", "num_gpus", "max_streams", "number"),
    [
        (2, 0, 0, 1),
        (128, 0, 0, 1),
        (1, 1, 0, 1),
        (WORKER_CORES + 2, 1, 0, 2),
        (128, 1, 0, FULL),
        (128, 2, 0, -(-2 * GPU_STREAMS * GATEWAY_MS // 1000)),
        (WORKER_CORES * 8, 8, 0, 1),
        (128, 1, 32, 1),
        (128, 1, 4 * GPU_STREAMS, -(-4 * GPU_STREAMS * GATEWAY_MS // 1000)),
    ],
)
def test_as_many_as_the_listeners_need_of_the_cores_that_are_left(
    num_cores: int, num_gpus: int, max_streams: int, number: int
) -> None:
    assert choose(num_cores, num_gpus, max_streams).number == number


def test_the_reason_names_what_it_was_taken_from() -> None:
    taken = f"{GPU_STREAMS} streams of 1 GPU take {FULL:.0f} cores"
    assert choose(6, 1).reason == f"{taken}; of the 6 here, 4 are left beside the workers"
    assert choose(64, 2, 20).reason == "40 streams of 2 GPUs take 1 core"


@pytest.mark.parametrize(
    ("devices", "num_gpus"),
    [(("auto",), 1), (("cpu",), 0), (("cuda",), 1), (("cuda:0", "cuda:1"), 2), (("cuda:0", "cpu"), 1)],
)
def test_devices_are_counted_as_they_are_named(
    devices: tuple[str, ...], num_gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "has_gpu", lambda: True)
    monkeypatch.setattr(subject, "usable_cores", lambda: 1000)
    assert gateway_count(Settings(EngineConfig(devices=devices))) == choose(1000, num_gpus)


def test_a_number_that_is_given_holds() -> None:
    assert gateway_count(Settings(server=ServerConfig(gateways=7))).number == 7


def test_a_gpu_that_torch_cannot_use_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter([path / "nvidia0"]))
    monkeypatch.setattr(subject.importlib.metadata, "version", lambda name: "2.11.0+cu130")
    assert has_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not has_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(subject.importlib.metadata, "version", lambda name: "2.13.0+cpu")
    assert not has_gpu()

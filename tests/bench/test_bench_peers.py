"""The comparison's own parts; the peers themselves need a GPU and are not installed here."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import pytest
import torch

from benchmarks.peers.__main__ import lay_out, measure, missing, report
from benchmarks.peers.measure import burst
from benchmarks.peers.parity import Ours, distances, further
from benchmarks.peers.parity import report as parity_report
from benchmarks.peers.plot import draw, gather
from realtime_tts.model.checkpoint import load_model


class Metronome:
    """Speaks a piece every few moments."""

    at_once = 8

    async def start(self, model: Path, max_streams: int) -> None: ...

    async def speak(self, text: str, num_patches: int, seed: int):  # type: ignore[no-untyped-def]
        for _ in range(num_patches):
            yield 100 + seed

    async def stop(self) -> None: ...


async def test_a_burst_hears_everybody_out() -> None:
    streams, took_s = await burst(Metronome(), 3, 5, first_seed=10)
    assert [stream.num_samples for stream in streams] == [5 * 110, 5 * 111, 5 * 112]
    for stream in streams:
        assert stream.arrivals_s == sorted(stream.arrivals_s)
        assert len(stream.arrivals_s) == 5
        assert stream.arrivals_s[-1] <= took_s


def test_what_the_peers_read_is_the_same_checkpoint(tiny_directory: Path, tmp_path: Path) -> None:
    theirs = lay_out(tiny_directory, tmp_path / "theirs")
    assert not (theirs / "audiovae.safetensors").exists()
    ours, copy = load_model(tiny_directory).model.state_dict(), load_model(theirs).model.state_dict()
    assert ours.keys() == copy.keys()
    assert all(torch.equal(tensor, copy[name]) for name, tensor in ours.items())


def rows(step_ms: float, first_ms: float) -> dict[str, object]:
    first = {"p50": first_ms, "p95": first_ms}
    row = {"streams": 1, "step_ms": step_ms, "first_audio_ms": first, "samples_per_s": 96_000.0, "pieces": 40}
    return {"rows": [row]}


def test_ratios_are_to_ours_and_what_failed_says_why() -> None:
    text = report({"ours": rows(4.0, 10.0), "a peer": rows(12.0, 25.0), "another": {"failed": "no memory"}}, 48_000)
    ours, peer, failed = text.splitlines()[2:]
    assert ours.split()[-2:] == ["1.00", "1.00"]
    assert peer.split()[-2:] == ["3.00", "2.50"]
    assert "2.00" in peer  # times real time
    assert failed == "another: no memory"


def test_an_engine_is_drawn_as_it_did_last_and_ours_first(tmp_path: Path) -> None:
    earlier = {"results": {"a peer": rows(12.0, 25.0), "another": rows(20.0, 30.0), "failed": {"failed": "no memory"}}}
    engines = gather([earlier, {"results": {"a peer": rows(11.0, 24.0), "ours": rows(4.0, 10.0)}}])
    assert [(name, found[0]["step_ms"]) for name, found in engines.items()] == [
        ("ours", 4.0),
        ("a peer", 11.0),
        ("another", 20.0),
    ]
    draw(engines, [{"streams": 2, "step_ms": {"p50": 5.0}}], tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")


def test_only_what_is_not_there_is_missing() -> None:
    assert missing("ours") == []
    assert set(missing("nano-vllm-voxcpm, tuned")) <= {"nanovllm_voxcpm", "flash_attn"}


def test_what_an_engine_has_started_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that is not done in time leaves nothing on the device that the next one is measured on."""
    noted = tmp_path / "pid"
    script = tmp_path / "hangs"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {noted}\nwait\n")
    script.chmod(0o755)
    monkeypatch.setattr("benchmarks.peers.__main__.sys.executable", str(script))
    asked = argparse.Namespace(callers=[1], patches=1, runs=1, timeout_s=0.01)
    while not noted.exists() or not noted.read_text():  # until it was given the time to start something
        asked.timeout_s *= 4
        result = measure("ours", asked, tmp_path, dict(os.environ), tmp_path / "out.json")
    assert result == {"failed": f"not done after {asked.timeout_s:g} s"}
    child = int(noted.read_text())
    deadline_s = time.monotonic() + 20
    while is_alive(child):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_who_is_further_from_the_truth_than_the_reference_is_named() -> None:
    truth = [torch.ones(2, 1, 4), torch.full((2, 1, 4), 2.0)]

    def away(first: float, second: float) -> dict[str, object]:
        off = torch.tensor([1 + first, 1 + second])[:, None, None]
        return {"patches": distances([patches * off for patches in truth], truth), "audio": 0.01}

    results = {
        "reference, bfloat16": away(0.02, 0.04),
        "nearer": away(0.01, 0.03),
        "further at first": away(0.021, 0.03),
        "further later": away(0.01, 0.06),
    }
    assert torch.allclose(results["nearer"]["patches"], torch.tensor([[0.01, 0.03]] * 2), atol=1e-6)  # type: ignore[arg-type]
    assert further(results) == ["further at first", "further later"]
    assert "2.00%" in parity_report(results)


def test_the_truth_takes_the_place_of_what_was_made(tiny_directory: Path) -> None:
    """Ours makes each patch from the true ones before it, whoever is in the batch with it, and says what it made."""
    ours = Ours(tiny_directory, "cpu", max_streams=4)
    texts, generator = ["one two three four", "five six"], torch.Generator().manual_seed(0)
    shape = ours.engine.runner.outputs.patches.shape[1:]
    truth = [torch.randn(3, *shape, generator=generator) for _ in texts]
    other = [patches.clone() for patches in truth]
    other[0][1] += 1.0
    alone, audio = ours.speak(texts, truth, 1)
    together, _ = ours.speak(texts, truth, 4)
    changed, changed_audio = ours.speak(texts, other, 1)
    assert float(distances(together, alone).max()) < 0.01
    assert torch.equal(changed[1], alone[1])
    assert torch.equal(changed[0][:2], alone[0][:2])
    assert not torch.equal(changed[0][2], alone[0][2])
    assert [len(samples) for samples in audio] == [len(samples) for samples in changed_audio]
    assert not torch.equal(changed_audio[0], audio[0])

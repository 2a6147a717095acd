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
from realtime_tts.model.checkpoint import load_model


class Metronome:
    """Speaks a piece every few moments."""

    at_once = 8

    async def start(self, model: Path, max_streams: int) -> None: ...

    async def speak(self, text: str, num_patches: int, seed: int):  # type: ignore[no-untyped-def]
        for _ in range(num_patches):
            yield 100 + seed

    async def stop(self) -> None: ...


async def test_a_burst_receives_each_stream_to_its_end() -> None:
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

"""The bench of the host's work: all are spoken to, in real time by its clock, and every part of a step is timed."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from benchmarks.host_work import PARTS, _on_a_loop, report
from realtime_tts.bench.checkpoint import write_random_checkpoint
from realtime_tts.bench.subject import Subject
from realtime_tts.engine.setup import EngineOptions


def test_parts_of_steps_with_many_listeners_are_timed(tmp_path: Path) -> None:
    write_random_checkpoint(tmp_path / "hollow", "hollow")
    options = EngineOptions(model=str(tmp_path / "hollow"), device="cpu", max_streams=8, num_blocks=80)
    asked = argparse.Namespace(
        contexts=6, fixed_ms=10.0, per_stream_ms=0.15, report_s=0.5, settle_s=2.0, steps=40, seed=0, full_streams=128
    )
    found = asyncio.run(_on_a_loop(Subject.load(options), asked))
    assert {len(values) for values in found.values()} == {40}
    for part in set(PARTS) - {"look ahead"}:
        assert sum(found[part]) > 0, part
    assert max(found["active"]) == 6
    assert 0 < max(found["streams"]) <= 12  # two steps may be launched in one call
    assert report(found).splitlines()[-1].startswith("all ")

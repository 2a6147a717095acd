"""The examples of the README run as they are pasted."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest
from client_fake_server import Voice, scripted

CLIENT = Path(__file__).resolve().parents[3] / "clients/python"
EXAMPLES = re.findall(r"```python\n(.*?)```", (CLIENT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize("example", EXAMPLES, ids=["all at once", "streaming", "barge-in", "hold"])
async def test_an_example_runs(example: str, tmp_path: Path) -> None:
    async with scripted(Voice(num_frames=60)) as (url, connections):
        (tmp_path / "example.py").write_text(example.replace("ws://localhost:8000", url), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "example.py",
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(CLIENT / "src")},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, errors.decode()
        assert output or (tmp_path / "hello.wav").stat().st_size == 44 + 60 * 320
        assert connections[0].socket.close_code == 1000

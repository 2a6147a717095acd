"""The playground's programs for LiveKit and Pipecat run as they are pasted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from server_environment import ROOT

WRITE = """
import { PROGRAMS } from %s;
const values = { text: 'It is "half past nine".', seed: '7', steps: '4', speed: '1.2', language: 'en' };
const settings = new URLSearchParams(values);
console.log(PROGRAMS[process.argv[1]].write({ base: process.argv[2], model: 'm', settings, hasKey: false }));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize("kind", ["livekit", "pipecat"])
def test_a_program_makes_a_file(kind: str, fake_gateway: str, tmp_path: Path) -> None:
    source = WRITE % json.dumps((ROOT / "clients/browser/code.js").as_uri())
    base = fake_gateway.replace("ws", "http", 1)
    node = ["node", "--input-type=module", "-e", source, kind, base.removesuffix("/")]
    program = subprocess.run(node, capture_output=True, text=True, check=True, timeout=60).stdout
    assert program.rstrip().endswith("# Not available in this plugin: speed.")
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stderr
    with wave.open(str(tmp_path / "speech.wav")) as file:
        assert file.getnframes() / file.getframerate() > 0.5

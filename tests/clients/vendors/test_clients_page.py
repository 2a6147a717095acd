"""The programs on docs/guides/clients.md run as they stand, against another address."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from server_environment import ROOT
from vendor_gateways import run_node

HERE = Path(__file__).parent
PAGE = (ROOT / "docs/guides/clients.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE)
JAVASCRIPT = [block for block in re.findall(r"(?ms)^```js\n(.*?)^```", PAGE) if "@ai-sdk" not in block]


RUN_EACH = """
import os, runpy, sys
for folder in sys.argv[1:]:
    os.chdir(folder)
    runpy.run_path("program.py")
"""


def test_each_service_has_its_programs() -> None:
    assert (len(PYTHON), len(JAVASCRIPT)) == (9, 2)


def test_python(fake_gateway: str, tmp_path: Path) -> None:
    """All in one process, as LiveKit's and Pipecat's packages take seconds to load; each in a folder of its own."""
    programs = [block.replace("localhost:8000", fake_gateway.removeprefix("http://")) for block in PYTHON]
    folders = [tmp_path / str(number) for number in range(len(programs))]
    for folder, program in zip(folders, programs, strict=True):
        folder.mkdir()
        (folder / "program.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-c", RUN_EACH, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for folder, program in zip(folders, programs, strict=True):
        assert [made.stat().st_size > 1000 for made in folder.glob("hello.*")] == [True] * program.count('"hello.')


@pytest.mark.parametrize("block", JAVASCRIPT, ids=["openai", "elevenlabs"])
def test_javascript(block: str, fake_gateway: str, tmp_path: Path) -> None:
    """Node.js looks for packages beside the program."""
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules")
    program = tmp_path / "program.mjs"
    made = tmp_path / "hello.mp3"
    here = block.replace("localhost:8000", fake_gateway.removeprefix("http://")).replace("hello.mp3", str(made))
    program.write_text(here + 'console.log("{}");\n', encoding="utf-8")
    run_node(program)
    assert made.stat().st_size > 1000

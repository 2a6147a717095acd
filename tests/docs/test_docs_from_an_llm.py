"""The programs of docs/guides/from-an-llm.md, run as they are pasted, between a scripted LLM and a gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from gateway_harness import GatewayHarness
from scripted_llm import ScriptedLLM, pieces

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/guides/from-an-llm.md").read_text(encoding="utf-8")
WHOLE, ANSWER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROGRAMS = {
    "OpenAI": WHOLE,
    "Anthropic": re.sub(
        r"from openai .*\n", "", re.sub(r"async def answer.*?\n\n\n", f"{ANSWER}\n\n", WHOLE, flags=re.DOTALL)
    ),
}
READ_S = 30.0
CHARS_PER_PATCH = 30
PATCH_BYTES = 24_000 * 2 * 160 // 1000

SOUND_CARD = """
def RawOutputStream(rate_hz, *, channels, dtype):
    assert (rate_hz, channels, dtype) == (24_000, 1, "int16")
    return open("played.raw", "wb")
"""

FIRST = "The sky is blue because air scatters short waves most. And then"
REST = " the evening is red, for the same reason. That is all!"


@pytest.fixture(scope="module")
def gateway() -> Iterator[GatewayHarness]:
    with GatewayHarness(worker={"patch_delay_s": 0.002, "chars_per_patch": CHARS_PER_PATCH}) as harness:
        yield harness


@contextlib.asynccontextmanager
async def running(
    program: str, directory: Path, llm_url: str, *arguments: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program of the page as a process. What its sound card plays is in the directory's `played.raw`."""
    (directory / "sounddevice.py").write_text(SOUND_CARD, encoding="utf-8")
    (directory / "program.py").write_text(program, encoding="utf-8")
    without_proxies = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment = {
        "PYTHONPATH": str(ROOT / "clients/python/src"),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{llm_url}/v1",
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": llm_url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "program.py",
        *arguments,
        cwd=directory,
        env={**without_proxies, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def for_gateway(program: str, gateway: GatewayHarness) -> str:
    assert program.count("ws://localhost:8000") == 1
    return program.replace("ws://localhost:8000", gateway.url.replace("http", "ws", 1))


@pytest.mark.parametrize("arguments", [(), ("answer.wav",)], ids=["sound card", "file"])
@pytest.mark.parametrize("name", PROGRAMS)
async def test_speech_begins_before_the_model_has_finished(
    name: str, arguments: tuple[str, ...], gateway: GatewayHarness, tmp_path: Path
) -> None:
    llm = ScriptedLLM(list(pieces(FIRST)), list(pieces(REST)))
    async with llm.running(), running(for_gateway(PROGRAMS[name], gateway), tmp_path, llm.url, *arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        heard = await asyncio.wait_for(process.stdout.readuntil(b" "), READ_S)
        assert (heard, llm.events) == (b"The ", ["asked"]), "the model has not been told to go on yet"
        llm.go_on.set()
        rest = await asyncio.wait_for(process.stdout.read(), READ_S)
        errors = await process.stderr.read()
        assert await process.wait() == 0, errors.decode()
    assert (heard + rest).decode().split() == (FIRST + REST).split()
    if arguments:
        with wave.open(str(tmp_path / "answer.wav")) as file:
            assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (24_000, 2, 1)
            samples = file.readframes(file.getnframes())
    else:
        samples = (tmp_path / "played.raw").read_bytes()
    assert len(samples) >= len(FIRST + REST) // CHARS_PER_PATCH * PATCH_BYTES
    assert any(samples), "it is not silence"
    assert llm.events == ["asked", "finished"]
    assert llm.questions == ["Why is the sky blue?"]


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_barge_in_ends_the_models_stream(name: str, gateway: GatewayHarness, tmp_path: Path) -> None:
    """The program leaves the loop at the first word, as it would when the listener speaks."""
    loop = re.compile(r"( +)async for packet in (session\.speak\(.*\)):.*\n.*\n.*\n.*\n")
    barge_in = "\\1context = \\2\n\\1await anext(aiter(context))\n\\1print((await context.cancel()).chars)\n"
    program, count = loop.subn(barge_in, for_gateway(PROGRAMS[name], gateway))
    assert count == 1
    llm = ScriptedLLM(list(pieces(FIRST)), list(pieces(REST)))
    async with llm.running(), running(program, tmp_path, llm.url) as process:
        output, errors = await asyncio.wait_for(process.communicate(), READ_S)
        await asyncio.wait_for(llm.ended.wait(), READ_S)
        assert (process.returncode, errors.decode()) == (0, "")
    assert int(output) < len(FIRST)
    assert llm.events == ["asked", "hung up"]

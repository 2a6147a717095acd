"""The phone bot called by a real Asterisk, if one with chan_websocket is installed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bot_serving import listening
from phone_carriers import Asterisk
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from conversation import History
from phone_bot import Bot

pytestmark = pytest.mark.slow

LONG = " ".join(["I could go on about this for a very long time, as nobody has asked me to stop yet."] * 4)
# `quiet`, `loud` and `listening` are what the caller says; `heard` is what the caller hears.
FILES = {
    "modules.conf": "[modules]\nautoload = yes\n",
    "websocket_client.conf": "[bot]\ntype = websocket_client\nconnection_type = per_call_config\n"
    "uri = ws://{host}/media/asterisk\nprotocols = media\n",
    "extensions.conf": """[phones]
exten = caller,1,MixMonitor({directory}/mixed.ulaw,r({directory}/heard.ulaw))
 same = n,Playback({directory}/quiet&{directory}/loud&{directory}/listening)
""",
    "asterisk.conf": "[directories]\n"
    + "".join(
        f"{name} => {{directory}}\n" for name in ("astetcdir", "astdbdir", "astspooldir", "astrundir", "astlogdir")
    ),
}


@contextlib.asynccontextmanager
async def asterisk(host: str) -> AsyncIterator[tuple[list[str], Path]]:
    """Yield a command for Asterisk's console, and the directory of its files."""
    program = shutil.which(
        "asterisk", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    )
    if program is None:
        pytest.skip("needs asterisk 20.18, 22.8, 23.2 or later")
    with tempfile.TemporaryDirectory(prefix="asterisk") as name:  # a short path, for its socket
        directory = Path(name)
        for file, text in FILES.items():
            (directory / file).write_text(text.replace("{directory}", name).replace("{host}", host))
        (directory / "quiet.ulaw").write_bytes(Asterisk.silence * 200)
        (directory / "loud.ulaw").write_bytes(Asterisk.loud * 50)
        (directory / "listening.ulaw").write_bytes(Asterisk.silence * 6_000)
        command = [program, "-C", str(directory / "asterisk.conf")]
        process = await asyncio.create_subprocess_exec(*command, "-f", stdout=asyncio.subprocess.DEVNULL)
        try:
            async with asyncio.timeout(60):
                while "fully booted" not in await run([*command, "-rx", "core waitfullybooted"]):
                    assert process.returncode is None
                    await asyncio.sleep(0.1)
            if "WebSocket" not in await run([*command, "-rx", "core show channeltypes"]):
                pytest.skip("needs an asterisk with chan_websocket")
            yield command, directory
        finally:
            process.terminate()
            await process.wait()


async def run(command: list[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    return (await process.communicate())[0].decode()


async def test_asterisk_plays_a_turn_until_it_is_interrupted_and_the_next_one(fake_gateway: str) -> None:
    async def answer(history: History) -> AsyncIterator[str]:
        for word in (LONG if not history else "As you say.").split(" "):
            yield word + " "

    bot = Bot(fake_gateway, answer=answer)
    async with listening(bot.application()) as host, asterisk(host) as (command, directory), asyncio.timeout(60):
        await run([*command, "-rx", "channel originate WebSocket/bot/c(ulaw)f(json) extension caller@phones"])
        await until(lambda: bot.calls)
        [call] = bot.calls
        await until(lambda: len(call.history) == 3)
        await run([*command, "-rx", "channel request hangup all"])
        await until(lambda: not bot.calls)
        audio = np.frombuffer((directory / "heard.ulaw").read_bytes(), np.uint8)
    heard = call.history[0]["content"]
    assert LONG.startswith(heard)
    assert call.history[1:] == [
        {"role": "user", "content": "(speech)"},
        {"role": "assistant", "content": "As you say. "},
    ]
    assert 0 < len(heard) < len(LONG)
    # The recorder drops audio when it is late, so it proves only that the bot was heard.
    assert (audio != 0xFF).any()


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)

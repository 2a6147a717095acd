"""LiveKit's tests of speech plugins, run on this plugin. They are in its repository and need the tested services.

    git clone --depth 1 https://github.com/livekit/agents /tmp/livekit-agents
    SERVER_PYTHON=.venv/bin/python .venv-agents/bin/python -m tests.agents.livekit_suite /tmp/livekit-agents

`make test-livekit-suite` does both, with the tag of the release that is installed. Of tests/test_tts.py the tests that
take a plugin are run, unchanged. In place of the services stands our plugin at a server with the starter voice; in
place of Toxiproxy a proxy in this process; what was spoken is recognised afterwards, and by pocketsphinx.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
import types
import urllib.request
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jiwer
import livekit.plugins
import numpy as np
import pytest
from livekit import rtc
from livekit.plugins import realtime_tts

from benchmarks.recognition import Recogniser

VOICE = "michael"  # of the starter's voices the one that pocketsphinx understands best
MAX_ERROR_RATE = 0.3  # pocketsphinx errs on every voice; theirs, for Deepgram, is 0.2
OTHERS = (
    *("aws", "azure", "bland", "cartesia", "deepgram", "elevenlabs", "fishaudio", "google", "groq", "hume", "inworld"),
    *("lmnt", "minimax", "mistralai", "neuphonic", "nvidia", "openai", "resemble", "rime", "smallestai", "speechify"),
    *("spitch", "upliftai"),
)


class Proxy:
    """Proxy in front of the server that forwards all data or none."""

    def __init__(self, upstream_port: int) -> None:
        self.holds_back = False
        self._upstream_port = upstream_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._upstream_port))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.holds_back:
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def add_toxic(self, **toxic: Any) -> None:
        """Add a toxic, with Toxiproxy's interface: a timeout of 0 forwards nothing and never ends."""
        if toxic != {"type": "timeout", "attributes": {"timeout": 0}}:
            raise NotImplementedError(toxic)
        self.holds_back = True


class StandIns:
    """Pytest plugin that substitutes this TTS for the plugins of LiveKit's tests."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._spoken: list[tuple[np.ndarray[Any, Any], int, str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> Generator[None, None, None]:
        """Replace the services in the tests' `parametrize` by this plugin."""
        for mark in metafunc.definition.iter_markers("parametrize"):
            if mark.args[0] == "tts_factory":
                mark.args[1][:] = [pytest.param(self._factory, id="realtime_tts")]
        metafunc.module.assert_valid_synthesized_audio = self._assert_valid
        metafunc.module.Toxiproxy.create = lambda toxiproxy, *given, **options: self._renewed()
        metafunc.module.Toxiproxy.running = lambda toxiproxy: False
        return (yield)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "tts_factory" in getattr(item, "fixturenames", ())]

    def _renewed(self) -> Proxy:
        self._proxy.holds_back = False
        return self._proxy

    def _factory(self) -> dict[str, Any]:
        url = f"ws://127.0.0.1:{self._proxy.port}"
        return {"tts": realtime_tts.TTS(url, voice=VOICE), "proxy-upstream": "the server"}

    async def _assert_valid(self, *, frames: Any, text: str, sample_rate: int, num_channels: int) -> None:
        """Check as the original: PCM of the plugin's rate. Recognition runs later: the tests have a limit of 30 s."""
        frame = rtc.combine_audio_frames(frames)
        assert (frame.sample_rate, frame.num_channels) == (sample_rate, num_channels) == (sample_rate, 1)
        self._spoken.append((np.frombuffer(frame.data, np.int16), sample_rate, text))

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
        self._spoken.clear()
        result = yield
        for samples, rate_hz, text in self._spoken:
            heard = Recogniser().transcribe(samples, rate_hz)
            share = error_rate(heard, text)
            assert share <= MAX_ERROR_RATE, f"word error rate {share:.2f}: {heard}"
        return result


def stand_in_for_imports() -> None:
    """Replace plugins that are not installed, and a tokenizer that would download its tables."""
    for name in OTHERS:
        setattr(livekit.plugins, name, types.ModuleType(name))
    tokenizer = types.SimpleNamespace(encode=lambda text: re.findall(r"\s*\S{1,6}", text), decode="".join)
    sys.modules["tiktoken"] = types.ModuleType("tiktoken")
    sys.modules["tiktoken"].encoding_for_model = lambda model: tokenizer  # type: ignore[attr-defined]


def error_rate(heard: str, text: str) -> float:
    plain = [" ".join(re.findall(r"[a-z']+", one.lower())) for one in (text, heard)]
    return float(jiwer.wer(*plain))


@contextlib.contextmanager
def running_speech() -> Iterator[str]:
    """Yield the address of a server with the starter voice, in the environment of SERVER_PYTHON."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    python = os.environ.get("SERVER_PYTHON", ".venv/bin/python")
    with subprocess.Popen([python, "-m", "realtime_tts", "serve", f"--port={port}", "--log-level=error"]) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
                    break
                time.sleep(0.1)
            yield f"ws://127.0.0.1:{port}"
        finally:
            process.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path, help="of github.com/livekit/agents")
    options, others = parser.parse_known_args()
    stand_in_for_imports()
    arguments = ["tests/test_tts.py", "-o", "addopts=", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", *others]
    with running_speech() as url:
        os.chdir(options.clone)
        sys.path.insert(0, str(options.clone))
        return int(pytest.main(arguments, plugins=[StandIns(Proxy(urlsplit(url).port or 80))]))


if __name__ == "__main__":
    sys.exit(main())

"""Once a server is ready, no client makes it load modules, which would hold up its event loop."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import httpx
import pytest
from server_processes import ServerProcess
from spoken_recordings import said, wav
from stream_client import open_stream

PATIENT_S = 60.0


async def test_the_first_client_of_each_kind_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELL_IMPORTS", "1")
    log = tmp_path / "log.txt"
    server = ServerProcess(log, max_late_ms=0, voices_dir=str(tmp_path / "voices"))
    try:
        async with open_stream(server.ws_url) as client:
            await client.speak("c", "It costs $12 on 3/4/2020.", params={"speed": 1.5, "volume": 0.5})
            assert (await client.until_terminal("c", PATIENT_S))["type"] == "context.done"
        async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=PATIENT_S) as http:
            for address in ("/", "/docs", "/openapi.json", "/metrics", "/v1/models", "/v1/voices/slt/preview"):
                assert (await http.get(address)).status_code == 200
            files, fields = {"reference": ("r.wav", wav(said("slt")))}, {"name": "mine", "consent": "true"}
            assert (await http.post("/v1/voices", files=files, data=fields)).status_code == 201
            speech = await http.post("/v1/audio/speech", json={"input": "Hello.", "response_format": "pcm"})
            assert speech.status_code == 200
        assert re.findall(r"^loading .*", log.read_text(), re.MULTILINE) == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENT_S) == 0
    finally:
        server.close()

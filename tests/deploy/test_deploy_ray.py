"""`deploy.ray` on one machine, deployed from the shipped file: replicas under load while one is added, one is lost, and
all are started anew. Once with a worker without a model, and once with the starter voice.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray_cluster import PATIENCE_S, ROOT, RayCluster
from stream_client import open_stream as open_client
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from realtime_tts.bench.native_stream import code_of, open_stream, speak
from realtime_tts.bench.streams import Heard
from realtime_tts.bench.texts import turn
from realtime_tts.server.admission.auth import create_key

DRAIN_S = 60.0
# What a client may be told to try again; `connection_lost` is a socket that broke.
RETRYABLE = {"overloaded", "draining", "engine_lost", "connection_lost"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif("RAY_PYTHON" not in os.environ, reason="needs RAY_PYTHON"),
]

Outcomes = collections.Counter[str]  # code, "" of speech that was heard out → how many


class Listeners:
    """So many clients that request one turn after another until they are stopped."""

    def __init__(self, url: str, key: str, number: int, num_words: int) -> None:
        self.outcomes = Outcomes()
        self.not_retryable: list[Any] = []
        self._url, self._key, self._num_words = url, key, num_words
        self._is_enough = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._listen(number)))

    def __enter__(self) -> Listeners:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_enough.set()
        self._thread.join()

    def until_heard(self, number: int) -> None:
        """So many more turns were heard out, which is the proof that all goes on."""
        end_s = time.monotonic() + PATIENCE_S
        wanted = self.outcomes[""] + number
        while self.outcomes[""] < wanted:
            assert time.monotonic() < end_s, self.outcomes
            time.sleep(0.1)

    async def _listen(self, number: int) -> None:
        await asyncio.gather(*(self._caller(one) for one in range(number)))

    async def _caller(self, number: int) -> None:
        socket: ClientConnection | None = None
        num_turns = 0
        while not self._is_enough.is_set():
            num_turns += 1
            try:
                if socket is None:
                    socket = await open_stream(self._url, api_key=self._key)
                text = turn(self._num_words, 1000 * number + num_turns)
                spoken = await speak(socket, f"turn-{num_turns}", text)
                self._note(spoken.error, spoken)
                if spoken.error:
                    await asyncio.sleep(0.5)
            except (OSError, WebSocketException, EOFError) as error:
                self._note(code_of(error), error)
                socket = None
                await asyncio.sleep(0.5)
        if socket is not None:
            await socket.close()

    def _note(self, code: str, what: Heard | Exception) -> None:
        self.outcomes[code] += 1
        if code and not is_retryable(what):
            self.not_retryable.append(what)


def is_retryable(what: Heard | Exception) -> bool:
    """As it says itself; a connection that was closed in order, or broke, is always made anew."""
    if isinstance(what, Heard):
        return what.terminal.get("retryable") is True
    if isinstance(what, InvalidStatus):
        with contextlib.suppress(ValueError):
            return json.loads(what.response.body or b"")["retryable"] is True
    return isinstance(what, ConnectionClosed) and (what.rcvd is None or what.rcvd.code in (1001, 1013))


class Speaking(RayCluster):
    """A cluster with listeners: `number` of them are more than a third of one replica's streams."""

    def __init__(self, temporary: Path, number: int, num_words: int, num_cores: int = 8, **options: Any) -> None:
        self.key, key_hash = create_key()
        keys, secret = temporary / "keys.txt", temporary / "token-secret.txt"
        keys.write_text(key_hash + "\n")
        secret.write_text(secrets.token_urlsafe(32))
        settings = {
            "REALTIME_TTS_API_KEY_FILE": str(keys),
            "REALTIME_TTS_TOKEN_SECRET_FILE": str(secret),
            "REALTIME_TTS_MODEL": "starter-voice",
            "REALTIME_TTS_GATEWAYS": "1",  # however many cores there are
            **options.pop("settings", {}),
        }
        super().__init__(
            {
                "settings": settings,
                "num_cpus": 0.1,
                "min_replicas": 1,
                "max_replicas": 2,
                "target": 0.3,
                "look_back_s": 12,
                "upscale_delay_s": 1,
                "downscale_delay_s": 900,
                "drain_s": DRAIN_S,
                **options,
            },
            num_cores,
        )
        self._number, self._num_words = number, num_words

    def load(self, act: Callable[[], None]) -> Outcomes:
        """Return the outcomes of all turns; `act` is called in mid-speech, and what comes after it is heard, too."""
        with Listeners(self.stream_url, self.key, self._number, self._num_words) as listeners:
            listeners.until_heard(self._number)
            act()
            listeners.until_heard(2 * self._number)
        sys.stdout.write(f"{dict(listeners.outcomes)}\n")
        assert not listeners.not_retryable
        return listeners.outcomes


def fake_options(temporary: Path) -> dict[str, Any]:
    script = ROOT / "tests/support/serve_fake.py"
    worker = {"max_streams": 8, "chars_per_patch": 4}
    return {
        "number": 8,
        "num_words": 20,
        "command": [sys.executable, str(script), '{"max_late_ms": 0}', json.dumps(worker)],
        "settings": {"PYTHONPATH": os.pathsep.join([str(ROOT), str(script.parent)]), "TMPDIR": str(temporary)},
    }


def starter_options(temporary: Path) -> dict[str, Any]:
    """By the server of Ray's own environment."""
    settings = {"REALTIME_TTS_MAX_STREAMS": "4", "REALTIME_TTS_MAX_LATE_MS": "0", "TMPDIR": str(temporary)}
    return {"number": 3, "num_words": 8, "settings": settings}


def test_the_front_starts_where_the_replicas_have_every_core(tmp_path: Path) -> None:
    cluster = Speaking(tmp_path, **fake_options(tmp_path), num_cores=2, num_cpus=1.0, min_replicas=2)
    try:
        cluster.deploy("1")
        cluster.until_running(2)
    finally:
        cluster.close()


@pytest.fixture(scope="module", params=[fake_options, starter_options], ids=["fake-worker", "starter-voice"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Speaking]:
    temporary = tmp_path_factory.mktemp("ray")
    running = Speaking(temporary, **request.param(temporary))
    try:
        running.deploy("1")
        running.until_running(1)
        yield running
    finally:
        running.close()


def test_a_load_brings_a_second_replica(cluster: Speaking) -> None:
    outcomes = cluster.load(lambda: cluster.until_running(2))
    assert outcomes.keys() <= {"", "overloaded"}


async def test_a_sticky_client_comes_back_to_its_session(cluster: Speaking) -> None:
    """By chance alone all eight would in one of 256 runs."""
    headers = {"Authorization": f"Bearer {cluster.key}"}
    for number in range(8):
        url = f"{cluster.stream_url}?sticky=caller-{number}"
        async with open_client(url, additional_headers=headers) as client:
            await client.send("session.start")
            session_id = (await client.until("session.started", PATIENCE_S))["session_id"]
            client.socket.transport.abort()
        async with open_client(f"{url}&resume={session_id}", additional_headers=headers) as client:
            await client.send("session.resume", session_id=session_id, contexts={})
            answer = await client.until(lambda message: message["type"] in ("session.resumed", "error"), PATIENCE_S)
            assert answer["type"] == "session.resumed"


def test_no_stream_is_lost_when_a_replica_is_killed(cluster: Speaking) -> None:
    """Its server is told by the kernel, and lets its listeners hear all; another replica comes."""
    killed: list[int] = []

    def kill() -> None:
        killed.append(cluster.busiest())
        os.kill(cluster.servers()[killed[0]], signal.SIGKILL)
        cluster.until(lambda: killed[0] not in cluster.servers())
        cluster.until_running(2)

    outcomes = cluster.load(kill)
    assert outcomes.keys() <= {"", "overloaded", "draining"}


def test_a_server_that_dies_takes_its_own_listeners_alone(cluster: Speaking) -> None:
    killed: list[int] = []
    held: list[float] = []

    def kill() -> None:
        killed.append(cluster.busiest())
        held.append(cluster.num_sessions(killed[0]))
        os.kill(killed[0], signal.SIGKILL)
        cluster.until(lambda: killed[0] not in cluster.servers())
        cluster.until_running(2)

    outcomes = cluster.load(kill)
    assert 0 < outcomes["connection_lost"] <= held[0]
    assert outcomes.keys() <= RETRYABLE | {""}


def test_all_are_started_anew_while_they_speak(cluster: Speaking) -> None:
    """What was begun at an old server is heard there to its end."""
    before = cluster.servers()

    def start_anew() -> None:
        cluster.deploy("2")
        cluster.until(lambda: not before.keys() & cluster.servers().keys(), PATIENCE_S + 2 * DRAIN_S)
        cluster.until_running(2)

    outcomes = cluster.load(start_anew)
    assert outcomes.keys() <= {"", "overloaded", "draining"}

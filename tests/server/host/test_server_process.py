"""Several gateways of one host: its clients notice neither which one serves them nor that another one dies."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import httpx
import pytest
import realtime_tts_client as speech
from client_harness import until
from fake_worker import fake_worker_command
from server_processes import ServerProcess
from spoken_recordings import said, wav
from stream_client import TERMINAL, StreamClient, open_stream
from websockets.exceptions import InvalidHandshake, InvalidStatus

from realtime_tts.config import ServerConfig, Settings, SpeechConfig, VoicesConfig
from realtime_tts.errors import ConfigError
from realtime_tts.server.host.process import Host
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.socket_directory import SocketDirectory, clear_leftovers
from realtime_tts.workers.supervisor import WorkerSpec

NUM_GATEWAYS = 4
PATIENT_S = 60.0  # for what a busy machine may delay
PCM = {"codec": "pcm_s16le", "sample_rate": 16000, "frame_ms": 20}
TEXT = "one two three four five six seven eight nine ten. eleven twelve thirteen fourteen fifteen sixteen. "


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("host")
    for name in ("early", "late"):
        (directory / "adapters" / name).mkdir(parents=True)
    server = ServerProcess(
        directory / "log.txt",
        worker={"patch_delay_s": 0.01, "text_lag_ms": 100, "num_workers": 2},
        gateways=NUM_GATEWAYS,
        max_late_ms=0,
        voices_dir="none",
        max_sessions=16,
        fair_share_from=1,
        adapters_dir=str(directory / "adapters"),
    )
    yield server
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENT_S) == 0
    server.close()


async def start_session(client: StreamClient) -> str:
    await client.send("session.start")
    session_id: str = (await client.until("session.started", PATIENT_S))["session_id"]
    return session_id


def index_of(session_id: str | None) -> int:
    """Which gateway a session is at."""
    assert session_id is not None
    return int(session_id[1 : session_id.index("_")])


def new_connections(host: ServerProcess) -> httpx.AsyncClient:
    """Each request is made of any gateway."""
    return httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=PATIENT_S, headers={"connection": "close"})


async def metric(host: ServerProcess, name: str) -> float:
    """Summed over its labels; asked on a new connection, thus of any gateway."""
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=PATIENT_S) as http:
        lines = (await http.get("/metrics")).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"realtime_tts_{name}"))


async def until_free(host: ServerProcess) -> None:
    """No session of an earlier test is left."""
    end = time.monotonic() + PATIENT_S
    async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=PATIENT_S) as http:
        while (await http.get("/readyz")).json().get("sessions") != 0:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)


async def test_connections_are_dealt_evenly(host: ServerProcess) -> None:
    await until_free(host)
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_stream(host.ws_url)) for _ in range(2 * NUM_GATEWAYS)]
        sessions = [await start_session(client) for client in clients]
    assert Counter(map(index_of, sessions)) == dict.fromkeys(range(NUM_GATEWAYS), 2)


async def test_a_resume_that_reaches_another_gateway_loses_and_doubles_nothing(host: ServerProcess) -> None:
    async with open_stream(host.ws_url) as client:
        await client.speak("c", TEXT, audio=PCM, params={"seed": 3})
        await client.until_terminal("c", PATIENT_S)
        whole = client.contexts["c"].audio
    resumed_before = await metric(host, "sessions_resumed_total")
    async with open_stream(host.ws_url) as first, open_stream(host.ws_url) as second:
        elsewhere = index_of(await start_session(second))
        session_id = await start_session(first)
        assert index_of(session_id) != elsewhere
        await first.speak("c", TEXT, audio=PCM, params={"seed": 3})
        for _ in range(5):
            await first.until("audio", PATIENT_S)
        log = copy.deepcopy(first.contexts["c"])
        # The old connection still counts, so this one is dealt to a third gateway.
        async with open_stream(f"{host.ws_url}?resume={session_id}") as again:
            again.contexts["c"] = log
            await again.send("session.resume", session_id=session_id, contexts={"c": log.next_sequence - 1})
            await again.send("ping")
            resumed = await again.until("session.resumed", PATIENT_S)
            assert resumed["contexts"][0]["state"] == "open"
            await again.until_terminal("c", PATIENT_S)
            assert "pong" in [message["type"] for message in again.messages]
            await again.speak("d", "hello there.")
            await again.until_terminal("d", PATIENT_S)
        assert (await first.until_closed(PATIENT_S))[0] == 1008
    assert log.audio == whole
    assert await metric(host, "sessions_resumed_total") == resumed_before + 1


@pytest.mark.parametrize("query", ["?resume=", "?sticky=1&resume=", "?not="])
async def test_what_no_gateway_has_cannot_be_resumed(host: ServerProcess, query: str) -> None:
    for session_id in ("s3_nobody", "s99_nobody", "s../x_nobody", "nobody", "s0_"):
        async with open_stream(f"{host.ws_url}{query}{session_id}") as client:
            await client.send("session.resume", session_id=session_id, contexts={})
            assert (await client.until("error", PATIENT_S))["code"] == "session_not_found"
            await start_session(client)


async def test_limits_are_the_hosts(host: ServerProcess) -> None:
    """Also for clients that come at one moment."""
    await until_free(host)
    async with contextlib.AsyncExitStack() as stack:

        async def try_session() -> bool:
            with contextlib.suppress(InvalidStatus):
                await start_session(await stack.enter_async_context(open_stream(host.ws_url)))
                return True
            return False

        num_in = sum(await asyncio.gather(*(try_session() for _ in range(48))))
        assert num_in <= 16
        end = time.monotonic() + PATIENT_S
        while num_in < 16:  # a place that an earlier test has left is known to be free some milliseconds later
            num_in += await try_session()
            assert time.monotonic() < end
        async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=PATIENT_S) as http:
            while (await http.get("/readyz")).json()["sessions"] != 16:  # news takes some milliseconds
                await asyncio.sleep(0.01)
        with pytest.raises(InvalidStatus) as caught:
            async with open_stream(host.ws_url):
                pass
        assert caught.value.response.status_code == 503
    await until_free(host)


async def test_clients_of_a_killed_gateway_go_on_at_others_and_no_other_client_notices(host: ServerProcess) -> None:
    """No word is lost, and at most one is heard twice. Its successor has the adapters that were loaded before."""
    await until_free(host)
    async with new_connections(host) as http:
        assert (await http.post("/v1/adapters", json={"name": "early"})).status_code == 201
    text, audio = 4 * TEXT, speech.AudioFormat("pcm_s16le", sample_rate=16000)
    opened_before = await metric(host, "sessions_opened_total")
    async with contextlib.AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(speech.connect(host.url, audio=audio, playback="consumed"))
            for _ in range(2 * NUM_GATEWAYS)
        ]
        ids = [session.id for session in sessions]
        contexts = [session.speak(text, params={"seed": 1}) for session in sessions]
        streams = [Stream(context) for context in contexts]
        await asyncio.gather(*(stream.read_to(0.5) for stream in streams))
        victim = index_of(ids[0])
        os.kill(host.gateways[victim], signal.SIGKILL)
        await asyncio.gather(*(asyncio.wait_for(stream.read_to(None), PATIENT_S) for stream in streams))
    expected = text.split()
    for stream, before, session in zip(streams, ids, sessions, strict=True):
        assert stream.context.done is not None
        if index_of(before) == victim:
            assert session.id != before
            repeated = [word for word, after in zip(stream.words, stream.words[1:], strict=False) if word == after]
            assert len(repeated) <= 1
            assert [word for k, word in enumerate(stream.words) if not k or word != stream.words[k - 1]] == expected
        else:
            assert session.id == before
            assert stream.words == expected
    assert await metric(host, "sessions_opened_total") == opened_before + len(sessions) + 2
    end = time.monotonic() + PATIENT_S
    while victim not in await indices_of_newcomers(host):
        assert time.monotonic() < end
        await asyncio.sleep(0.1)
    # It counts on, and what it holds is not what its predecessor held.
    assert await metric(host, "sessions_opened_total") >= opened_before + len(sessions) + 2
    await until_free(host)
    assert await metric(host, "sessions ") == 0
    owners = {name.rpartition("_")[2] for name in os.listdir(figures_directory(host))}
    assert owners == {f"{index}.db" for index in range(NUM_GATEWAYS)}
    async with new_connections(host) as http:
        for _ in range(2 * NUM_GATEWAYS):
            assert [each["name"] for each in (await http.get("/v1/adapters")).json()["adapters"]] == ["early"]


def figures_directory(host: ServerProcess) -> str:
    (pid,) = [pid for pid in host.gateways if is_alive(pid)][:1]
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(each.partition(b"=")[2].decode() for each in variables if each.startswith(b"PROMETHEUS_MULTIPROC_DIR="))


async def indices_of_newcomers(host: ServerProcess) -> list[int]:
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(open_stream(host.ws_url)) for _ in range(NUM_GATEWAYS)]
        return [index_of(await start_session(client)) for client in clients]


class Stream:
    """A listener to one context; checks that its packets follow each other."""

    def __init__(self, context: speech.Context) -> None:
        self.context = context
        self.words: list[str] = []
        self.num_samples = 0

    async def read_to(self, until_s: float | None) -> None:
        async for packet in self.context:
            assert packet.pts_samples == self.num_samples
            self.num_samples += packet.num_samples
            self.words += [word.text for word in packet.words]
            if until_s is not None and self.num_samples / packet.format.sample_rate >= until_s:
                return


async def test_a_voice_added_at_one_gateway_is_known_at_all(host: ServerProcess) -> None:
    """Soon: they are told at once, and look."""
    files, fields = {"reference": ("r.wav", wav(said("heart")))}, {"name": "mine", "consent": "true"}
    async with new_connections(host) as http:
        added = await http.post("/v1/voices", files=files, data=fields)
        assert added.status_code == 201, added.text
        known: Counter[bool] = Counter()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(NUM_GATEWAYS):  # one at each
                client = await stack.enter_async_context(open_stream(host.ws_url))
                end = time.monotonic() + PATIENT_S
                for number in range(1000):
                    await client.speak(name := f"c{number}", "hello.", voice="mine")
                    message = await client.until(
                        # The end of a text that was refused is refused too: that answer comes later.
                        lambda m, name=name: m["type"] in ("error", *TERMINAL) and m["context_id"] == name,  # type: ignore[misc]
                        PATIENT_S,
                    )
                    if message["type"] == "context.done":
                        known[True] += 1
                        break
                    assert message["code"] == "voice_not_found"
                    assert time.monotonic() < end
                    await asyncio.sleep(0.01)
        assert known[True] == NUM_GATEWAYS
        assert (await http.delete(f"/v1/voices/{added.json()['id']}")).status_code == 204


async def test_an_adapter_is_loaded_and_unloaded_at_all_gateways(host: ServerProcess) -> None:
    """Also where it comes anew under its name at once."""
    address = "/v1/adapters"

    async def outcomes(expected: str) -> None:
        """At each gateway, soon."""
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(NUM_GATEWAYS):
                client = await stack.enter_async_context(open_stream(host.ws_url))
                end = time.monotonic() + PATIENT_S
                for number in range(1000):
                    await client.speak(f"c{number}", "hello.", params={"adapter": "late"})
                    message = await client.until(lambda m: m["type"] in ("error", *TERMINAL), PATIENT_S)
                    if message.get("code", "spoken") == expected:
                        break
                    assert time.monotonic() < end
                    await asyncio.sleep(0.01)

    async with new_connections(host) as http:
        assert (await http.post(address, json={"name": "late"})).status_code == 201
        await outcomes("spoken")
        async with open_stream(host.ws_url) as client:
            await client.send("text", context_id="c", text="command never. ", params={"adapter": "late"})
            await client.until("audio", PATIENT_S)
            while (deleted := await http.delete(f"{address}/late")).status_code == 404:
                await asyncio.sleep(0.01)
            assert deleted.status_code == 204
            failed = await client.until("context.failed", PATIENT_S)
            assert failed["code"] == "adapter_not_found"
        await outcomes("adapter_not_found")
        async with httpx.AsyncClient(base_url=host.url, trust_env=False, timeout=PATIENT_S) as same:
            for _ in range(3):  # at one gateway, faster than news travel
                assert (await same.post(address, json={"name": "late"})).status_code == 201
                assert (await same.delete(f"{address}/late")).status_code == 204
            assert (await same.post(address, json={"name": "late"})).status_code == 201
            await outcomes("spoken")
        assert (await http.delete(f"{address}/late")).status_code == 204


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    servers: list[ServerProcess] = []

    def start(**options: object) -> ServerProcess:
        servers.append(ServerProcess(tmp_path / "log.txt", **options))  # type: ignore[arg-type]
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


@pytest.mark.logs_errors
async def test_a_gateway_that_could_not_be_greeted_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host cannot note the processes that it starts on a full disk: it tries again, with one at a time."""
    started: list[int] = []

    def refuse(directory: SocketDirectory, *pids: int) -> None:
        started.extend(pids)
        if len(started) == 2:
            assert not is_alive(started[0])
            host.stop()
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(SocketDirectory, "note_worker", refuse)
    monkeypatch.setattr("realtime_tts.server.host.process._BACKOFF_S", 0.01)
    workers = Mock(start=AsyncMock(), stop=AsyncMock(), announced=())
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr("realtime_tts.server.host.process._GATEWAY_COMMAND", command)
    host = Host(Settings(server=ServerConfig(port=0, gateways=1)), workers, lambda rows: None)
    await host.run()
    assert len(started) == 2
    assert not any(map(is_alive, started))


async def test_a_setting_that_only_gateways_read_ends_the_start(tmp_path: Path) -> None:
    """They would fail again after each restart."""
    (lexicon := tmp_path / "names.json").write_text("{")
    server = ServerConfig(port=0, gateways=2, speech=SpeechConfig(lexicon=str(lexicon)))
    with pytest.raises(ConfigError, match="neither JSON nor PLS"):
        await Host(Settings(server=server), WorkerPool([]), lambda rows: None).run()


async def test_a_crash_of_the_only_worker_during_the_start_does_not_end_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    spec = WorkerSpec(command=fake_worker_command(ready_gate=str(gate)), backoff_s=0.05)
    workers, has_served = WorkerPool([spec]), asyncio.Event()
    host = Host(Settings(server=ServerConfig(port=0, gateways=2)), workers, lambda rows: has_served.set())
    running = asyncio.create_task(host.run())
    (supervisor,) = workers.supervisors
    await until(lambda: supervisor.pid is not None, PATIENT_S)
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    gate.touch()
    done, _ = await asyncio.wait(
        [running, serving := asyncio.create_task(has_served.wait())], return_when=asyncio.FIRST_COMPLETED
    )
    assert serving in done
    assert workers.num_restarts == 1
    host.stop()
    await running


@pytest.mark.slow
async def test_a_killed_host_leaves_no_process(start_server: Callable[..., ServerProcess]) -> None:
    """And its next start clears away the files."""
    server = start_server(gateways=2, max_late_ms=0)
    server.process.kill()
    server.process.wait()
    end = time.monotonic() + PATIENT_S
    while any(map(is_alive, (*server.gateways, *server.workers))):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    clear_leftovers()  # the fixture around this test would find them


@pytest.mark.slow
async def test_a_killed_worker_costs_only_its_own_contexts_and_sigterm_drains_all_gateways(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server(gateways=2, max_late_ms=0, worker={"num_workers": 2})
    async with open_stream(server.ws_url) as first, open_stream(server.ws_url) as second:
        for client in (first, second):
            for name in ("a", "b"):  # one at each worker
                await client.send("text", context_id=name, text="command never. ")
            await client.until(lambda _, c=client: len(c.contexts) == 2 and has_audio(c, "a", "b"), PATIENT_S)
        os.kill(server.workers[0], signal.SIGKILL)
        for client in (first, second):
            failed = await client.until("context.failed", PATIENT_S)
            assert (failed["code"], failed["retryable"]) == ("engine_lost", True)
            (left,) = [name for name, log in client.contexts.items() if log.terminal is None]
            client.contexts[left].packets.clear()
            await client.until(lambda _, c=client, name=left: has_audio(c, name), PATIENT_S)
        await second.send("cancel")
        async with open_stream(server.ws_url) as idle:
            await start_session(idle)
            server.process.send_signal(signal.SIGTERM)
            assert (await idle.until_closed(PATIENT_S))[0] == 1001
        with pytest.raises((InvalidHandshake, OSError)):  # a connection may be dealt to a gateway that is just ending
            async with open_stream(server.ws_url):
                pass
        await first.until("audio", PATIENT_S)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert (await first.until_closed(PATIENT_S))[0] in (1001, 1006)
    assert server.process.wait(PATIENT_S) == 0
    assert not any(map(is_alive, (*server.gateways, *server.workers)))


def has_audio(client: StreamClient, *names: str) -> bool:
    return all(client.contexts[name].packets for name in names)


async def test_gateways_share_what_the_user_s_directory_cannot_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    server = ServerProcess(tmp_path / "log.txt", gateways=2, voices_dir="auto", max_late_ms=0)
    try:
        async with new_connections(server) as http:
            added = await http.post("/pronunciation-dicts", json={"name": "d", "items": []})
            assert added.status_code == 200
            found = [await http.get(f"/pronunciation-dicts/{added.json()['id']}") for _ in range(4)]
        assert [answer.status_code for answer in found] == [200] * 4  # connections go to the gateways in turn
    finally:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENT_S) == 0
        server.close()


def test_voices_that_cannot_be_kept_are_told_before_a_gateway_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = ServerConfig(gateways=2, voices=VoicesConfig(voices_dir=str(tmp_path / "file")))
    with pytest.raises(ConfigError, match="voices cannot be kept"):
        Host(Settings(server=server), WorkerPool([]), lambda rows: None)

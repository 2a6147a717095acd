"""Nothing that goes wrong with one start of a worker ends its supervision."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from client_harness import QUICK, MakeClient, collect, speak, until
from fake_worker import fake_worker_command
from processes import supervisors, worker_pids

from realtime_tts.contract import frames
from realtime_tts.errors import EngineStartError
from realtime_tts.workers.child import end_child, start_child
from realtime_tts.workers.client import EngineClient
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.recovery import FORGIVEN
from realtime_tts.workers.supervisor import Supervisor, WorkerSpec
from realtime_tts.workers.watchdog import Watchdog

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "run_client.py"
PATIENT_S = 60  # for what a busy machine may delay


def fail_with(error: Exception) -> Callable[..., Any]:
    """A function that raises it, whatever it is called with."""

    def fail(*args: object, **kwargs: object) -> Any:
        raise error

    return fail


def attempts_logged(caplog: pytest.LogCaptureFixture, what: str) -> int:
    return sum(what in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("tempfile.mkdtemp", OSError(errno.ENOSPC, "No space left on device")),
        ("socket.socketpair", OSError(errno.EMFILE, "Too many open files")),
        ("asyncio.create_subprocess_exec", OSError(errno.EMFILE, "Too many open files")),
        ("asyncio.create_subprocess_exec", OSError(errno.ENOMEM, "Cannot allocate memory")),
        ("asyncio.create_subprocess_exec", RuntimeError("can't start new thread")),
        ("asyncio.create_subprocess_exec", MemoryError()),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value) or type(value).__name__,
)
async def test_a_respawn_that_cannot_be_made_is_tried_again(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture, name: str, error: Exception
) -> None:
    client = await make_client()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, fail_with(error))
        os.kill(worker_pids(client)[0], signal.SIGKILL)
        await until(lambda: attempts_logged(caplog, type(error).__name__) >= 3, PATIENT_S)
        assert client.num_ready == 0
    await until(lambda: client.num_ready == 1, PATIENT_S)
    assert isinstance((await collect(speak(client, "again")))[1], frames.Done)


async def test_a_directory_for_temporary_files_that_went_may_come_back(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await make_client()
    directory = tempfile.gettempdir()
    shutil.rmtree(directory)
    os.kill(worker_pids(client)[0], signal.SIGKILL)
    await until(lambda: attempts_logged(caplog, "FileNotFoundError") >= 2, PATIENT_S)
    os.mkdir(directory)
    await until(lambda: client.num_ready == 1, PATIENT_S)
    assert isinstance((await collect(speak(client, "again")))[1], frames.Done)


def test_a_download_may_take_longer_than_a_start() -> None:
    supervisor = Supervisor(WorkerSpec(ready_timeout_s=10.0), WorkerPool([WorkerSpec()]))
    watchdog = supervisor._watchdog = Watchdog(10.0, now=0.0)
    for number in range(100):
        assert not watchdog.tick(number * watchdog.tick_s)
        supervisor._take(frames.Stats())
    begun_s = now = 100 * watchdog.tick_s
    while not watchdog.tick(now):
        now += watchdog.tick_s
    assert 10.0 <= now - begun_s < 12.0, "what follows the download has its own limit"


async def test_a_failed_start_leaves_nothing_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(os.listdir(tempfile.gettempdir()))
    monkeypatch.setattr("asyncio.create_subprocess_exec", fail_with(OSError(errno.EMFILE, "Too many open files")))
    with pytest.raises(EngineStartError, match="Too many open files"):
        await EngineClient([WorkerSpec(name="a"), WorkerSpec(name="b")]).start()
    assert not [name for name in os.listdir(tempfile.gettempdir()) if "realtime-tts" in name and name not in before]


async def test_a_worker_that_crashes_before_it_is_ready_is_started_again(tmp_path: Path) -> None:
    """As often as a device may lose its worker later."""
    gate = tmp_path / "gate"
    client = EngineClient([dataclasses.replace(QUICK, command=fake_worker_command(ready_gate=str(gate)))])
    (supervisor,) = supervisors(client)
    starting = asyncio.create_task(client.start())
    for number in range(1, FORGIVEN + 1):
        await until(lambda n=number: supervisor.num_starts == n and supervisor.pid is not None, PATIENT_S)  # type: ignore[misc]
        os.kill(worker_pids(client)[0], signal.SIGKILL)
    gate.touch()
    await starting
    assert client.keeper.num_restarts == FORGIVEN
    assert isinstance((await collect(speak(client, "hello", voice=None)))[1], frames.Done)
    await client.close()


async def test_a_start_ends_after_too_many_crashes_and_says_how_the_last_worker_ended() -> None:
    command = (sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    with pytest.raises(EngineStartError, match=f"has crashed {FORGIVEN + 1} times \\(exit status -9\\)"):
        await EngineClient([dataclasses.replace(QUICK, command=command)]).start()


async def test_the_exit_status_of_a_process_that_ends_just_before_it_is_killed_is_its_own() -> None:
    for _ in range(30):
        process, reader, writer = await start_child((sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 15)"))
        await reader.read()
        writer.close()
        assert await end_child(process) == -signal.SIGTERM


async def test_each_start_that_fails_is_logged_with_the_workers_own_reason(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    await make_client(each=[{}, {"fail_start": True}])
    await until(lambda: attempts_logged(caplog, "worker fake-1 ended (asked to fail at start, ") >= 2, PATIENT_S)


async def test_a_worker_whose_steps_are_long_is_slow_and_not_hung(make_client: MakeClient) -> None:
    client = await make_client(patch_delay_s=QUICK.hang_s + 2, fixed_ms=10_000)
    assert isinstance((await collect(speak(client, "hi")))[1], frames.Done)
    assert client.keeper.num_restarts == 0


async def test_a_fault_of_ours_ends_the_worker_but_not_its_supervision(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await make_client()
    (supervisor,) = supervisors(client)
    pid = supervisor.pid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.keeper, "count", fail_with(KeyError("what a user sent")))
        await until(lambda: supervisor.pid != pid, PATIENT_S)
    assert attempts_logged(caplog, "KeyError at fail") == 1
    assert "what a user sent" not in caplog.text
    await until(lambda: client.num_ready == 1, PATIENT_S)


async def test_a_supervision_that_fails_for_good_is_heard_of_and_leaves_no_process(
    make_client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    client = await make_client()
    failures: list[int] = []
    client.on_failed = lambda: failures.append(1)
    (pid,) = worker_pids(client)
    stream = speak(client, "[never]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.keeper, "lost", fail_with(KeyError("what a user sent")))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: bool(failures), PATIENT_S)
    last = (await collect(stream))[1]
    assert isinstance(last, frames.Failed)
    assert last.code == "engine_lost"
    assert client.num_ready == 0
    assert failures == [1]
    assert attempts_logged(caplog, "supervise fake-0") == 1
    assert "what a user sent" not in caplog.text
    assert worker_pids(client) == []


class ClientProcess:
    """`run_client.py`, started."""

    def __init__(self, hang_s: float = 60.0, **worker: object) -> None:
        command = [sys.executable, str(SCRIPT), str(hang_s), json.dumps(worker)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.worker: int = self.read()["worker"]

    def speak(self, text: str) -> None:
        """Returns when it has begun."""
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        assert self.read() == {"begun": "audio"}

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """Let it end by itself, and take its worker along."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENT_S)
        self._close_pipes()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENT_S)
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def start_client() -> Iterator[Callable[..., ClientProcess]]:
    clients: list[ClientProcess] = []

    def start(**options: Any) -> ClientProcess:
        clients.append(ClientProcess(**options))
        return clients[-1]

    yield start
    for client in clients:
        if client.process.poll() is None:
            client.kill()
        if is_running(client.worker):
            os.kill(client.worker, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Not gone, and no zombie either."""
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def test_a_gateway_that_was_stopped_and_continued_keeps_its_worker(start_client: Callable[..., ClientProcess]) -> None:
    # So much audio that a good deal of it lies before the first unread heartbeat.
    client = start_client(hang_s=2.0, patch_samples=160_000, patch_delay_s=0.05)
    client.speak("[silence]" + 400 * "x")
    client.process.send_signal(signal.SIGSTOP)
    time.sleep(4.0)
    client.process.send_signal(signal.SIGCONT)
    assert client.read() == {"ended": "done", "restarts": 0}
    assert is_running(client.worker)
    client.close()


async def test_a_start_ends_the_stopped_worker_of_a_killed_gateway_and_spares_the_others(
    start_client: Callable[..., ClientProcess],
) -> None:
    before = set(os.listdir(tempfile.gettempdir()))  # other tests' servers may be running
    neighbour, killed = start_client(), start_client()
    os.kill(killed.worker, signal.SIGSTOP)
    killed.kill()
    assert is_running(killed.worker)
    directories = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("realtime-tts-")} - before
    assert len(directories) == 2
    client = EngineClient([WorkerSpec(command=fake_worker_command())])
    await client.start()
    await client.close()
    assert not is_running(killed.worker)
    assert len(directories & set(os.listdir(tempfile.gettempdir()))) == 1
    neighbour.speak("hello")
    assert neighbour.read() == {"ended": "done", "restarts": 0}
    neighbour.close()

"""What is said of a server's limit, and what it is said from."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from realtime_tts.bench.server_process import free_port, running_server
from realtime_tts.bench.usage import (
    ProcessTime,
    Sample,
    Usage,
    descendants,
    name_limit,
    take_sample,
    usage_between,
    why_void,
)
from realtime_tts.errors import EngineStartError

URL = "http://127.0.0.1:1"  # where nothing answers


@pytest.mark.parametrize(
    ("usage", "errors", "word"),
    [
        (Usage(event_loop=0.99, busiest_client=0.95), {}, "clients"),
        (Usage(event_loop=0.99, engine=0.99), {"overloaded": 3}, "admission: 3"),
        (Usage(event_loop=0.93, engine=0.99, machine=1.0), {"engine_lost": 1}, "event loop"),
        (Usage(event_loop=0.5, engine=0.95, machine=1.0), {}, "engine"),
        (Usage(event_loop=0.5, engine=0.5, machine=0.97), {}, "processors"),
        (Usage(event_loop=0.5, engine=0.5, machine=0.5), {}, "none"),
        (Usage(), {}, "unknown"),
    ],
)
def test_the_limit_is_the_part_that_is_full(usage: Usage, errors: dict[str, int], word: str) -> None:
    assert word in name_limit(usage, errors)


def test_usage_is_time_over_time() -> None:
    """Two gateways and a worker; a third gateway came in between, and is not counted."""
    early = {1: (False, 0.0, 0.0), 2: (False, 1.0, 1.0), 3: (True, 0.0, 0.0), 4: (False, 5.0, 5.0)}
    late = {1: (False, 1.6, 1.0), 2: (False, 1.4, 1.2), 3: (True, 3.0, 2.0), 5: (False, 9.0, 9.0)}
    first, last = ({pid: ProcessTime(*times) for pid, times in processes.items()} for processes in (early, late))
    busy, workers = "realtime_tts_engine_busy_seconds_total", "realtime_tts_engine_workers_ready"
    before = Sample(10.0, first, {busy: 0.0, workers: 2.0}, 0.0, 4.0)
    usage = usage_between(before, Sample(12.0, last, {busy: 2.0, workers: 2.0}, 6.0, 12.0))
    assert usage == Usage(
        event_loop=0.5,
        gateway_cores=pytest.approx(1.0),
        worker_cores=1.5,
        engine=0.5,
        machine=0.75,
    )
    assert usage_between(None, before) == Usage()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_busy_process_is_seen_to_be_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = 'busy_seconds_total 1.5\nworkers_ready{device="cpu"} 2.0\n'
    monkeypatch.setattr("realtime_tts.bench.usage.get_text", lambda *_: metrics)
    before = take_sample([os.getpid()], URL)
    until_s = time.process_time() + 0.3
    while time.process_time() < until_s:
        pass
    after = take_sample([os.getpid()], URL)
    assert before is not None
    assert after is not None
    early, late = before.processes[os.getpid()], after.processes[os.getpid()]
    assert late.all_s - early.all_s == pytest.approx(0.3, abs=0.1)
    assert late.main_thread_s - early.main_thread_s == pytest.approx(0.3, abs=0.1)
    assert not late.is_worker
    assert after.metrics == {"busy_seconds_total": 1.5}
    assert after.machine_busy_s > before.machine_busy_s


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_what_a_server_has_started_is_part_of_it() -> None:
    """A gateway that starts a worker; a server without figures is looked at all the same."""
    worker = "import sys; sys.stdin.read()"
    gateway = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}, '--clients', 'none'])"
    with subprocess.Popen([sys.executable, "-c", gateway], stdin=subprocess.PIPE) as process:
        try:
            end_s = time.monotonic() + 30
            while len(pids := descendants([process.pid])) < 2:
                assert time.monotonic() < end_s
                time.sleep(0.01)
            while not (sample := take_sample([process.pid], URL)) or not sample.processes[pids[1]].is_worker:
                assert time.monotonic() < end_s  # between fork and exec it is its parent's likeness
                time.sleep(0.01)
        finally:
            process.communicate()
    assert {pid: spent.is_worker for pid, spent in sample.processes.items()} == {process.pid: False, pids[1]: True}
    assert sample.metrics == {}


def test_a_load_is_void_if_its_generator_was_late() -> None:
    assert why_void(9, 19.0, 0.5) == ""
    assert "21 ms" in why_void(9, 21.0, 0.5)
    assert "--processes" in why_void(9, 21.0, 0.95)


def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(EngineStartError, match=r"ended with status 2: .*--bogus"), running_server("--bogus"):
        pass


def test_a_chosen_port_is_none_that_another_process_may_be_given_meanwhile() -> None:
    assert max(free_port() for _ in range(20)) < 32_768  # from there on Linux gives them away

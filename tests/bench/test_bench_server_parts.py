"""What is said of a server's limit, and what it is said from."""

from __future__ import annotations

import os
import time
from typing import cast

import pytest

from realtime_tts.bench.limits import Usage, name_limit
from realtime_tts.bench.server_process import RunningServer
from realtime_tts.bench.streams import Bar, Heard, Watch
from realtime_tts.bench.usage import Sample, take_sample, usage_between


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
    before = Sample(10.0, 0.0, 0.0, 0.0, (0.0, 0.0), 0.0, 2, 0.0, 4.0)
    usage = usage_between(before, Sample(12.0, 1.0, 1.6, 3.0, (0.2, 0.6), 2.0, 2, 6.0, 12.0))
    assert usage == Usage(
        event_loop=0.5,
        gateway_cores=0.8,
        worker_cores=1.5,
        client_cores=pytest.approx(0.4),
        busiest_client=0.3,
        engine=0.5,
        machine=0.75,
    )
    assert usage_between(None, before) == Usage()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_busy_process_is_seen_to_be_busy() -> None:
    class Alone:
        pid, worker_pids = os.getpid(), [os.getpid()]

        def get(self, path: str) -> str:
            return "realtime_tts_engine_busy_ms 1500.0\nrealtime_tts_engine_workers_ready 2.0\n"

    server = cast(RunningServer, Alone())
    before = take_sample(server, [os.getpid()])
    until_s = time.process_time() + 0.3
    while time.process_time() < until_s:
        pass
    after = take_sample(server, [os.getpid()])
    assert before is not None
    assert after is not None
    assert after.gateway_s - before.gateway_s == pytest.approx(0.3, abs=0.1)
    assert after.event_loop_s - before.event_loop_s == pytest.approx(0.3, abs=0.1)
    assert (after.engine_busy_s, after.num_workers) == (1.5, 2)
    assert after.machine_busy_s > before.machine_busy_s


def test_a_load_is_lost_once_too_many_were_late() -> None:
    watch = Watch(Bar(), expected=100)
    late, good = Heard(chunks=[(0.3, 0.0)]), Heard(chunks=[(0.05, 0.0)])
    for stream in [good] * 50 + [late] * 13:  # 5 are allowed; twice that and three more may be chance
        watch.ended(stream)
    assert not watch.is_lost([good, Heard(scheduled_s=9.95), Heard(judged=False)], 10.0)
    assert watch.is_lost([Heard(scheduled_s=9.8)], 10.0)
    watch.ended(late)
    assert watch.is_lost([], 10.0)


def test_a_load_is_lost_once_too_many_stalled() -> None:
    watch = Watch(Bar(), expected=1000)
    stalled = Heard(chunks=[(0.05, 0.0), (0.5, 0.16)])
    for _ in range(5):
        watch.ended(stalled)
    assert not watch.is_lost([], 10.0)
    watch.ended(stalled)
    assert watch.is_lost([], 10.0)

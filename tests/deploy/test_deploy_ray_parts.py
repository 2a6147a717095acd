"""What `deploy.ray` is made of, without Ray: the directory, the scaling, the keeper."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proxy_harness import DEPLOY

from deploy.ray.directory import FORGOTTEN_S, Directory
from deploy.ray.scaling import ByStreams, replicas_wanted

KEEPER = DEPLOY / "ray/keeper.py"
# Says that it runs, counts what it is told, and ends a moment after the first time.
CHILD = """
import pathlib, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
pathlib.Path(sys.argv[1]).touch()
while not told:
    time.sleep(0.01)
time.sleep(0.3)
sys.exit(10 + len(told))
"""


def test_a_replica_keeps_its_slot_and_leaves_it_to_another() -> None:
    directory = Directory(2)
    assert [directory.report(name, "h", port, None, 0.0) for name, port in (("a", 1), ("b", 2), ("c", 3))] == [
        1,
        2,
        None,
    ]
    assert directory.report("b", "h", 2, 2, 1.0) == 2
    directory.remove("a")
    assert directory.report("c", "h", 3, None, 1.0) == 1
    assert [(entry.name, entry.slot) for entry in directory.entries(1.0)] == [("c", 1), ("b", 2)]


def test_an_empty_directory_learns_again_which_replica_has_which_slot() -> None:
    directory = Directory(3)
    assert directory.report("b", "h", 2, 2, 0.0) == 2
    assert directory.report("new", "h", 4, None, 0.0) == 1
    assert directory.report("a", "h", 1, 1, 0.0) == 3  # it was forgotten, and its place is taken


def test_a_replica_that_does_not_report_is_forgotten() -> None:
    directory = Directory(3)
    directory.report("a", "h", 1, None, 0.0)
    directory.report("b", "h", 2, None, FORGOTTEN_S)
    assert [entry.name for entry in directory.entries(FORGOTTEN_S + 0.1)] == ["b"]
    assert directory.report("c", "h", 3, None, FORGOTTEN_S + 0.1) == 1


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=9), st.floats(1, 700), st.floats(0.1, 1.0))
def test_the_fewest_replicas_that_hold_all_streams_are_wanted(
    streams: list[float], capacity: float, target: float
) -> None:
    wanted = replicas_wanted(streams, [capacity] * len(streams), target)
    assert sum(streams) <= wanted * target * capacity * (1 + 1e-6)
    assert wanted == 1 or sum(streams) > (wanted - 1) * target * capacity * (1 - 1e-6)


def test_the_policy_reads_what_the_replicas_tell() -> None:
    policy = ByStreams(target=0.5)
    told = {"streams": {"a": 30.0, "b": 22.0}, "capacity": {"a": 40.0, "b": 40.0}}
    assert policy(SimpleNamespace(aggregated_metrics=told, target_num_replicas=2))[0] == 3
    assert policy(SimpleNamespace(aggregated_metrics={}, target_num_replicas=2))[0] == 2
    assert replicas_wanted([], [0.0], 0.7) == 1


@pytest.fixture
def kept(tmp_path: Path) -> subprocess.Popen[bytes]:
    """A keeper whose child runs."""
    running = tmp_path / "running"
    process = subprocess.Popen(
        [sys.executable, str(KEEPER), "30", sys.executable, "-c", CHILD, str(running)], stdin=subprocess.PIPE
    )
    while not running.exists():
        assert process.poll() is None
    return process


def test_the_keepers_child_is_told_once(kept: subprocess.Popen[bytes]) -> None:
    """And signals that are meant for others do not reach it."""
    kept.send_signal(signal.SIGTERM)
    kept.send_signal(signal.SIGINT)
    assert kept.stdin is not None
    kept.stdin.close()
    assert kept.wait(30) == 11


def test_the_keeper_ends_as_its_child_does() -> None:
    with subprocess.Popen([sys.executable, str(KEEPER), "30", "false"], stdin=subprocess.PIPE) as process:
        assert process.wait(30) == 1

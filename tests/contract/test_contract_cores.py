"""Processors that a process may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from realtime_tts.contract.cores import usable_cores


@pytest.mark.parametrize(
    ("quotas", "cores"),
    [
        ({}, 64),
        ({"pod/container": "max 100000"}, 64),
        ({"pod/container": "150000 100000"}, 2),
        ({"pod": "400000 100000", "pod/container": "max 100000"}, 4),
        ({"pod": "400000 100000", "pod/container": "800000 100000"}, 4),
        ({"": "300000 100000"}, 3),
        ({"pod": "10000 100000"}, 1),
        ({"pod": "nonsense"}, 64),
    ],
)
def test_a_quota_counts_as_processors(
    quotas: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    cgroups, membership = tmp_path / "cgroup", tmp_path / "membership"
    (cgroups / "pod" / "container").mkdir(parents=True)
    for group, quota in quotas.items():
        (cgroups / group / "cpu.max").write_text(quota + "\n")
    membership.write_text("1:cpu:/elsewhere\n0::/pod/container\n")
    assert usable_cores(cgroups, membership) == cores


def test_where_there_are_no_control_groups_all_processors_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)), raising=False)
    assert usable_cores(tmp_path, tmp_path / "nothing") == 12

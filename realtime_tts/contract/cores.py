"""Number of processors that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores(cgroups: Path = _CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Return the number of processors: those of its affinity mask, limited by the CPU quota of its control group
    (containers set it)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([allowed, *map(math.ceil, _quotas(cgroups, membership))]))


def _quotas(cgroups: Path, membership: Path) -> list[float]:
    """Return the quotas, in processors, of the control group and its ancestors (cgroup v2)."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:  # a system without cgroups
        return []
    group = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    quotas = []
    for path in (cgroups / group, *(cgroups / group).parents):
        try:
            quota, period = (path / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))
        except (OSError, ValueError):  # no such file; "max": none
            pass
        if path == cgroups:
            break
    return quotas

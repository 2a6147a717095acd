"""Memory that was freed is given back, and what is kept is known."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from realtime_tts.contract import heap

on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps it, and takes it back")

# 64 MiB in pieces that are no mapping of their own, below one that stays: what a step leaves behind.
FREES_SCRATCH = """
import ctypes
from realtime_tts.contract import heap
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
pieces = []
for _ in range(1024):
    pieces.append(libc.malloc(64 * 1024))
    ctypes.memset(ctypes.c_void_p(pieces[-1]), 1, 64 * 1024)
stays = libc.malloc(64 * 1024)
held = heap.anonymous_bytes()
for piece in pieces:
    libc.free(piece)
freed = heap.anonymous_bytes()
keeper = heap.HeapKeeper()
keeper.keep(0.0)
print(held, freed, keeper.kept_bytes, heap.anonymous_bytes())
"""


@on_glibc
def test_scratch_stays_with_the_process_until_it_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", FREES_SCRATCH], capture_output=True, text=True, check=True)
    held, freed, kept, after = (int(word) / 2**20 for word in done.stdout.split())
    assert held - freed < 8  # glibc keeps it
    assert freed - kept > 56
    assert abs(after - kept) < 4


def test_it_is_done_every_few_seconds_and_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    size, times = 500, []
    now = 100.0

    def give_back() -> None:
        nonlocal size
        times.append(now)
        size = 400 + len(times)

    monkeypatch.setattr(heap, "give_back", give_back)
    monkeypatch.setattr(heap, "anonymous_bytes", lambda: size)
    keeper = heap.HeapKeeper()
    assert keeper.kept_bytes == 0  # not known yet
    kept = []
    for now in (100.0, 101.0, 104.9, 105.0, 105.1, 130.0, 134.0):
        size = 500
        keeper.keep(now)
        kept.append(keeper.kept_bytes)
    assert times == [100.0, 105.0, 130.0]
    assert kept == [401, 401, 401, 402, 402, 403, 403]


def test_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_STATM", heap.Path("/nowhere/statm"))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())  # a C library without malloc_trim
    assert heap.anonymous_bytes() == 0
    assert heap.resident_bytes() > 2**20
    heap.give_back()

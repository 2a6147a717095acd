"""Slots that a gateway uses, and the board on which the gateways of a host share these counts.

The board is one file for each gateway and a lock. A gateway that takes a slot reads the counts of the others, decides,
and writes its own count while it has the lock. So no two gateways take the last slot.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgpack

# A process may be descheduled while it has the lock, on a busy machine for tens of milliseconds, or be stopped. After
# `_TRIES` a gateway continues without the lock: one slot too many is better than a blocked event loop. For the next
# `_IMPATIENT_S` it waits for `_IMPATIENT_TRIES` only.
_TRIES, _TRY_AGAIN_S = 250, 0.0002
_IMPATIENT_S, _IMPATIENT_TRIES = 1.0, 25


@dataclasses.dataclass(frozen=True, slots=True)
class SlotCounts:
    """Counts of one gateway or the sum of several; by the id of the key, the last three by the id of the token.

    Attributes:
        sessions, waiting, lost: sessions; sockets without a session yet; sessions whose client may resume them.
        speaking: contexts that have work at the engine.
        tokens, waiting_tokens, lost_tokens: `sessions`, `waiting` and `lost` of clients with a token.
    """

    sessions: Counter[str] = dataclasses.field(default_factory=Counter)
    waiting: Counter[str] = dataclasses.field(default_factory=Counter)
    lost: Counter[str] = dataclasses.field(default_factory=Counter)
    speaking: Counter[str] = dataclasses.field(default_factory=Counter)
    tokens: Counter[str] = dataclasses.field(default_factory=Counter)
    waiting_tokens: Counter[str] = dataclasses.field(default_factory=Counter)
    lost_tokens: Counter[str] = dataclasses.field(default_factory=Counter)

    def _counts(self) -> tuple[Counter[str], ...]:
        by_key = self.sessions, self.waiting, self.lost, self.speaking
        return *by_key, self.tokens, self.waiting_tokens, self.lost_tokens

    def __add__(self, other: SlotCounts) -> SlotCounts:
        return SlotCounts.sum([self, other])

    @classmethod
    def sum(cls, several: Iterable[SlotCounts]) -> SlotCounts:
        total = cls()
        for holdings in several:
            for count, more in zip(total._counts(), holdings._counts(), strict=True):
                count.update(more)
        return total

    def encode(self) -> bytes:
        packed: bytes = msgpack.packb([dict(count) for count in self._counts()])
        return packed

    @classmethod
    def decode(cls, data: bytes) -> SlotCounts:
        """Return empty holdings for empty input."""
        return cls(*map(Counter, msgpack.unpackb(data))) if data else cls()


class Board:
    """A gateway's view of the shared counts.

    Args:
        directory: directory of the files, the same for all gateways of the host.
        index: index of this gateway.
    """

    def __init__(self, directory: str, index: int, num_gateways: int) -> None:
        self._lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        files = [_open(directory, other) for other in range(num_gateways)]
        self._own = files[index]
        self._others = files[:index] + files[index + 1 :]
        self._read: dict[int, bytes] = {}  # last content of each peer's file, by its descriptor
        self._known: dict[int, SlotCounts] = {}  # the same, decoded
        self._sum = SlotCounts()
        self._written = b""
        self._depth = 0
        self._impatient_until_s = 0.0  # on the monotonic clock
        _write(self._own, b"")  # clear the counts of a previous process

    def close(self) -> None:
        for file in (self._lock, self._own, *self._others):
            os.close(file)

    @property
    def others(self) -> SlotCounts:
        """Sum of the counts of all peers. Read-only."""
        with self._locked():
            read = {file: os.pread(file, os.fstat(file).st_size, 0) for file in self._others}
        if read != self._read:
            for file in self._others:
                if read[file] != self._read.get(file):
                    with contextlib.suppress(ValueError, TypeError):  # a torn read, without the lock
                        self._known[file] = SlotCounts.decode(read[file])
            self._read, self._sum = read, SlotCounts.sum(self._known.values())
        return self._sum

    def write(self, holdings: SlotCounts) -> None:
        """Publish the counts of this gateway."""
        if (data := holdings.encode()) != self._written:
            with self._locked(), contextlib.suppress(OSError):  # e.g. a full disk: written next time
                _write(self._own, data)
                self._written = data

    @contextlib.contextmanager
    def taking(self, look: Callable[[], SlotCounts]) -> Iterator[SlotCounts]:
        """Hold the lock and yield the counts of the peers; on exit, publish the counts that `look` returns."""
        with self._locked():
            yield self.others
            self.write(look())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        if self._depth == 0:
            self._wait_for_lock()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                with contextlib.suppress(OSError):
                    fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _wait_for_lock(self) -> None:
        if self._try_lock():
            return
        is_impatient = time.monotonic() < self._impatient_until_s
        for _ in range(_IMPATIENT_TRIES if is_impatient else _TRIES):
            time.sleep(_TRY_AGAIN_S)
            if self._try_lock():
                return
        if not is_impatient:
            self._impatient_until_s = time.monotonic() + _IMPATIENT_S

    def _try_lock(self) -> bool:
        """Take the lock. Return False if another process has it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            pass
        return True


def clear(directory: str, index: int) -> None:
    """Clear the counts of a gateway that has ended."""
    file = _open(directory, index)
    _write(file, b"")
    os.close(file)


def _open(directory: str, index: int) -> int:
    return os.open(os.path.join(directory, str(index)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _write(file: int, data: bytes) -> None:
    os.pwrite(file, data, 0)
    os.ftruncate(file, len(data))

"""What a gateway holds, and the board on which the gateways of a host write it for each other.

The board is one file for each gateway and a lock. Whoever takes a place reads what the others hold, decides and writes
what he holds then, with the lock: no two of them take the last place.
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

# A process may lose the processor while it has the lock, on a busy machine for tens of milliseconds. It may also be
# stopped: better a place too many than standing still, and who has waited in vain does not wait again so soon.
_TRIES, _TRY_AGAIN_S = 250, 0.0002
_IMPATIENT_S, _IMPATIENT_TRIES = 1.0, 25


@dataclasses.dataclass(frozen=True, slots=True)
class Holdings:
    """What one gateway holds, or several together; each by the name of a key, the last three by a token's id.

    Attributes:
        sessions, waiting, lost: sessions; sockets that have none yet; sessions whose client is waited for.
        speaking: contexts that have work at the engine.
        tokens, waiting_tokens, lost_tokens: of those with a token, as `sessions`, `waiting` and `lost`.
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

    def __add__(self, other: Holdings) -> Holdings:
        return Holdings.sum([self, other])

    @classmethod
    def sum(cls, several: Iterable[Holdings]) -> Holdings:
        total = cls()
        for holdings in several:
            for count, more in zip(total._counts(), holdings._counts(), strict=True):
                count.update(more)
        return total

    def encode(self) -> bytes:
        packed: bytes = msgpack.packb([dict(count) for count in self._counts()])
        return packed

    @classmethod
    def decode(cls, data: bytes) -> Holdings:
        """Of nothing: nothing."""
        return cls(*map(Counter, msgpack.unpackb(data))) if data else cls()


class Board:
    """As one gateway sees it, or the host, which only clears it.

    Args:
        directory: for all of them the same.
        index: of this gateway.
    """

    def __init__(self, directory: str, index: int, num_gateways: int) -> None:
        self._lock = os.open(os.path.join(directory, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        files = [_open(directory, other) for other in range(num_gateways)]
        self._own = files[index]
        self._others = files[:index] + files[index + 1 :]
        self._read: dict[int, bytes] = {}  # what each other's file said, by its descriptor
        self._known: dict[int, Holdings] = {}  # what that means
        self._sum = Holdings()
        self._written = b""
        self._depth = 0
        self._impatient_until_s = 0.0  # by the monotonic clock
        _write(self._own, b"")  # what one before us has held

    def close(self) -> None:
        for file in (self._lock, self._own, *self._others):
            os.close(file)

    @property
    def others(self) -> Holdings:
        """What all others hold together; not to be changed."""
        with self._locked():
            read = {file: os.pread(file, os.fstat(file).st_size, 0) for file in self._others}
        if read != self._read:
            for file in self._others:
                if read[file] != self._read.get(file):
                    with contextlib.suppress(ValueError, TypeError):  # read without the lock, half of it may be old
                        self._known[file] = Holdings.decode(read[file])
            self._read, self._sum = read, Holdings.sum(self._known.values())
        return self._sum

    def write(self, holdings: Holdings) -> None:
        """What is held here now."""
        if (data := holdings.encode()) != self._written:
            with self._locked(), contextlib.suppress(OSError):  # on a full disk later
                _write(self._own, data)
                self._written = data

    @contextlib.contextmanager
    def taking(self, look: Callable[[], Holdings]) -> Iterator[Holdings]:
        """Gives what the others hold; until it ends they take nothing, and then see what is held here by `look`."""
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
        """False: another one has it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            pass
        return True


def clear(directory: str, index: int) -> None:
    """A gateway is gone, and all that it held with it."""
    file = _open(directory, index)
    _write(file, b"")
    os.close(file)


def _open(directory: str, index: int) -> int:
    return os.open(os.path.join(directory, str(index)), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _write(file: int, data: bytes) -> None:
    os.pwrite(file, data, 0)
    os.ftruncate(file, len(data))

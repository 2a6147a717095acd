"""The board on which gateways tell each other what they hold."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from realtime_tts.server.admission import slot_counts as subject
from realtime_tts.server.admission.slot_counts import Board, SlotCounts, clear

MakeBoard = Callable[[int], Board]
NUM_GATEWAYS = 4


@pytest.fixture
def board_of(tmp_path: Path) -> Iterator[MakeBoard]:
    """→ the board as the gateway with this index sees it."""
    boards: list[Board] = []

    def make(index: int) -> Board:
        boards.append(Board(str(tmp_path), index, NUM_GATEWAYS))
        return boards[-1]

    yield make
    for board in boards:
        board.close()


def sessions(**number: int) -> SlotCounts:
    return SlotCounts(sessions=Counter(number))


def test_each_sees_the_sum_of_the_others(board_of: MakeBoard) -> None:
    first, second, third = map(board_of, range(3))
    whole = SlotCounts(Counter(a=3, b=1), Counter(a=1), Counter(b=1), Counter({"": 2}), Counter(t=4))
    second.write(whole)
    third.write(sessions(a=2, c=7))
    assert first.others == whole + sessions(a=2, c=7)
    assert second.others == sessions(a=2, c=7)
    second.write(sessions(b=1))  # less than before
    assert first.others == sessions(a=2, b=1, c=7)


def test_what_a_gateway_held_is_gone_with_it(board_of: MakeBoard, tmp_path: Path) -> None:
    first, second = board_of(0), board_of(1)
    second.write(sessions(a=3))
    clear(str(tmp_path), 1)
    assert first.others == SlotCounts()
    second.write(sessions(b=1))
    board_of(1)  # its successor, before the host has cleared
    assert first.others == SlotCounts()


def test_places_that_are_taken_at_one_moment_are_as_many_as_there_are(board_of: MakeBoard) -> None:
    num_places = 50
    taken = [0] * NUM_GATEWAYS
    begin = threading.Barrier(NUM_GATEWAYS)

    def take_all(index: int) -> None:
        board = board_of(index)
        begin.wait()
        for _ in range(num_places):
            with board.taking(lambda: sessions(a=taken[index])) as others:
                if others.sessions["a"] + taken[index] < num_places:
                    taken[index] += 1

    threads = [threading.Thread(target=take_all, args=[index]) for index in range(NUM_GATEWAYS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == num_places


def test_a_refusal_takes_nothing_and_lets_others_go_on(board_of: MakeBoard) -> None:
    first, second = board_of(0), board_of(1)
    with pytest.raises(LookupError), first.taking(lambda: sessions(a=1)):
        raise LookupError("there is no place")
    assert second.others == SlotCounts()
    with second.taking(lambda: sessions(b=1)) as others:
        assert others == second.others == SlotCounts(), "with the lock, too"
    assert first.others == sessions(b=1)


def test_one_that_stands_still_with_the_lock_holds_up_nobody(
    board_of: MakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "_TRY_AGAIN_S", 0.0)
    first, second = board_of(0), board_of(1)
    first.write(sessions(a=1))
    with first.taking(lambda: sessions(a=2)):
        with second.taking(lambda: sessions(b=1)) as others:
            assert others == sessions(a=1)
        assert first.others == sessions(b=1)
    assert second.others == sessions(a=2)


def test_one_that_loses_the_processor_with_the_lock_is_waited_for(
    board_of: MakeBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once; one that seems to stand still is not waited for so long each time."""
    first, second = board_of(0), board_of(1)
    naps: list[float] = []
    holder = contextlib.ExitStack()

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 200:  # 40 ms
            holder.close()

    monkeypatch.setattr(subject, "time", SimpleNamespace(sleep=nap, monotonic=time.monotonic))
    holder.enter_context(first.taking(lambda: sessions(a=2)))
    with second.taking(lambda: sessions(b=1)) as others:
        assert others == sessions(a=2)
    assert len(naps) == 200
    with first.taking(lambda: sessions(a=3)):
        for num_naps in (450, 475):
            assert second.others == sessions(a=2)
            assert len(naps) == num_naps


def test_half_of_what_is_being_written_is_as_if_it_were_not_there(board_of: MakeBoard, tmp_path: Path) -> None:
    first, second = board_of(0), board_of(1)
    second.write(sessions(a=1))
    assert first.others == sessions(a=1)
    whole = dataclasses.replace(sessions(a=2), lost=Counter(a=1)).encode()
    for part in (whole[:1], whole[:-1], whole + b"\0", b"\x01", b"\xc1"):
        (tmp_path / "1").write_bytes(part)
        assert first.others == sessions(a=1)

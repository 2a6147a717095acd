"""Cost for a gateway of taking a slot under the lock that it shares with the host's other gateways.

    python -m benchmarks.holdings_board --gateways 4 16 --keys 1 100

Processor time of one taking, of which each changes what is held: with the lock to read what the others hold, and to
write. `read` is one look at the others after one of them has written, as for each new context.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable

from realtime_tts.server.admission.slot_counts import Board, Holdings

TIMES, ROUNDS = 300, 5


def cost_us(job: Callable[[int], object]) -> float:
    """Return the µs of a call, in the fastest of some rounds; each call gets its number."""

    def one_round(first: int) -> float:
        begun = time.process_time()
        for number in range(first, first + TIMES):
            job(number)
        return (time.process_time() - begun) / TIMES * 1e6

    return min(one_round(index * TIMES) for index in range(ROUNDS))


def measure(num_gateways: int, num_keys: int) -> tuple[float, float]:
    """Return the µs of taking a slot, and of a read after another gateway has written."""

    def held(number: int) -> Holdings:
        sessions = Counter({f"key{index}": 1 + (number + index) % 7 for index in range(num_keys)})
        return Holdings(sessions=sessions, speaking=sessions)

    with tempfile.TemporaryDirectory() as directory:
        boards = [Board(directory, index, num_gateways) for index in range(num_gateways)]
        for index, board in enumerate(boards):
            board.write(held(index))
        own, *others = boards

        def take(number: int) -> None:
            with own.taking(lambda: held(number)):
                pass

        def write(number: int) -> None:
            others[number % len(others)].write(held(number))

        def write_and_look(number: int) -> None:
            write(number)
            assert own.others.sessions

        result = cost_us(take), max(0.0, cost_us(write_and_look) - cost_us(write))
        for board in boards:
            board.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateways", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 100])
    args = parser.parse_args()
    print("gateways  keys    taking      read")
    for num_gateways in args.gateways:
        for num_keys in args.keys:
            taking_us, read_us = measure(num_gateways, num_keys)
            print(f"{num_gateways:>8}  {num_keys:>4}  {taking_us:>5.0f} µs  {read_us:>5.0f} µs")


if __name__ == "__main__":
    main()

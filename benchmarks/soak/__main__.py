"""Soak campaign against a local server: half an hour of load, misbehaving clients and killed processes, then leaks.

    python -m benchmarks.soak --out soak            the bundled voice, 30 minutes
    python -m benchmarks.soak --fake --minutes 5    a worker without a model, for the gateway alone

Traffic goes to loopback only, is bounded in number and time, and all ends by itself or with Ctrl-C. Linux.
Exit status 1 if a bar was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.soak.campaign import Campaign, Options
from benchmarks.soak.figures import Verdict
from benchmarks.soak.report import HEADER, rows
from realtime_tts.bench.report import document, table, write_json


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of chaos (default 30)")
    parser.add_argument("--rate", type=float, help="turns a second (default: 0.8 of the measured capacity)")
    parser.add_argument("--fake", action="store_true", help="a worker without a model (needs the repository's tests)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    parser.add_argument(
        "--out", type=Path, default=Path("soak"), help="path of the JSON file with all figures, without ending"
    )
    return parser.parse_args()


def main() -> None:
    given = arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which ends as Ctrl-C does: with nothing left running
    options = Options(
        minutes=given.minutes,
        quiet_s=max(30.0, 6 * given.minutes),
        fake=given.fake,
        rate_hz=given.rate,
        seed=given.seed,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as directory:
            result = asyncio.run(Campaign(options, Path(directory)).run())
    except KeyboardInterrupt:
        sys.exit("stopped; all processes are ended")
    found = rows(result, options)
    worker = {"worker": "fake" if options.fake else "real"}
    results = {"rows": found, "campaign": result}
    write_json(given.out.with_suffix(".json"), document("soak", options, worker, results))
    print(table(HEADER, found))
    print("\n".join(result.problems[:20] + result.leftovers))
    sys.exit(any(verdict == Verdict.FAIL for *_, verdict in found))


if __name__ == "__main__":
    main()

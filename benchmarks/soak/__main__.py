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
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.soak.account import History, Outcome, Record, latency_ms
from benchmarks.soak.campaign import Campaign, Options, Result
from benchmarks.soak.figures import MAX_RATIO, MAX_SLOPE_MB_PER_H, Verdict, judge, memory_slope, p95_ratio
from benchmarks.soak.plan import Kind
from realtime_tts.bench.figures import percentile
from realtime_tts.bench.report import document, table, write_json

HEADER = ("subject", "measured", "target", "verdict")
Row = tuple[str, str, str, str]


def rows(result: Result, options: Options) -> list[Row]:
    """Return the rows of the table in docs/lab/soak.md, each with its verdict, or "" where there is no target."""
    records, history = result.records, result.history
    quiet, chaos = latencies_ms(result.quiet_records, history), latencies_ms(records, history)
    ratio = p95_ratio(chaos, quiet, options.seed)
    accepted = sum(record.accepted_s is not None for record in records)
    faults = Counter(outage.kind for outage in history.outages)
    capacity = f"; capacity {result.capacity:.1f} s of audio a second" if result.capacity else ""
    undisturbed_s = max((outage.end_s or outage.start_s for outage in history.outages), default=0.0)
    found: list[Row] = [
        ("load", f"{result.rate_hz:.2f} turns a second{capacity}", "", ""),
        ("turns, attempts, accepted", f"{len({r.turn for r in records})}, {len(records)}, {accepted}", "", ""),
        ("faults", ", ".join(f"{count} × {kind}" for kind, count in faults.items()) or "none", "", ""),
        ("normal turns completed", f"{100 * _completed(records):.1f} %", "", ""),
        ("contexts with a wrong account", f"{len(result.problems)} problems", "0", _none_of(result.problems)),
        ("resources left over", f"{len(result.leftovers)}", "0", _none_of(result.leftovers)),
    ]
    for name, samples in result.samples.items():
        slope = memory_slope([sample for sample in samples if sample.at_s >= undisturbed_s])
        measured = f"{slope} MB/h" if slope else "too short to say"
        found.append((f"{name} memory", measured, f"< {MAX_SLOPE_MB_PER_H:g} MB/h", judge(slope, MAX_SLOPE_MB_PER_H)))
    latencies = " ÷ ".join(f"{percentile(phase, 95):.0f} ms of {len(phase)}" for phase in (chaos, quiet))
    measured = f"{latencies}: {ratio or 'too few to say'}"
    return [*found, ("first packet p95, chaos ÷ quiet", measured, f"≤ {MAX_RATIO:g}", judge(ratio, MAX_RATIO))]


def latencies_ms(records: Sequence[Record], history: History) -> list[float]:
    """Return the times from first text to first packet of the counted clients, ms."""
    return [ms for record in records if (ms := latency_ms(record, history)) is not None]


def _none_of(found: Sequence[str]) -> Verdict:
    return Verdict.FAIL if found else Verdict.PASS


def _completed(records: Sequence[Record]) -> float:
    """Return the share of the honest turns that were spoken to their end, after any number of attempts."""
    first = [record for record in records if record.attempt == 0 and record.kind is Kind.HONEST]
    done = {record.turn for record in records if record.outcome is Outcome.DONE}
    return sum(record.turn in done for record in first) / max(1, len(first))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0, help="of chaos (default 30)")
    parser.add_argument("--rate", type=float, help="turns a second (default: 0.8 of the measured capacity)")
    parser.add_argument("--fake", action="store_true", help="a worker without a model (needs the repository's tests)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default 1)")
    parser.add_argument(
        "--out", type=Path, default=Path("soak"), help="path of the JSON file with all figures, without ending"
    )
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which ends as Ctrl-C does: with nothing left running
    quiet_s = max(30.0, 6 * given.minutes)
    options = Options(minutes=given.minutes, quiet_s=quiet_s, fake=given.fake, rate_hz=given.rate, seed=given.seed)
    try:
        with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as directory:
            result = asyncio.run(Campaign(options, Path(directory)).run())
    except KeyboardInterrupt:
        sys.exit("stopped; all processes are ended")
    found = rows(result, options)
    subject: dict[str, object] = {"worker": "fake" if options.fake else "real"}
    results = {"rows": found, "campaign": result}
    write_json(given.out.with_suffix(".json"), document("soak", options, subject, results))
    print(table(HEADER, found))
    print("\n".join(result.problems[:20] + result.leftovers))
    sys.exit(any(verdict == Verdict.FAIL for *_, verdict in found))


if __name__ == "__main__":
    main()

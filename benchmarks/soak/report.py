"""Table of a campaign's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.soak.account import History, Outcome, Record, counts_for_latency
from benchmarks.soak.campaign import Options, Result
from benchmarks.soak.figures import MAX_RATIO, MAX_SLOPE_MB_PER_H, Verdict, judge, memory_slope, p95_ratio
from benchmarks.soak.plan import Kind
from realtime_tts.bench.figures import percentile

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
    undisturbed_s = max((outage.end_s or result.chaos_s for outage in history.outages), default=result.chaos_s)
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
    return [
        1000 * (record.first_packet_s - record.text_s)
        for record in records
        if counts_for_latency(record, history) and record.first_packet_s is not None and record.text_s is not None
    ]


def _none_of(found: Sequence[str]) -> Verdict:
    return Verdict.FAIL if found else Verdict.PASS


def _completed(records: Sequence[Record]) -> float:
    """Return the share of the honest turns that were spoken to their end, after any number of attempts."""
    first = [record for record in records if record.attempt == 0 and record.kind is Kind.HONEST]
    done = {record.turn for record in records if record.outcome is Outcome.DONE}
    return sum(record.turn in done for record in first) / max(1, len(first))

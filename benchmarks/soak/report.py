"""A campaign's result: JSON for programs, a table for people."""

from __future__ import annotations

import platform
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.soak.account import Outcome, Record, counts_for_latency
from benchmarks.soak.campaign import Result
from benchmarks.soak.figures import (
    MAX_RATIO,
    MAX_SLOPE_MB_PER_H,
    Estimate,
    Verdict,
    judge_ratio,
    judge_slope,
    memory_slope,
    p95,
    p95_ratio,
)
from benchmarks.soak.plan import Kind


def latencies_ms(records: Sequence[Record], result: Result) -> list[float]:
    """Return the times from first text to first packet of the counted clients, ms."""
    return [
        1000 * (record.first_packet_s - record.text_s)
        for record in records
        if counts_for_latency(record, result.history)
        and record.first_packet_s is not None
        and record.text_s is not None
    ]


def make_report(result: Result) -> dict[str, Any]:
    """All figures and verdicts, ready for JSON."""
    quiet, chaos = latencies_ms(result.quiet_records, result), latencies_ms(result.records, result)
    ratio = p95_ratio(chaos, quiet, result.options.seed)
    undisturbed_s = max((outage.end_s or result.chaos_s for outage in result.history.outages), default=result.chaos_s)
    slopes = {
        name: memory_slope([sample for sample in samples if sample.at_s >= undisturbed_s])
        for name, samples in result.samples.items()
    }
    accounted = Verdict.FAIL if result.problems else Verdict.PASS
    verdicts = {
        "every context accounted for": accounted,
        "nothing left over": Verdict.FAIL if result.leftovers else Verdict.PASS,
        **{f"memory of the {name}": judge_slope(slope) for name, slope in slopes.items()},
        "first packet under chaos": judge_ratio(ratio),
    }
    return {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "load_average": {
            "p50": statistics.median(result.load_average or [0.0]),
            "max": max(result.load_average, default=0.0),
        },
        "worker": "fake" if result.options.fake else "real",
        "minutes": result.options.minutes,
        "seed": result.options.seed,
        "capacity_audio_s_per_s": result.capacity,
        "rate_hz": result.rate_hz,
        "turns": len({record.turn for record in result.records}),
        "attempts": len(result.records),
        "accepted": sum(record.accepted_s is not None for record in result.records),
        "not_sent": result.num_not_sent,
        "served_in_the_end": _served(result.records),
        "outcomes": {kind.value: _outcomes(result.records, kind) for kind in Kind},
        "faults": [vars(outage) | {"kind": outage.kind.value} for outage in result.history.outages],
        "first_packet_ms": {
            name: {"count": len(values), "p50": statistics.median(values) if values else None, "p95": p95(values)}
            for name, values in (("quiet", quiet), ("chaos", chaos))
        },
        "p95_ratio": vars(ratio) if ratio else None,
        "memory_slope_mb_per_h": {name: vars(slope) if slope else None for name, slope in slopes.items()},
        "client_lag_ms_p95": 1000 * p95(result.lag_s),
        "problems": result.problems,
        "leftovers": result.leftovers,
        "verdicts": {name: verdict.value for name, verdict in verdicts.items()},
    }


def _outcomes(records: Sequence[Record], kind: Kind) -> dict[str, int]:
    names = (
        f"{record.outcome.value}, {record.code}" if record.code else record.outcome.value
        for record in records
        if record.kind is kind
    )
    return dict(Counter(names).most_common())


def _served(records: Sequence[Record]) -> float:
    """Share of the honest turns that were spoken to their end, with however many questions."""
    first = [record for record in records if record.attempt == 0 and record.kind is Kind.HONEST]
    done = {record.turn for record in records if record.outcome is Outcome.DONE}
    return sum(record.turn in done for record in first) / max(1, len(first))


def as_markdown(report: dict[str, Any]) -> str:
    """The table that belongs into docs/lab/soak.md."""
    first, verdicts = report["first_packet_ms"], report["verdicts"]
    faults = Counter(fault["kind"] for fault in report["faults"])
    capacity = report["capacity_audio_s_per_s"]
    load = f"{report['rate_hz']:.2f} turns a second"
    if capacity:
        load += f"; capacity {capacity:.1f} s of audio a second"
    rows = [
        ("load", load, "", ""),
        ("turns, attempts, accepted", f"{report['turns']}, {report['attempts']}, {report['accepted']}", "", ""),
        ("faults", ", ".join(f"{count} × {kind}" for kind, count in faults.items()) or "none", "", ""),
        ("honest turns spoken in the end", f"{100 * report['served_in_the_end']:.1f} %", "", ""),
        _row("every context accounted for", f"{len(report['problems'])} problems", "0", verdicts),
        _row("nothing left over", "; ".join(report["leftovers"]) or "nothing", "nothing", verdicts),
    ]
    for name, slope in report["memory_slope_mb_per_h"].items():
        shown = f"{Estimate(**slope)} MB/h" if slope else "too short to say"
        rows.append(_row(f"memory of the {name}", shown, f"< {MAX_SLOPE_MB_PER_H:g} MB/h", verdicts))
    ratio = f"{Estimate(**report['p95_ratio'])} ×" if report["p95_ratio"] else "too few to say"
    shown = f"p95 {first['chaos']['p95']:.0f} ms of {first['chaos']['count']}, quiet {first['quiet']['p95']:.0f} ms of "
    shown += f"{first['quiet']['count']}: {ratio}"
    rows.append(_row("first packet under chaos", shown, f"≤ {MAX_RATIO:g} ×", verdicts))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    title = f"{report['worker']} worker, {report['minutes']:g} minutes, seed {report['seed']}, load average "
    title += f"{report['load_average']['p50']:.1f}"
    return "\n".join([f"| {title} | measured | wanted | |", "|---|---|---|---|", *lines])


def _row(name: str, measured: str, wanted: str, verdicts: dict[str, str]) -> tuple[str, str, str, str]:
    return name, measured, wanted, verdicts[name]

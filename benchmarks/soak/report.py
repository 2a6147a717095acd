"""A campaign's result: a table for people, and every figure for programs."""

from __future__ import annotations

import dataclasses
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
    Verdict,
    judge_ratio,
    judge_slope,
    memory_slope,
    p95,
    p95_ratio,
)
from benchmarks.soak.plan import Kind

Row = tuple[str, str, str, Verdict | None]  # subject, measured, wanted, verdict


def rows(result: Result) -> list[Row]:
    """Return the rows of the table in docs/lab/soak.md."""
    records, history = result.records, result.history
    quiet, chaos = latencies_ms(result.quiet_records, result), latencies_ms(records, result)
    ratio = p95_ratio(chaos, quiet, result.options.seed)
    accepted = sum(record.accepted_s is not None for record in records)
    faults = Counter(outage.kind.value for outage in history.outages)
    capacity = f"; capacity {result.capacity:.1f} s of audio a second" if result.capacity else ""
    undisturbed_s = max((outage.end_s or result.chaos_s for outage in history.outages), default=result.chaos_s)
    found: list[Row] = [
        ("worker", "fake" if result.options.fake else "real", "", None),
        ("load average", f"{statistics.median(result.load_average or [0.0]):.1f}", "", None),
        ("load", f"{result.rate_hz:.2f} turns a second{capacity}", "", None),
        ("turns, attempts, accepted", f"{len({r.turn for r in records})}, {len(records)}, {accepted}", "", None),
        ("faults", ", ".join(f"{count} × {kind}" for kind, count in faults.items()) or "none", "", None),
        ("normal turns spoken in the end", f"{100 * _served(records):.1f} %", "", None),
        ("every context accounted for", f"{len(result.problems)} problems", "0", _none_of(result.problems)),
        ("nothing left over", "; ".join(result.leftovers) or "nothing", "nothing", _none_of(result.leftovers)),
    ]
    for name, samples in result.samples.items():
        slope = memory_slope([sample for sample in samples if sample.at_s >= undisturbed_s])
        measured = f"{slope} MB/h" if slope else "too short to say"
        found.append((f"memory of the {name}", measured, f"< {MAX_SLOPE_MB_PER_H:g} MB/h", judge_slope(slope)))
    measured = f"p95 {p95(chaos):.0f} ms of {len(chaos)}, quiet {p95(quiet):.0f} ms of {len(quiet)}: "
    measured += f"{ratio} ×" if ratio else "too few to say"
    return [*found, ("first packet under chaos", measured, f"≤ {MAX_RATIO:g} ×", judge_ratio(ratio))]


def as_markdown(found: Sequence[Row]) -> str:
    lines = [
        f"| {subject} | {measured} | {wanted} | {_text(verdict)} |" for subject, measured, wanted, verdict in found
    ]
    return "\n".join(["| | measured | wanted | |", "|---|---|---|---|", *lines])


def as_json(result: Result, found: Sequence[Row]) -> dict[str, Any]:
    """Return the rows, the outcomes of all attempts by the client's kind, and the raw result but for its samples."""
    return {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "options": dataclasses.asdict(dataclasses.replace(result.options, faults=None)),
        "rows": [[subject, measured, wanted, _text(verdict)] for subject, measured, wanted, verdict in found],
        "outcomes": {kind.value: _outcomes(result.records, kind) for kind in Kind},
        "faults": [vars(outage) | {"kind": outage.kind.value} for outage in result.history.outages],
        "first_packet_ms": {
            "quiet": latencies_ms(result.quiet_records, result),
            "chaos": latencies_ms(result.records, result),
        },
        "client_lag_ms_p95": 1000 * p95(result.lag_s),
        "problems": result.problems,
        "leftovers": result.leftovers,
    }


def latencies_ms(records: Sequence[Record], result: Result) -> list[float]:
    """Return the times from first text to first packet of the counted clients, ms."""
    return [
        1000 * (record.first_packet_s - record.text_s)
        for record in records
        if counts_for_latency(record, result.history)
        and record.first_packet_s is not None
        and record.text_s is not None
    ]


def _none_of(found: Sequence[str]) -> Verdict:
    return Verdict.FAIL if found else Verdict.PASS


def _text(verdict: Verdict | None) -> str:
    return verdict.value if verdict else ""


def _outcomes(records: Sequence[Record], kind: Kind) -> dict[str, int]:
    mine = [record for record in records if record.kind is kind]
    return dict(Counter(", ".join(filter(None, (record.outcome.value, record.code))) for record in mine).most_common())


def _served(records: Sequence[Record]) -> float:
    """Return the share of the honest turns that were spoken to their end, after any number of attempts."""
    first = [record for record in records if record.attempt == 0 and record.kind is Kind.HONEST]
    done = {record.turn for record in records if record.outcome is Outcome.DONE}
    return sum(record.turn in done for record in first) / max(1, len(first))

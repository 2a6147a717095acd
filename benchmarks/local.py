"""Local benchmark with the bundled voice: first packet, real-time factor, parallel streams, barge-in, memory.

    python -m benchmarks.local --json results.json

Absolute times on a shared machine are only good for comparison within one run, so times are given as ratios as well:
to the length of the audio (RTF) or of one frame.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm
from websockets.asyncio.client import ClientConnection

from realtime_tts.bench.native_stream import open_stream, speak
from realtime_tts.bench.report import write_json
from realtime_tts.bench.server_process import RunningServer, running_server, wait_until_ready
from realtime_tts.bench.streams import Heard
from realtime_tts.bench.texts import LONG_TEXT, SENTENCES

FRAME_MS = 20


def import_cost() -> dict[str, float]:
    """Import time of the gateway in a fresh interpreter (median of 5), seconds; and whether torch came along."""
    code = (
        "import sys,time; t=time.perf_counter(); import realtime_tts.server.app; "
        "print(time.perf_counter()-t, int('torch' in sys.modules))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    values = [[float(v) for v in run.stdout.split()] for run in runs]
    return {"import_s": statistics.median(v[0] for v in values), "imports_torch": values[0][1]}


async def single_stream(url: str) -> list[Heard]:
    """The sentences one after another on one connection."""
    async with await open_stream(url) as socket:
        return [await speak(socket, f"one-{i}", text) for i, text in enumerate(tqdm(SENTENCES, desc="one stream"))]


async def parallel_streams(url: str, num_streams: int) -> list[Heard]:
    """Long texts, started 300 ms apart, each on a connection of its own.

    All connections are opened first: a server whose streams are all in use refuses new sessions, and it has few streams
    on a busy machine.
    """

    async def one(index: int, socket: ClientConnection) -> Heard:
        await asyncio.sleep(0.3 * index)
        return await speak(socket, f"many-{index}", LONG_TEXT)

    async with contextlib.AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(await open_stream(url)) for _ in range(num_streams)]
        return list(await asyncio.gather(*(one(index, socket) for index, socket in enumerate(sockets))))


async def barge_ins(url: str, count: int) -> list[dict[str, float]]:
    """Cancel in mid-speech: how long packets still arrive, and when the cancel is acknowledged."""
    results = []
    async with await open_stream(url) as socket:
        for i in tqdm(range(count), desc="barge-in"):
            spoken = await speak(socket, f"cut-{i}", LONG_TEXT, cancel_after_s=0.9 + 0.13 * i)
            assert spoken.cancelled_at_s is not None
            acknowledged_ms = (spoken.ended_s - spoken.cancelled_at_s) * 1000
            results.append({"last_packet_ms": spoken.after_cancel_ms, "acknowledged_ms": acknowledged_ms})
    return results


async def crash(url: str, server: RunningServer) -> dict[str, float]:
    """Kill the workers in mid-speech: until the client is informed, ms, and until the server is ready again, s."""
    async with await open_stream(url) as socket:
        speaking = asyncio.create_task(speak(socket, "crash", LONG_TEXT))
        await asyncio.sleep(1.0)
        for pid in server.worker_pids:
            os.kill(pid, signal.SIGKILL)
        killed = time.perf_counter()
        spoken = await speaking
        told_ms = (time.perf_counter() - killed) * 1000
    if spoken.terminal["type"] != "context.failed":
        raise RuntimeError(f"ended with {spoken.terminal['type']} instead of a failure")
    await asyncio.to_thread(wait_until_ready, server.port)
    return {"told_ms": told_ms, "ready_again_s": time.perf_counter() - killed}


def memory_mib(server: RunningServer) -> dict[str, float]:
    """Resident memory of the gateway and of its workers together, MiB (Linux)."""
    pages = {pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in (server.pid, *server.worker_pids)}
    mib = {pid: number * os.sysconf("SC_PAGE_SIZE") / 2**20 for pid, number in pages.items()}
    return {"gateway": mib.pop(server.pid), "workers": sum(mib.values())}


def engine_rtf() -> dict[str, float]:
    """Time to make all the audio over its length, unpaced, through the Python API; and the first chunk, ms."""
    from realtime_tts import TTS

    rtfs, firsts = [], []
    with TTS() as tts:
        for text in tqdm(SENTENCES, desc="unpaced"):
            start, samples, first = time.perf_counter(), 0, 0.0
            for chunk in tts.generate(text, seed=1):
                first = first or (time.perf_counter() - start) * 1000
                samples += len(chunk)
            rtfs.append((time.perf_counter() - start) / (samples / tts.sample_rate))
            firsts.append(first)
    return {"rtf_p50": statistics.median(rtfs), "rtf_max": max(rtfs), "first_chunk_ms_p50": statistics.median(firsts)}


def measure(num_parallel: int) -> dict[str, Any]:
    """All scenarios; every figure in ms or s as named."""
    report: dict[str, Any] = {"machine": f"{platform.machine()}, {os.cpu_count()} cores", **import_cost()}
    report["engine"] = engine_rtf()
    with running_server("--max-late-ms=0") as server:  # no refusals for lateness, however busy the machine
        report["start_to_ready_s"] = server.ready_s
        report["idle_memory_mib"] = memory_mib(server)
        firsts = sorted(1000 * s.first_s for s in asyncio.run(single_stream(server.stream_url)))
        report["first_packet_ms"] = {"p50": statistics.median(firsts), "max": firsts[-1]}
        report["parallel"] = {}
        for count in range(1, num_parallel + 1):
            spoken = asyncio.run(parallel_streams(server.stream_url, count))
            report["parallel"][count] = {
                f"stalled_at_{int(buffer * 1000)}_ms": sum(bool(s.stalls_s(buffer)) for s in spoken)
                for buffer in (0.0, 0.1, 0.2)
            } | {
                "failed": sum(bool(s.error) for s in spoken),
                "longest_stall_ms": max(max(s.stalls_s(0.0), default=0.0) for s in spoken) * 1000,
                "first_packet_ms_max": max(1000 * s.first_s for s in spoken),
            }
        report["barge_in"] = asyncio.run(barge_ins(server.stream_url, 6))
        report["loaded_memory_mib"] = memory_mib(server)
        report["crash"] = asyncio.run(crash(server.stream_url, server))
    return report


def print_report(report: dict[str, Any]) -> None:
    engine, first = report["engine"], report["first_packet_ms"]
    rows = [
        ("machine", report["machine"]),
        ("gateway import", f"{report['import_s']:.2f} s, torch loaded: {bool(report['imports_torch'])}"),
        ("start to ready", f"{report['start_to_ready_s']:.1f} s"),
        ("idle memory", ", ".join(f"{k} {v:.0f} MiB" for k, v in report["idle_memory_mib"].items())),
        ("RTF, one stream", f"p50 {engine['rtf_p50']:.2f}, max {engine['rtf_max']:.2f}"),
        ("first packet", f"p50 {first['p50']:.0f} ms, max {first['max']:.0f} ms"),
    ]
    for count, row in report["parallel"].items():
        stalled = ", ".join(f"{row[f'stalled_at_{b}_ms']} with {b} ms" for b in (0, 100, 200))
        longest = f"longest {row['longest_stall_ms']:.0f} ms"
        rows.append((f"{count} streams, stalled", f"{stalled} of pre-buffer; {longest}; {row['failed']} failed"))
    last = max(r["last_packet_ms"] for r in report["barge_in"])
    rows.append(("cancel → last packet", f"max {last:.1f} ms = {last / FRAME_MS:.2f} frames"))
    rows.append(("cancel → acknowledgement", f"max {max(r['acknowledged_ms'] for r in report['barge_in']):.1f} ms"))
    crash = report["crash"]
    rows.append(
        (
            "worker killed → client informed",
            f"{crash['told_ms']:.0f} ms; ready again after {crash['ready_again_s']:.1f} s",
        )
    )
    width = max(len(name) for name, _ in rows)
    print("\n".join(f"{name:<{width}}  {value}" for name, value in rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    parser.add_argument("--parallel", type=int, default=3, help="most streams at once (default 3)")
    arguments = parser.parse_args()
    report = measure(arguments.parallel)
    print_report(report)
    if arguments.json:
        write_json(arguments.json, report)


if __name__ == "__main__":
    main()

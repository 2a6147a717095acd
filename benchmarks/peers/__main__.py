"""Comparison of this engine, `nano-vllm-voxcpm` and `voxcpm` on the same work, one after another on one GPU.

    realtime-tts bench checkpoint random-voxcpm2 --shape voxcpm2
    python -m benchmarks.peers --model random-voxcpm2 --json peers.json

Each at its defaults and tuned, 10 flow steps, guidance 2.0, bfloat16, the same texts and lengths; all streams of a row
begin at once. A peer that is not installed is left out and said to be.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.peers.engines import PEERS
from realtime_tts.bench.report import document, figure, table, write_json

_NEEDS = {"nano-vllm-voxcpm": ("nanovllm_voxcpm", "flash_attn"), "voxcpm": ("voxcpm",)}


def lay_out(model: Path, directory: Path) -> Path:
    """The checkpoint as both peers read it: the VAE as a .pth file only, for one of them takes every .safetensors for
    the language model's."""
    import torch
    from safetensors.torch import load_file

    directory.mkdir()
    for path in model.iterdir():
        if path.name != "audiovae.safetensors":
            (directory / path.name).symlink_to(path.resolve())
    if not (directory / "audiovae.pth").exists():
        torch.save({"state_dict": load_file(model / "audiovae.safetensors")}, directory / "audiovae.pth")
    return directory


def environment(directory: Path) -> dict[str, str]:
    """Return the environment of the measuring processes. The peers import a library for reading recordings, which are
    not used here: if it is not installed, an empty module replaces it."""
    stand_ins = directory / "stand-ins"
    for name in ("librosa", "torchaudio"):
        if importlib.util.find_spec(name) is None:
            (stand_ins / name).mkdir(parents=True)
            (stand_ins / name / "__init__.py").touch()
    roots = [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), str(stand_ins)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}


def missing(peer: str) -> list[str]:
    needed = _NEEDS.get(peer.partition(",")[0], ())
    return [name for name in needed if importlib.util.find_spec(name) is None]


def measure(peer: str, arguments: argparse.Namespace, model: Path, env: dict[str, str], out: Path) -> dict[str, Any]:
    """Return the figures, or {"failed": reason}."""
    if lacking := missing(peer):
        return {"failed": f"not installed: {', '.join(lacking)}"}
    options = json.dumps({name: getattr(arguments, name) for name in ("callers", "patches", "runs")})
    command = [sys.executable, "-m", "benchmarks.peers.measure", peer, str(model), str(out), options]
    # A session of its own, so that processes which the engine has started end with it.
    with subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            _, errors = process.communicate(timeout=arguments.timeout_s)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done after {arguments.timeout_s:g} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        return {"failed": " | ".join(errors.strip().splitlines()[-6:])}
    return dict(json.loads(out.read_text(encoding="utf-8")))


def report(results: dict[str, Any], sample_rate: int) -> str:
    ours = {row["streams"]: row for row in results.get("ours", {}).get("rows", ())}
    lines, notes = [], []
    for peer, result in results.items():
        if "failed" in result:
            notes.append(f"{peer}: {result['failed']}")
            continue
        for row in result["rows"]:
            mine, first = ours.get(row["streams"]), row["first_audio_ms"]
            line = [peer, str(row["streams"]), figure(row["step_ms"]), figure(first["p50"]), figure(first["p95"])]
            line += [figure(row["samples_per_s"] / sample_rate), figure(row["pieces"])]
            ratios = (row["step_ms"] / mine["step_ms"], first["p50"] / mine["first_audio_ms"]["p50"]) if mine else ()
            lines.append([*line, *(map(figure, ratios) if ratios else ("–", "–"))])
    header = ["engine", "streams", "step ms", "first audio p50 ms", "p95", "× real time", "pieces"]
    header += ["step ÷ ours", "first ÷ ours"]
    return "\n".join([table(header, lines), *notes])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a checkpoint directory, such as a random one")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 8, 32, 64, 128], help="streams at once")
    parser.add_argument("--patches", type=int, default=40, help="of a stream (default 40)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--timeout-s", type=float, default=600, help="for each engine (default 600)")
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    arguments = parser.parse_args()
    config = json.loads((arguments.model / "config.json").read_text(encoding="utf-8"))
    vae = config["audio_vae_config"]
    with tempfile.TemporaryDirectory(prefix="peers-") as temporary:
        root = Path(temporary)
        theirs, env = lay_out(arguments.model, root / "model"), environment(root)
        results = {}
        for peer in (bar := tqdm(arguments.peers)):
            bar.set_description(peer)
            model = arguments.model if peer == "ours" else theirs
            results[peer] = measure(peer, arguments, model, env, root / "out.json")
            if arguments.json:
                settings = {name: value for name, value in vars(arguments).items() if name not in ("model", "json")}
                write_json(arguments.json, document("peers", settings, {"model": str(arguments.model)}, results))
    print(report(results, vae.get("out_sample_rate", vae["sample_rate"])))


if __name__ == "__main__":
    main()

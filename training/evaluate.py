"""Measures a checkpoint against the teacher on texts held out of training, and writes the figures as JSON.

    python -m training.evaluate --checkpoint realtime_tts/starter_voice --corpus build/corpus

Sections (all of them, or those named by --only): teacher, wer, steps, duration, sound, voices, cloning, drift. Needs
Flite's libraries and pocketsphinx. An interrupted evaluation keeps the sections it has finished, as long as checkpoint
and texts are the same; --again repeats them. What is heard from the teacher is kept beside the corpus, for every
checkpoint: `--only teacher` prepares it. `python -m training.report` makes a table of the figures.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from training.evaluation_pool import Setup, Workers
from training.evaluation_sections import SECTIONS, Evaluation

TEXT_KINDS = ("sentences", "words", "pairs")


def texts_of(corpus: Path, limit: int | None) -> dict[str, list[str]]:
    return {kind: (corpus / f"eval_{kind}.txt").read_text().splitlines()[:limit] for kind in TEXT_KINDS}


def identity(checkpoint: Path, texts: dict[str, list[str]]) -> dict[str, Any]:
    """Return the identity of results: the checkpoint's files and the texts."""
    weights, spoken = hashlib.sha256(), hashlib.sha256()
    files = sorted(path for path in checkpoint.iterdir() if path.suffix in (".safetensors", ".json"))
    for path in files:
        weights.update(path.read_bytes())
    for kind in TEXT_KINDS:
        spoken.update("\n".join(texts[kind]).encode())
    return {
        "sha256": weights.hexdigest()[:16],
        "megabytes": sum(path.stat().st_size for path in files) / 1e6,
        "texts": {kind: len(texts[kind]) for kind in TEXT_KINDS},
        "texts_sha256": spoken.hexdigest()[:16],
    }


def run_sections(
    path: Path, own: dict[str, Any], names: Sequence[str], sections: dict[str, Callable[[], Any]], *, again: bool
) -> dict[str, Any]:
    """Run the sections that `path` does not contain for this checkpoint and these texts; write after each section."""
    results = json.loads(path.read_text()) if path.exists() else {}
    if results.get("checkpoint") != json.loads(json.dumps(own)):
        results = {"checkpoint": own}
    for name in names:
        if again or name not in results:
            results[name] = sections[name]()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(results, indent=1, default=float))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=Path("realtime_tts/starter_voice"))
    parser.add_argument("--corpus", type=Path, default=Path("build/corpus"))
    parser.add_argument("--out", type=Path, default=Path("build/evaluation.json"))
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--limit", type=int, help="texts of each kind")
    parser.add_argument("--steps-every", type=int, default=2, help="sentences of the steps section: 1, all of them")
    parser.add_argument("--workers", type=int, default=2, help="processes, one thread each")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--library-dir", type=Path, help="where Flite's shared libraries lie, if not installed")
    args = parser.parse_args()
    texts = texts_of(args.corpus, args.limit)
    with Workers(Setup(args.checkpoint, args.device, args.library_dir), args.workers) as workers:
        evaluation = Evaluation(workers, args.checkpoint, texts, args.corpus / "teacher_heard.json")
        sections = {name: getattr(evaluation, name) for name in SECTIONS}
        sections["steps"] = functools.partial(evaluation.steps, args.steps_every)
        run_sections(args.out, identity(args.checkpoint, texts), args.only, sections, again=args.again)


if __name__ == "__main__":
    main()

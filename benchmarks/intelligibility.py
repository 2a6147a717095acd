"""Word error rate of a voice on one device compared with another, for the same sentences, voices and seeds.

    python -m benchmarks.intelligibility speak --device cuda --out on-gpu
    python -m benchmarks.intelligibility speak --device cpu --out on-cpu
    python -m benchmarks.intelligibility compare on-gpu on-cpu

Through the engine as it serves, many sentences at once; the speech may be made on one machine and listened to on
another. The exit status of `compare` is 1 if the first is understood worse than the second by more than 2 points and
chance does not explain it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine_speech import Speaker
from benchmarks.sentences import held_out
from realtime_tts.bench.figures import percentile
from realtime_tts.bench.report import document, table, write_json
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.engine.worker import load_checkpoint
from realtime_tts.text.normalizer import Normalizer

_MAX_WORSE = 0.02
_NUM_DRAWS = 2000

Pair = tuple[tuple[int, int], tuple[int, int]]  # for a sentence on two devices: wrong words, words


def speak(arguments: argparse.Namespace) -> None:
    """Speak all sentences in all voices. Write a file of 16-bit samples for each voice, one array for each sentence."""
    options = EngineOptions(
        model=arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        fp8=arguments.fp8,
        flow_steps=arguments.steps,
    )
    loaded, device = load_checkpoint(options)
    charset = loaded.policy.charset
    normalizer = Normalizer("en", None if charset is None else frozenset(charset))
    sentences = held_out(arguments.sentences)
    texts = [normalizer.normalize(sentence).text for sentence in sentences]
    speaker = Speaker(loaded, device, options)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for voice in sorted(loaded.policy.voices) or [None]:
        spoken = speaker.speak(texts, voice, title=voice or "default")
        pcm = {f"{number:03}": (np.clip(heard.pcm, -1, 1) * 32767).astype("<i2") for number, heard in enumerate(spoken)}
        np.savez_compressed(arguments.out / f"{voice or 'default'}.npz", **pcm)
    settings = {"sample_rate": loaded.config.sample_rate, "dtype": str(loaded.model.dtype), "device": str(device)}
    write_json(arguments.out / "settings.json", document("speech", settings, {"model": loaded.name}, sentences))


def compare(arguments: argparse.Namespace) -> None:
    """Word error rates of both, and what lies between them with its 95 % interval over sentences."""
    first, second = (_heard(directory) for directory in (arguments.first, arguments.second))
    if first["sentences"] != second["sentences"]:
        raise SystemExit("they say different sentences")
    voices = {
        voice: list(zip(first["errors"][voice], second["errors"][voice], strict=True)) for voice in first["errors"]
    }
    everything = [pair for pairs in voices.values() for pair in pairs]
    header = ["voice", "words", f"wrong: {arguments.first.name}", arguments.second.name, "difference", "95 % interval"]
    print(table(header, [_row(voice, pairs) for voice, pairs in {**voices, "all": everything}.items()]))
    if arguments.json:
        write_json(arguments.json, document("intelligibility", {}, {}, [first, second]))
    difference, lowest, _ = _difference(everything)
    if difference > _MAX_WORSE and lowest > 0:
        sys.exit(f"understood worse by {difference:.1%}")


def _heard(directory: Path) -> dict[str, Any]:
    """Return recognition results: `errors` by voice, for each sentence (wrong words, words). Stored beside the speech,
    because recognition takes minutes."""
    kept = directory / "heard.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text(encoding="utf-8")))
    import soxr

    from benchmarks.recognition import RECOGNISER_RATE_HZ, count_errors, transcribe_all

    told = json.loads((directory / "settings.json").read_text(encoding="utf-8"))
    sentences, rate_hz = told["results"], told["settings"]["sample_rate"]
    recordings: dict[str, list[Any]] = {}
    for path in sorted(directory.glob("*.npz")):
        with np.load(path) as file:
            audio = [file[name] for name in sorted(file.files)]
        recordings[path.stem] = [soxr.resample(pcm, rate_hz, RECOGNISER_RATE_HZ) for pcm in audio]
    words = transcribe_all([pcm for audio in recordings.values() for pcm in audio])
    errors = [count_errors(*pair) for pair in zip(sentences * len(recordings), words, strict=True)]
    starts = range(0, len(errors), len(sentences))
    by_voice = {name: errors[start : start + len(sentences)] for name, start in zip(recordings, starts, strict=True)}
    result = {"sentences": sentences, "errors": by_voice, "heard": words}
    write_json(kept, result)
    return result


def _row(name: str, pairs: Sequence[Pair]) -> list[str]:
    words = sum(second[1] for _, second in pairs)
    rates = [sum(pair[side][0] for pair in pairs) / words for side in (0, 1)]
    difference, lowest, highest = _difference(pairs)
    rest = [f"{difference:+.2%}", f"{lowest:+.2%} to {highest:+.2%}"]
    return [name, str(words), *(f"{rate:.2%}" for rate in rates), *rest]


def _difference(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """(Difference of the rates, its interval): sentences are drawn again, with both of their outcomes."""
    draw = random.Random(0)

    def rate(chosen: Sequence[Pair]) -> float:
        return sum(one[0] - two[0] for one, two in chosen) / sum(two[1] for _, two in chosen)

    drawn = [rate(draw.choices(pairs, k=len(pairs))) for _ in range(_NUM_DRAWS)]
    return rate(pairs), percentile(drawn, 2.5), percentile(drawn, 97.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    speaker = commands.add_parser("speak", help="make the speech on a device")
    speaker.add_argument("--out", type=Path, required=True, help="a directory for it")
    speaker.add_argument("--model", default="starter-voice")
    speaker.add_argument("--device", default="auto")
    speaker.add_argument("--dtype", default="auto", help="as the worker's")
    speaker.add_argument("--fp8", default="off", help="as the worker's; so is the next one")
    speaker.add_argument("--steps", type=int, default=0)
    speaker.add_argument("--sentences", type=int, default=80, help="of the held-out ones (default 80)")
    speaker.set_defaults(run=speak)
    listener = commands.add_parser("compare", help="listen to what two devices made")
    listener.add_argument("first", type=Path)
    listener.add_argument("second", type=Path)
    listener.add_argument("--json", type=Path, help="write the raw figures here")
    listener.set_defaults(run=compare)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

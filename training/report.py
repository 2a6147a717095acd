"""The table of bars and measured values, from an evaluation's JSON, for docs/starter-voice.md and the model card.

python -m training.report --evaluation build/evaluation.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.drift import POLICIES
from training.flite import VOICES

KINDS = {"sentences": "sentences", "words": "single words", "pairs": "two words"}
Results = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A row of the table. met: None where there is no bar."""

    measure: str
    bar: str
    measured: str
    met: bool | None = None

    def __str__(self) -> str:
        value = f"**{self.measured}**" if self.met is False else self.measured
        return f"| {self.measure} | {self.bar} | {value} |"


def _wer(results: Results) -> list[Line]:
    section = results["wer"]
    lines = []
    for voice in VOICES:
        row = section[voice]
        measured = f"{row['model']:.1f} − {row['teacher']:.1f} = {_difference(row['difference'])}"
        measure = f"word error rate of {section['sentences']} sentences, model − teacher, {voice}"
        lines.append(Line(measure, "≤ 3 points", measured, row["difference"]["points"] <= 3))
    together = section["all"]
    vae = f"{together['teacher_through_vae']:.1f} ({_difference(together['vae_difference'])})"
    ends = together["last_word_missed_percent"]
    after = together["words_after_the_last"]
    return [
        *lines,
        Line("teacher through the VAE alone (over the teacher), the voices together", "–", vae),
        Line("last word not heard, model / teacher", "–", f"{ends['model']:.1f} / {ends['teacher']:.1f} %"),
        Line("words heard after the last, model / teacher", "–", f"{after['model']:.0f} / {after['teacher']:.0f}"),
    ]


def _steps(results: Results) -> list[Line]:
    lines = []
    for steps, row in results["steps"].items():
        measured = f"{row['wer']:.1f} % ({_difference(row['difference'])}), {row['mel_cepstral_db']:.1f} dB"
        lines.append(Line(f"{steps} flow steps: word error rate (over 10 steps), mel-cepstral distance", "–", measured))
    return lines


def _duration(results: Results) -> list[Line]:
    lines = []
    for kind, name in KINDS.items():
        row = results["duration"][kind]
        by_voice = ", ".join(f"{voice} {_percent(row['within_by_voice'][voice])}" for voice in VOICES)
        again = _percent(row["teacher_within"])
        measured = f"{_percent(row['within'])} of {row['count']} ({by_voice}); the teacher, said twice: {again}"
        met = min(row["within_by_voice"].values()) >= 0.99
        lines.append(Line(f"duration within 0.8–1.25 × teacher, {name}", "≥ 99 %", measured, met))
        ends = f"{_percent(row['end_missing'])} / {_percent(row['end_extra'])}"
        lines.append(Line(f"end cut by 0.1 s / babble of 0.2 s after it, {name}", "–", ends))
    return [*lines, _all_durations([results["duration"][kind] for kind in KINDS])]


def _all_durations(rows: list[Results]) -> Line:
    count = sum(row["count"] for row in rows)
    shares = {v: sum(row["count"] * row["within_by_voice"][v] for row in rows) / count for v in VOICES}
    by_voice = ", ".join(f"{voice} {_percent(share)}" for voice, share in shares.items())
    within = _percent(sum(shares.values()) / len(shares))
    measured = f"{within} of {count} ({by_voice})"
    measure = "duration within 0.8–1.25 × teacher, sentences and short texts together"
    return Line(measure, "≥ 99 %", measured, min(shares.values()) >= 0.99)


def _sound(results: Results) -> list[Line]:
    section = results["sound"]
    seams = section["seams"]
    chance = section["elsewhere"]
    jumps = (
        f"{seams['max_jump']:.2f} at most, {seams['over_0_1']} of {seams['loud']} seams over "
        f"(where there is no seam: {chance['over_0_1']} of {chance['loud']})"
    )
    return [
        Line("jump at patch seams over local RMS", "≤ 0.1", jumps, seams["max_jump"] <= 0.1),
        *(
            Line(
                f"mel-cepstral / log-spectral distance to the teacher, {part.upper()}",
                "–",
                f"{section[part]['mel_cepstral_db']:.1f} / {section[part]['log_spectral_db']:.1f} dB",
            )
            for part in ("vae", "tts")
        ),
    ]


def _voices(results: Results) -> list[Line]:
    row = results["voices"]
    measured = f"{_percent(row['accuracy'])} of {row['count']} (teacher {_percent(row['teacher'])})"
    return [Line("named voices told apart", "≥ 98 %", measured, row["accuracy"] >= 0.98)]


def _cloning(results: Results) -> list[Line]:
    row = results["cloning"]
    return [
        Line(
            f"{row['speakers']} unseen speakers: rank correlation of {name} (the speakers themselves on other texts)",
            "≥ 0.8",
            f"{row[key]:.2f} ({row['ceiling'][key]:.3f})",
            row[key] >= 0.8,
        )
        for name, key in (("pitch", "pitch_rho"), ("formants", "formants_rho"))
    ]


def _drift(results: Results) -> list[Line]:
    section = results["drift"]
    lines = []
    for policy in POLICIES:
        row = section[policy]
        for name in ("pitch", "rate"):
            measured = f"{row[name]['percent']:+.1f} % ({row[name]['voice']}; chance ± {row[name]['chance']:.1f})"
            measure = f"drift over {section['segments']} segments, {policy}: {name}, worst voice"
            lines.append(Line(measure, "≤ 5 %", measured, abs(row[name]["percent"]) <= 5))
        joins = row["joins"]
        jumps = (
            f"{joins['max_jump']:.2f} at most ({joins['count'] - joins['loud']} of {joins['count']} fall in silence)"
        )
        lines.append(Line(f"jump where segments join, {policy}", "≤ 0.1", jumps, joins["max_jump"] <= 0.1))
    return lines


def _size(results: Results) -> list[Line]:
    size = results["checkpoint"]["megabytes"]
    return [Line("size", "≤ 25 MB", f"{size:.1f} MB", size <= 25)]


_PARTS: dict[str, Callable[[Results], list[Line]]] = {
    "wer": _wer,
    "duration": _duration,
    "sound": _sound,
    "voices": _voices,
    "cloning": _cloning,
    "drift": _drift,
    "steps": _steps,
    "checkpoint": _size,
}


def lines(results: Results) -> list[Line]:
    """Every measure in order; a section that is missing says so."""
    return [
        line
        for name, part in _PARTS.items()
        for line in (part(results) if name in results else [Line(name, "–", "not measured")])
    ]


def table(results: Results) -> str:
    """Markdown; what misses its bar is bold."""
    return "\n".join(["| measure | bar | measured |", "|---|---|---|", *map(str, lines(results))])


def _difference(row: dict[str, float]) -> str:
    return f"{row['points']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluation", type=Path, default=Path("build/evaluation.json"))
    print(table(json.loads(parser.parse_args().evaluation.read_text())))


if __name__ == "__main__":
    main()

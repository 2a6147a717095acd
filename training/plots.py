"""Draws what a run looked like: its losses, and the teacher's, the VAE's and the voice's spectrogram of one sentence.

    python -m training.plots --build build --checkpoint realtime_tts/starter_voice --out docs/images

writes starter-voice-losses.png and starter-voice-spectrograms.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from realtime_tts.model.checkpoint import LoadedModel, load_model
from training.flite import NAMED_SPEAKERS, SAMPLE_RATE_HZ, Flite, utterance
from training.generation import Line, decode, generate
from training.speech_metrics import Samples

mpl.use("Agg")
from matplotlib import pyplot as plt
from PIL import Image

SENTENCE = "could you please send the invoice to the office in berlin before friday?"
# of each run's log: file, title, the curves' names there
PANELS = (
    ("vae/joint", "VAE, joint", ("mel",)),
    ("vae/decoder", "VAE, decoder", ("mel", "matching", "adversarial")),
    ("tts", "TTS", ("flow", "val_flow")),
    ("tts", "TTS, stop", ("stop", "val_stop")),
)


def curve(log: Path, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one loss, from a log of one JSON object a line."""
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    chosen = [entry for entry in entries if name in entry]
    return [entry["step"] for entry in chosen], [entry[name] for entry in chosen]


def smoothed(values: list[float], width: int = 9) -> np.ndarray:
    """Running mean over at most `width` values, as long as the input."""
    kernel = np.ones(min(width, len(values)))
    return np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same")


def panels_of(build: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    """The panels of those runs that were made: a voice that was trained on may have kept its VAE.

    Raises FileNotFoundError if there is no run at all.
    """
    panels = [panel for panel in PANELS if (build / panel[0] / "log.jsonl").exists()]
    if not panels:
        raise FileNotFoundError(f"no training run's log.jsonl lies under {build}")
    return panels


def plot_losses(build: Path, path: Path) -> None:
    panels = panels_of(build)
    figure, rows = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.6), squeeze=False, constrained_layout=True)
    for axis, (run, title, names) in zip(rows[0], panels, strict=True):
        for name in names:
            steps, values = curve(build / run / "log.jsonl", name)
            if not values:
                continue  # not yet: critics and validation come later than the first losses
            is_validation = name.startswith("val_")
            axis.plot(steps, values if is_validation else smoothed(values), "o-" if is_validation else "-", label=name)
        axis.set(title=title, xlabel="step", yscale="log")
        axis.grid(alpha=0.3, which="both")
        axis.legend()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def plot_spectrograms(loaded: LoadedModel, flite: Flite, path: Path) -> None:
    speaker = NAMED_SPEAKERS[0]
    taught = utterance(flite, SENTENCE, speaker)
    patches = loaded.model.encode_recording(torch.from_numpy(taught.astype(np.float32) / 32768)).numpy()
    policy = loaded.policy
    lines = [Line(SENTENCE, speaker.name)]
    (spoken,) = generate(loaded, lines, [0], steps=policy.default_steps, cfg=policy.default_cfg)
    rows: list[tuple[str, Samples]] = [
        ("teacher (Flite slt)", taught),
        ("teacher through the VAE", decode(loaded, patches)),
        ("starter voice", decode(loaded, spoken)),
    ]
    figure, axes = plt.subplots(3, 1, figsize=(12, 9), sharex=True, constrained_layout=True)
    for axis, (title, samples) in zip(axes, rows, strict=True):
        axis.specgram(samples / 32768 + 1e-6, NFFT=512, Fs=SAMPLE_RATE_HZ, noverlap=384, vmin=-130, vmax=-40)
        axis.set(title=title, ylabel="Hz")
    axes[-1].set_xlabel("seconds")
    figure.savefig(path, dpi=70)
    plt.close(figure)
    Image.open(path).quantize(64).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"), help="where the pipeline worked")
    parser.add_argument("--checkpoint", type=Path, default=Path("realtime_tts/starter_voice"))
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--library-dir", type=Path, help="where Flite's shared libraries lie, if not installed")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    plot_losses(args.build, args.out / "starter-voice-losses.png")
    plot_spectrograms(load_model(args.checkpoint), Flite(args.library_dir), args.out / "starter-voice-spectrograms.png")


if __name__ == "__main__":
    main()

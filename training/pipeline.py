"""The whole recipe in one command: the teacher speaks, the VAE and the TTS model are trained, the voice is written.

    python -m training.pipeline --minutes 28 --hours 150

The teacher speaks while the VAE's joint stage trains on what it has said so far; the VAE's decoder stage runs beside
the TTS training. Of several GPUs all train the joint stage, then the last one the decoder and the others the TTS model.
`--kept FOLDER` goes on from the package's voice and the discriminators that lie there (`training.carry`): then there is
no joint stage. At the end build/starter_voice holds the voice, build/weights its discriminators.

Every stage is a command of its own (README.md) and resumes, so that this one may be run again after a cut. Progress is
the foreground stage's; the others log into the build folder. Needs the script (`training.script`) and the
teacher (`training.unpack_teacher`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch

EXPORT_S = 20.0
# the processes of a stage meet on this host, whatever its name resolves to
TORCHRUN = ("--nnodes=1", "--master-addr=127.0.0.1", "--master-port=29511")
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "4"}
JOINT_SHARE = 0.35  # of the time
DECODER_SHARE = 0.8  # of the time of the TTS training, where both share a GPU
VAE_CHUNKS = 240  # about 70 hours; more would only cost memory


class Pipeline:
    def __init__(self, build: Path, seconds: float) -> None:
        self.build = build
        self._end = time.monotonic() + seconds
        self._background: dict[str, subprocess.Popen[bytes]] = {}

    def seconds_left(self) -> float:
        return self._end - time.monotonic() - EXPORT_S

    def run(self, module: str, *args: object, processes: int = 1) -> None:
        """Wait for a stage, in as many processes. Raises subprocess.CalledProcessError."""
        print(f"== {module} {' '.join(map(str, args))}", file=sys.stderr, flush=True)
        subprocess.run(self._command(module, args, processes), check=True, env={**LOOPBACK, **os.environ})

    def start(self, name: str, module: str, *args: object, gpu: int | None = None) -> None:
        """Run a stage in the background, its output in `name`.log; on a GPU of its own if `gpu` says so."""
        env = dict(os.environ)
        if gpu is not None:
            visible = env.get("CUDA_VISIBLE_DEVICES")
            env["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
        with (self.build / f"{name}.log").open("ab") as log:
            self._background[name] = subprocess.Popen(self._command(module, args), stdout=log, stderr=log, env=env)

    def finish(self, name: str) -> None:
        """Wait for a background stage, if it was started. Raises RuntimeError if it failed."""
        process = self._background.pop(name, None)
        if process is not None and process.wait() != 0:
            raise self._failure(name)

    def stop(self, name: str) -> None:
        """End a background stage; nothing if it was not started or has been waited for."""
        process = self._background.pop(name, None)
        if process is not None:
            process.terminate()
            process.wait()

    def close(self) -> None:
        """Ends what still runs."""
        for name in list(self._background):
            self.stop(name)

    def _failure(self, name: str) -> RuntimeError:
        return RuntimeError(f"{name} failed; its output is in {self.build / name}.log")

    def _command(self, module: str, args: tuple[object, ...], processes: int = 1) -> list[str]:
        launcher = ["-m"]
        if processes > 1:
            launcher = ["-m", "torch.distributed.run", *TORCHRUN, f"--nproc-per-node={processes}"]
            launcher += [f"--log-dir={self.build / 'torchrun'}", "-m", "--"]  # what follows is the stage's
        return [sys.executable, *launcher, module, *map(str, args)]


def recipe(pipeline: Pipeline, args: argparse.Namespace, gpus: int) -> None:
    """All stages that are not finished yet, on `gpus` GPUs."""
    build: Path = args.build
    audio, vae, latents, tts = build / "audio", build / "vae", build / "latents.pt", build / "tts"
    normalised = vae / "normalised.pt"
    common = ["--audio", audio, "--run", vae, "--max-chunks", VAE_CHUNKS]
    if args.kept and not normalised.exists():
        pipeline.run("training.carry", "unpack", "--folder", args.kept, "--build", build)
        shutil.copy(vae / "init.pt", normalised)
    if not (audio / "complete").exists():
        teacher = ["--script", build / "corpus" / "script.tsv", "--teacher", build / "teacher", "--out", audio]
        teacher += ["--hours", args.hours, *(["--kokoro", args.kokoro] if args.kokoro else [])]
        pipeline.start("teacher", "training.teacher", *teacher)
    latents_args = ["--audio", audio, "--vae", normalised, "--out", latents]
    beside_teacher = gpus == 1 and normalised.exists()  # whose processes leave the GPU idle at times
    if beside_teacher:
        pipeline.start("latents", "training.latents", *latents_args, "--follow")
    if not normalised.exists():
        joint = ["--stage", "joint", "--seconds", JOINT_SHARE * 60 * args.minutes]
        pipeline.run("training.vae_training", *common, *joint, processes=gpus)
    decoder_s = pipeline.seconds_left() if gpus > 1 else DECODER_SHARE * pipeline.seconds_left()
    decoder = ["--stage", "decoder", "--seconds", decoder_s, "--min-chunks", 8]
    tts_args: list[object] = ["--latents", latents, "--run", tts]
    if args.kept:
        decoder += ["--init-critics", vae / "init_critics.pt", "--critics-after", 0]
        tts_args += ["--init", build / "tts_init.pt", "--peak-rate", args.tts_rate]
    tts_gpus = max(1, gpus - 1)
    pipeline.start("decoder", "training.vae_training", *common, *decoder, gpu=tts_gpus if gpus > 1 else None)
    pipeline.finish("teacher")
    if beside_teacher:
        pipeline.finish("latents")
    else:
        pipeline.run("training.latents", *latents_args, processes=gpus)
    pipeline.run("training.tts_training", *tts_args, "--more-seconds", pipeline.seconds_left(), processes=tts_gpus)
    pipeline.finish("decoder")
    pipeline.run("training.carry", "pack", "--build", build, "--folder", build / "weights")
    voice = ["--vae", vae / "decoder" / "vae.pt", "--tts", tts / "tts.pt", "--out", build / "starter_voice"]
    pipeline.run("training.export", *voice)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--minutes", type=float, default=28.0, help="for everything")
    parser.add_argument("--hours", type=float, default=110.0, help="of the teacher's speech")
    parser.add_argument(
        "--kept", type=Path, help="go on from the package's voice and these discriminators: training/weights"
    )
    parser.add_argument("--tts-rate", type=float, default=1e-3, help="peak learning rate of the TTS model with --kept")
    parser.add_argument("--kokoro", type=Path, help="where the package kokoro lies, if not installed")
    args = parser.parse_args()
    pipeline = Pipeline(args.build, 60 * args.minutes)
    try:
        recipe(pipeline, args, max(1, torch.cuda.device_count()))
    finally:
        pipeline.close()


if __name__ == "__main__":
    main()

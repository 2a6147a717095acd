"""The whole recipe in one command: the teacher speaks, the VAE and the TTS model are trained, the voice is written.

    python -m training.pipeline --minutes 28 --hours 150

The teacher speaks while the VAE's joint stage trains on what it has said so far; the VAE's decoder stage runs beside
the TTS training. Of several GPUs all train the joint stage, then the last one the decoder and the others the TTS model.
A finished voice is trained on with `--from-checkpoint`; a share of 0 keeps that part of its VAE as it is. If then the
teacher is the slower one, `--rounds` begin on its first hours and take in later what it has said since.

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
from collections.abc import Callable
from pathlib import Path

import torch

from training.teacher import spoken_hours

EXPORT_S = 20.0
# the processes of a stage meet on this host, whatever its name resolves to
TORCHRUN = ("--nnodes=1", "--master-addr=127.0.0.1", "--master-port=29511")
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "4"}
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

    def wait_for(self, name: str, enough: Callable[[], bool]) -> None:
        """Until a background stage has done enough or has ended. Raises RuntimeError if it failed."""
        process = self._background.get(name)
        while process is not None and process.poll() is None and not enough():
            time.sleep(1)
        if process is not None and process.poll():
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
    if not (audio / "complete").exists():
        teacher = ["--script", build / "corpus" / "script.tsv", "--teacher", build / "teacher", "--out", audio]
        teacher += ["--hours", args.hours, *(["--kokoro", args.kokoro] if args.kokoro else [])]
        pipeline.start("teacher", "training.teacher", *teacher)
    if args.from_checkpoint and not (build / "tts_init.pt").exists():
        pipeline.run("training.unpack", "--checkpoint", args.from_checkpoint, "--build", build)
    if not normalised.exists() and args.joint_share > 0:
        joint = ["--stage", "joint", "--seconds", args.joint_share * 60 * args.minutes]
        if args.from_checkpoint:
            joint += ["--init", vae / "init.pt", "--peak-rate", args.continued_rate]
        pipeline.run("training.vae_training", *common, *joint, processes=gpus)
    elif not normalised.exists():
        shutil.copy(vae / "init.pt", normalised)  # a checkpoint's latents are normalised
    trained_vae, tts_gpus = normalised, gpus
    if args.decoder_share > 0:
        trained_vae, tts_gpus = vae / "decoder" / "vae.pt", max(1, gpus - 1)
        decoder_s = args.decoder_share * pipeline.seconds_left()
        decoder = ["--stage", "decoder", "--seconds", decoder_s, "--critics-after", args.critics_after]
        pipeline.start("decoder", "training.vae_training", *common, *decoder, gpu=tts_gpus if gpus > 1 else None)
    tts_args: list[object] = ["--latents", latents, "--run", tts]
    if args.from_checkpoint:
        tts_args += ["--init", build / "tts_init.pt", "--peak-rate", args.continued_rate]
    for rounds_left in range(args.rounds, 0, -1):
        if args.rounds == 1:
            pipeline.finish("teacher")
        else:
            pipeline.wait_for("teacher", lambda: spoken_hours(audio) >= args.hours / args.rounds)
            if rounds_left == 1:
                pipeline.stop("teacher")
        pipeline.run("training.latents", "--audio", audio, "--vae", normalised, "--out", latents, processes=gpus)
        left = pipeline.seconds_left()
        seconds = ["--more-seconds", left, "--session-seconds", left / rounds_left]
        pipeline.run("training.tts_training", *tts_args, *seconds, processes=tts_gpus)
    pipeline.finish("decoder")
    pipeline.run("training.export", "--vae", trained_vae, "--tts", tts / "tts.pt", "--out", build / "starter_voice")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--minutes", type=float, default=28.0, help="for everything")
    parser.add_argument("--hours", type=float, default=150.0, help="of the teacher's speech")
    parser.add_argument(
        "--rounds", type=int, default=1, help="of TTS training, each on what the teacher has said so far"
    )
    parser.add_argument(
        "--joint-share",
        type=float,
        default=0.35,
        help="of the time, for the VAE's joint stage; 0 keeps the encoder of --from-checkpoint",
    )
    parser.add_argument(
        "--decoder-share",
        type=float,
        default=0.8,
        help="of the TTS training's time, beside it; 0 keeps the decoder as it is",
    )
    parser.add_argument("--critics-after", type=float, default=0.6, help="share of the decoder stage without critics")
    parser.add_argument("--from-checkpoint", type=Path, help="train this voice on")
    parser.add_argument("--continued-rate", type=float, default=6e-4, help="peak learning rate of --from-checkpoint")
    parser.add_argument("--kokoro", type=Path, help="where the package kokoro lies, if not installed")
    args = parser.parse_args()
    if args.joint_share == 0 and not args.from_checkpoint:
        parser.error("without a joint stage there is no VAE: --from-checkpoint")
    pipeline = Pipeline(args.build, 60 * args.minutes)
    try:
        recipe(pipeline, args, max(1, torch.cuda.device_count()))
    finally:
        pipeline.close()


if __name__ == "__main__":
    main()

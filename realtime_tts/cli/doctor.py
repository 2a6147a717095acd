"""``realtime-tts doctor``"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import platform
import resource
import time
from collections.abc import Callable

import click

from realtime_tts import __version__
from realtime_tts.cli.options import read_settings
from realtime_tts.cli.remote import ask
from realtime_tts.config import EngineConfig, Settings
from realtime_tts.contract.cores import usable_cores
from realtime_tts.contract.location import check_location
from realtime_tts.contract.policy import ServingPolicy
from realtime_tts.errors import CheckpointError

_EPILOG = """\b
Examples:
  realtime-tts doctor
  realtime-tts doctor --model openbmb/VoxCPM2 --devices cuda:0
  realtime-tts doctor --url http://127.0.0.1:8000
      Report the devices of a running server, without a measurement.
"""
_TEXT = "this sentence tells how fast the machine speaks."


@click.command("doctor", epilog=_EPILOG)
@click.option("--model", help="The model to describe and to measure.  [default: starter-voice]")
@click.option("--devices", help="The device to measure.  [default: auto]")
@click.option("--url", help="Report only the state of this running server and its devices.")
@click.option("--measure/--no-measure", default=True, help="Load the model and measure how fast it speaks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(model: str | None, devices: str | None, url: str | None, measure: bool, as_json: bool) -> None:
    """Report this machine's device, torch build, model, limits and optional packages, and measure its speed."""
    sections: dict[str, Callable[[], dict[str, str]]]
    if url is not None:
        sections = {"Server": lambda: running(url)}
    else:
        settings = read_settings({"model": model, "devices": devices}, None)
        sections = {
            "Machine": machine,
            "Compute": compute,
            "Model": lambda: describe_model(settings.engine.model),
            "Limits": lambda: limits(settings),
            "Packages": packages,
        }
        if measure:
            sections["Speed"] = lambda: asyncio.run(measured(settings.engine))
    report = {}
    for title, rows in sections.items():
        report[title] = rows()
        if not as_json:
            print_rows(title, report[title])
    if as_json:
        click.echo(json.dumps(report, indent=2))


def print_rows(title: str, rows: dict[str, str]) -> None:
    click.secho(title, bold=True)
    width = max(map(len, rows))
    for name, value in rows.items():
        click.echo(f"  {name:<{width}}  {value}")


def running(url: str) -> dict[str, str]:
    """Return the rows of a running server's report.

    Raises:
        RealtimeTTSError: the server cannot be reached, or is not ready.
    """

    ready = ask(url, "/readyz", None)
    rows = {
        "status": f"{ready['status']}, {ready['sessions']} sessions, packets {ready['late_ms']} ms late",
        "workers": f"{ready['workers']} of {len(ready['devices'])} take new contexts",
    }
    for device in ready["devices"]:
        rows[device["worker"]] = f"{device['device'] or 'no device yet'}: {device['state']}, {device['losses']} lost"
    return rows


def machine() -> dict[str, str]:
    """Return the resources that the process may use; a container may have fewer than the machine."""

    return {
        "realtime-tts": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu cores": f"{usable_cores()} usable of {os.cpu_count()}",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.1f} GiB",
    }


def compute() -> dict[str, str]:
    """Return the device that 'auto' selects, and the reason."""
    import torch

    rows = {"torch": f"{torch.__version__}, {torch.get_num_threads()} threads"}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            rows[f"cuda:{index}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        rows["device"] = "cuda:0, the first one; for more workers name them: --devices cuda:0,cuda:1"
        rows["number format"] = "bfloat16"
    else:
        reason = (
            "no NVIDIA driver or device was found" if torch.version.cuda else "this build of torch is for CPUs only"
        )
        rows["device"] = f"cpu: {reason}"
        rows["number format"] = "float32"
    from realtime_tts.engine.runtime.backends import describe_kernels

    return rows | describe_kernels(torch.device("cuda:0" if torch.cuda.is_available() else "cpu"))


def describe_model(model: str) -> dict[str, str]:

    try:
        directory = check_location(model)
    except CheckpointError as error:
        return {"model": model, "files": error.message}
    if directory is None:
        return {"model": model, "files": "not a directory here: they come from the Hugging Face hub or its cache"}
    policy = ServingPolicy.load(directory)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return {
        "model": policy.name or model,
        "files": f"{directory} ({size / 1e6:.0f} MB)",
        "voices": ", ".join(policy.voices) or "zero-shot",
        "languages": ", ".join(policy.languages) or "those of the training data",
        "defaults": f"{policy.default_steps} steps, cfg {policy.default_cfg:g}",
        "word times": str(policy.text_head or "determined at the first load"),
    }


def limits(settings: Settings) -> dict[str, str]:
    from realtime_tts.server.host.gateway_count import gateway_count

    count = gateway_count(settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "contexts in a session": str(settings.server.limits.max_contexts),
        "gateway processes": f"{count.number}: {count.reason}",
        "open files": f"{soft} (at most {hard}); each session takes one: `ulimit -n` raises it",
    }


def packages() -> dict[str, str]:
    """Return the state and the purpose of each optional package."""
    rows = {
        "sounddevice": _package("sounddevice", "`say` to the speaker: pip install sounddevice"),
        "speaker": speaker(),
        "flash-attn": _package("flash_attn", "optional on CUDA, not needed"),
        "quack-kernels": _package(
            "quack", "optional on Hopper GPUs, a step of 23 or more streams takes 3 % less", "quack-kernels"
        ),
    }
    import av

    has_opus = "libopus" in av.codecs_available
    rows["opus encoder"] = f"libopus of PyAV {av.__version__}" if has_opus else "missing from this PyAV: reinstall av"
    from realtime_tts.server.http.routes import PLAYGROUND_DIRECTORIES

    found = [str(path) for path in PLAYGROUND_DIRECTORIES if (path / "index.html").is_file()]
    rows["playground"] = found[0] if found else "not part of this installation"
    return rows


def speaker() -> str:
    """Return the name of the output device to which `say` plays, or why there is none."""
    try:
        sounddevice = importlib.import_module("sounddevice")
    except (ImportError, OSError):
        return "not usable without sounddevice"
    try:
        return str(sounddevice.query_devices(kind="output")["name"])
    except (ValueError, sounddevice.PortAudioError):
        return "no output device was found: `say` needs -o FILE"


def _package(module: str, purpose: str, name: str = "") -> str:
    if importlib.util.find_spec(module) is None:
        return f"not installed ({purpose})"
    try:
        version = importlib.metadata.version(name or module.replace("_", "-"))
        importlib.import_module(module)
    except (ImportError, OSError) as error:
        return f"installed but unusable: {error}"
    return version


async def measured(engine: EngineConfig) -> dict[str, str]:
    """Load the model as a server does, speak a sentence twice, and time the second run.

    Raises:
        RealtimeTTSError: the model cannot be loaded, or speaking fails.
    """
    from realtime_tts.api import AsyncTTS
    from realtime_tts.cli.engine import worker_specs

    click.echo("Measuring …", err=True)
    if check_location(engine.model) is None:
        click.echo(
            f"{engine.model} is downloaded first unless the hub's cache has it (not with --no-measure)", err=True
        )
    begun = time.monotonic()
    async with AsyncTTS(workers=worker_specs(engine)) as tts:
        load_s = time.monotonic() - begun
        for _ in range(2):
            begun, first_s, num_samples = time.monotonic(), 0.0, 0
            async for chunk in tts.generate(_TEXT):
                first_s = first_s or time.monotonic() - begun
                num_samples += len(chunk)
            total_s = time.monotonic() - begun
        audio_s = num_samples / tts.sample_rate
        return {
            "device": tts.device,
            "start to ready": f"{load_s:.1f} s",
            "first audio": f"{1000 * first_s:.0f} ms after the text",
            "word times": tts.word_times,
            "real-time factor": f"{total_s / audio_s:.2f} ({audio_s:.1f} s of speech in {total_s:.2f} s; one stream)",
        }

"""``realtime-tts bench``: measure the engine and the server on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
from tqdm import tqdm

from realtime_tts.bench.arrivals import OpenLoad
from realtime_tts.bench.capacity import CapacityPlan, measure_capacity
from realtime_tts.bench.load_generator import Target
from realtime_tts.bench.report import document, write_json
from realtime_tts.bench.server_load import ServerLoad, default_clients, describe_server
from realtime_tts.bench.server_process import running_server
from realtime_tts.bench.streams import Bar
from realtime_tts.bench.views import capacity_table, engine_table, load_table
from realtime_tts.cli.options import Option, with_options
from realtime_tts.cli.remote import server_url
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.location import STARTER_VOICE
from realtime_tts.errors import ConfigError

Plan = TypeVar("Plan")

_EPILOG = """\b
Examples:
  realtime-tts bench engine
      Steps of the engine with the bundled voice.
  realtime-tts bench checkpoint random-voxcpm2 --shape voxcpm2
  realtime-tts bench engine --model random-voxcpm2 --json engine.json --plot engine.png
      The same with random weights of VoxCPM2's shape, on the GPU if there is one.
"""


@click.group("bench", epilog=_EPILOG)
def command() -> None:
    """Measure the engine and the server: step times, time to first audio, capacity. See docs/lab/benchmarks.md."""


def _numbers(value: str) -> tuple[int, ...]:
    """Parse a list of positive integers, e.g. ``1,2,4``. Raises `click.BadParameter`."""
    with contextlib.suppress(ValueError):
        numbers = tuple(int(part) for part in value.split(","))
        if min(numbers) > 0:
            return tuple(dict.fromkeys(numbers))
    raise click.BadParameter(f"{value!r} is no list of whole numbers such as 1,2,4")


_BY_DEVICE: dict[str, tuple[object, object]] = {}  # defaults on a CPU and on a GPU, by option


def _option(name: str, kind: object = None, default: object = None, text: str | None = None, **more: Any) -> Option:
    if isinstance(default, tuple):
        _BY_DEVICE[name[2:].replace("-", "_")] = default
        on_cpu, on_gpu = (",".join(map(str, each)) if isinstance(each, tuple) else f"{each:g}" for each in default)
        text, default = f"{text}  [default: {on_cpu}; on a GPU {on_gpu}]", None
    shown = default is not None and not isinstance(default, bool)
    return click.option(name, type=kind, default=default, show_default=shown, help=text, **more)


_STREAMS_ON_GPU = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_ABOVE_0 = click.FloatRange(0, min_open=True)
_SHARE = click.FloatRange(0, 1)
_COUNT = click.IntRange(1)
_PATH = click.Path(dir_okay=False, path_type=Path)
_OUTPUT = (
    _option("--json", _PATH, None, "Write every raw figure here."),
    _option("--plot", _PATH, None, "Draw the result: a .png or .svg file. Needs matplotlib."),
)
_MODEL = (
    _option("--model", None, "starter-voice", "A directory, a hub id, or the bundled voice."),
    _option("--device", None, "auto", "auto, cpu, cuda or cuda:N."),
    _option("--threads", _COUNT, None, "Torch threads on the CPU."),
    _option("--steps", click.IntRange(2, 64), None, "Flow steps; by default the model's own."),
    _option("--cfg", click.FloatRange(0, 10), None, "Guidance; by default the model's own."),
)


_Measured = tuple[object, dict[str, object], Any]  # plan, subject, results


def _bench(view: Callable[[Any], str], *options: Option) -> Callable[[Callable[..., _Measured]], click.Command]:
    """Return a decorator that makes a command of a benchmark: it adds the options, replaces missing values by those for
    the device, and prints, writes and draws the results.

    Args:
        view: returns results as a table.
    """

    def add(bench: Callable[..., _Measured]) -> click.Command:
        @functools.wraps(bench)
        def run(json: Path | None, plot: Path | None, **given: object) -> None:
            if plot is not None and importlib.util.find_spec("matplotlib") is None:
                raise ConfigError("--plot needs matplotlib: pip install matplotlib", field="plot")
            if plot is not None and plot.suffix.lower() not in (".png", ".svg"):
                raise ConfigError(f"--plot draws a .png or .svg file, not {plot}", field="plot")
            for path in filter(None, (json, plot)):
                _check_writable(path)
            if "device" in given:
                from realtime_tts.engine.setup import choose_device

                on_gpu = choose_device(str(given["device"])).type != "cpu"
                for name in _BY_DEVICE.keys() & given.keys():
                    given[name] = given[name] or _BY_DEVICE[name][on_gpu]
            plan, subject, results = bench(**given)
            click.echo(view(results))
            if json:
                write_json(json, document(bench.__name__, plan, subject, results))
            if plot:
                from realtime_tts.bench.plots import draw

                draw(bench.__name__, subject, results, plot)
            if getattr(results, "void", ""):
                click.get_current_context().exit(1)

        return command.command(bench.__name__)(with_options(*options, *_OUTPUT)(run))

    return add


@command.command("checkpoint")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@_option("--shape", None, "voxcpm2", "voxcpm2, voxcpm1.5, voxcpm-0.5b, tiny or hollow.")
@_option("--dtype", None, None, "Type of the language and flow weights; by default bfloat16 as published.")
@_option("--device", None, "auto", "Device on which the weights are drawn.")
@_option("--seed", None, 0)
@click.option("--force", is_flag=True, help="Overwrite an existing checkpoint.")
def checkpoint(directory: Path, shape: str, dtype: str | None, device: str, seed: int, force: bool) -> None:
    """Write random weights of a published model's shape to DIRECTORY.

    They take the same time as real weights, without a download. The length of a text determines where its stream ends.
    """
    if (directory / "config.json").exists() and not force:
        raise ConfigError(f"there is a checkpoint in {directory} already; --force writes over it", field="directory")
    from realtime_tts.bench.checkpoint import write_random_checkpoint
    from realtime_tts.engine.setup import choose_device

    write_random_checkpoint(directory, shape, device=choose_device(device), dtype=dtype, seed=seed)
    size = sum(path.stat().st_size for path in directory.iterdir())
    click.echo(f"{directory}: {size / 1e6:,.0f} MB")


@command.command("adapter")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@_option("--model", None, STARTER_VOICE, "Model that the adapter is for.")
@_option("--rank", _COUNT, 4)
@_option("--seed", None, 0)
def adapter(directory: Path, model: str, rank: int, seed: int) -> None:
    """Write a LoRA adapter with random weights to DIRECTORY, to try --adapters with."""
    if (directory / "lora_config.json").exists():
        raise ConfigError(f"there is an adapter in {directory} already", field="directory")
    from realtime_tts.bench.checkpoint import write_random_adapter

    write_random_adapter(directory, model, rank=rank, seed=seed)
    click.echo(f"{directory}: try it with realtime-tts say --adapter {directory} 'Hello there.' -o hello.wav")


@_bench(
    engine_table,
    _option("--batches", _numbers, ((1, 2, 4, 8), _STREAMS_ON_GPU), "Streams at once.", metavar="N,N,…"),
    _option("--num-steps", _COUNT, (30, 60), "Steps measured in each run."),
    _option("--runs", _COUNT, 3),
    *_MODEL,
    _option("--dtype", None, None, "float32, bfloat16 or float16; by default the worker's choice."),
    _option("--fp8", click.Choice(("off", "flow")), "off", "Same as `serve`'s."),
)
def engine(**options: Any) -> _Measured:
    """Measure the duration of an engine step and of its stages, by the number of streams."""
    from realtime_tts.bench.engine_steps import StepMeasurement, measure_steps
    from realtime_tts.bench.subject import Subject

    plan = _plan(StepMeasurement, options, num_warm=10)
    click.echo(f"Loading {options['model']} …", err=True)
    given = {name: value for name, value in {**options, "flow_steps": plan.steps}.items() if value is not None}
    subject = Subject.load(EngineOptions(**given, max_streams=max(plan.batches)))
    gc.collect()
    gc.freeze()  # the same as in a worker
    click.get_current_context().call_on_close(gc.unfreeze)
    with _progress() as bar:
        rows = measure_steps(subject, plan, bar.set_description_str)
    return plan, subject.describe(), rows


@_bench(
    capacity_table,
    _option("--url", None, None, "Running server, such as http://127.0.0.1:8000; without it one is started."),
    _option("--api-key", None, None, "The server's API key.", envvar="REALTIME_TTS_API_KEY", show_envvar=True),
    _option("--clients", _COUNT, None, "Measuring processes.  [default: a quarter of the cores]"),
    _option("--words", click.IntRange(1, 20), (6, 10), "Words of a turn."),
    _option("--codec", None, "opus", "Codec of the audio: opus, pcm_s16le …"),
    _option("--max-streams", _COUNT, (16, 1024), "Slots of the engine."),
    _option("--server-option", None, None, "Pass this on to `serve`, e.g. --max-queued=64.", multiple=True),
    _option("--first-audio-ms", _ABOVE_0, 100.0, "The p95 that must be held."),
    _option("--stall-free", _SHARE, 0.999, "Share of streams that must never stall."),
    _option("--pre-buffer-ms", click.FloatRange(0), 0.0, "Pre-buffer of the player that must not stall."),
    _option("--start", _ABOVE_0, (2.0, 128.0), "Streams at once to try first."),
    _option("--window-s", _ABOVE_0, (5.0, 12.0), "Measured part of a trial."),
    _option("--precision", _ABOVE_0, (0.5, 0.05), "Share between what holds and what does not."),
    _option("--max-trials", _COUNT, (5, 9), "Trials of the search; more confirm it."),
    _option("--runs", _COUNT, 3, "Different arrivals that must all hold."),
    *_MODEL,
)
def server(
    url: str | None,
    api_key: str | None,
    clients: int | None,
    words: int,
    codec: str,
    server_option: tuple[str, ...],
    **options: object,
) -> _Measured:
    """Find the highest number of simultaneous streams through a server's WebSocket, and what limits it.

    The limits are first audio and stalls. Open loop: arrivals are Poisson, never wait and are never refused, and a
    stream's time counts from when its text was due. The listeners run in separate processes.
    """
    plan = _plan(CapacityPlan, options, bar=_plan(Bar, options))
    params = {name: options[name] for name in ("steps", "cfg") if options[name] is not None}
    start = {"audio": {"codec": codec}, **({"params": params} if params else {})}
    flags = {"model": "model", "device": "devices", "threads": "threads", "max_streams": "max-streams"}
    with contextlib.ExitStack() as stack:
        if url is None:
            click.echo(f"Starting a server with {options['model']} …", err=True)
            given = [f"--{flag}={options[name]}" for name, flag in flags.items() if options[name] is not None]
            running = stack.enter_context(running_server(*given, *server_option))
            address, pids = running.stream_url, [running.pid]
        else:
            address, pids = server_url(url, "/v1/stream", "ws"), []
        target = Target(address, pids, clients or default_clients(), words, start, api_key)
        subject, driver = describe_server(target), ServerLoad(target)
        with _progress() as bar:
            bar.set_description_str("one stream alone")
            driver.measure_turn()
            alone_ms = [driver.alone() for _ in range(plan.runs)]
            result = measure_capacity(driver, plan, bar.set_description_str)
        result.alone_ms = alone_ms
    return plan, subject, result


@_bench(
    load_table,
    _option("--url", None, None, "Running server, such as ws://127.0.0.1:8000.", required=True),
    click.option("--token", "--api-key", envvar="REALTIME_TTS_API_KEY", help="API key or token of the server."),
    _option("--streams", _ABOVE_0, None, "Concurrent listeners, with even arrivals."),
    _option("--rate", _ABOVE_0, None, "Turns a second, with random (Poisson) arrivals."),
    _option("--seconds", _ABOVE_0, 30.0, "Measured time."),
    _option("--processes", _COUNT, None, "Listening processes.  [default: a quarter of the cores]"),
    _option("--codec", None, "opus", "Codec of the audio: opus, pcm, pcm_f32le …"),
    _option("--sample-rate", int, None, "Sample rate of the audio in Hz; by default the server's choice."),
    _option(
        "--text-rate", click.FloatRange(0), 20.0, "Tokens a second, as an LLM writes them; 0: a whole text at once."
    ),
    _option("--words", click.IntRange(1, 200), 20, "Words of a turn."),
    _option("--barge-ins", _SHARE, 0.0, "Share of turns that are interrupted."),
    _option("--pid", int, None, "Process of a local server; its processor time is measured.", multiple=True),
    _option("--seed", None, 0, "Seed of the arrivals."),
)
def load(
    url: str,
    token: str | None,
    streams: float | None,
    rate: float | None,
    seconds: float,
    processes: int | None,
    codec: str,
    sample_rate: int | None,
    text_rate: float,
    words: int,
    barge_ins: float,
    pid: tuple[int, ...],
    seed: int,
) -> _Measured:
    """Apply one load to any server over WebSockets; measure latency, stalls and cost.

    Open loop: turns begin at their times, independent of earlier turns, and each listener plays in real time from its
    first packet on. If the generator itself is late, the figures are void: it reports this and ends with status 1.
    """
    if (streams is None) == (rate is None):
        raise ConfigError("either --streams or --rate says how large the load is", field="streams")
    audio = {"codec": {"pcm": "pcm_s16le"}.get(codec, codec), **({"sample_rate": sample_rate} if sample_rate else {})}
    address = server_url(url, "/v1/stream", "ws")
    token_gap_s = 1 / text_rate if text_rate else 0.0
    target = Target(address, pid, processes or default_clients(), words, {"audio": audio}, token, token_gap_s)
    driver = ServerLoad(target)
    subject = describe_server(target)
    driver.measure_turn()
    rate_per_s = rate or (streams or 0.0) / driver.turn_s
    plan = OpenLoad(rate_per_s, driver.turn_s, seconds, rate is None, barge_ins)
    told = "{0[running]} speak, {0[ended]} have ended, {0[errors]} errors"
    with _progress(f"{{desc}}, {{elapsed}} of about {plan.end_s:.0f} s") as bar:
        driver.on_now = lambda now: bar.set_description_str(told.format(now))
        result = driver.run(plan, seed)
    return {**dataclasses.asdict(plan), "seed": seed}, subject, result


def _check_writable(path: Path) -> None:
    """Check an output file, and create its directory, before what is to be written is measured. Raises ConfigError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not os.path.lexists(path)
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _plan(kind: type[Plan], options: dict[str, Any], **more: object) -> Plan:
    """Return a plan made of the options with the names of its fields, which are removed from `options`."""
    names = [field.name for field in dataclasses.fields(kind) if field.name in options]  # type: ignore[arg-type]
    return kind(**more, **{name: options.pop(name) for name in names})


def _progress(bar_format: str = "{desc}, {elapsed}") -> tqdm[NoReturn]:
    """Return a line on stderr that names what is being measured."""
    return tqdm(leave=False, bar_format=bar_format)

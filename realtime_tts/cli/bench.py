"""``realtime-tts bench``: measure the engine and the server on this machine."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from realtime_tts.errors import ConfigError

if TYPE_CHECKING:
    from realtime_tts.bench.capacity import CapacityPlan
    from realtime_tts.bench.subject import Subject

Command = Callable[..., Any]

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


def _model_options(bench: Command) -> Command:
    """Add the options of every benchmark that loads a model."""
    options = (
        click.option(
            "--model", default="starter-voice", show_default=True, help="A directory, a hub id, or the bundled voice."
        ),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."),
        click.option("--threads", type=click.IntRange(1), help="Torch threads on the CPU."),
        click.option("--steps", type=click.IntRange(2, 64), help="Flow steps; by default the model's own."),
        click.option("--cfg", type=click.FloatRange(0, 10), help="Guidance; by default the model's own."),
    )
    for option in reversed(options):
        bench = option(bench)
    return _output_options(bench)


def _engine_options(bench: Command) -> Command:
    """Add the options of a benchmark with its own engine; for a server they are passed by --server-option."""
    time_of_flow = click.FloatRange(0, 1)
    options = (
        click.option("--dtype", help="float32, bfloat16 or float16; by default the worker's choice."),
        click.option(
            "--fp8", type=click.Choice(("off", "flow")), default="off", show_default=True, help="As `serve`'s."
        ),
        click.option("--guidance-from", type=time_of_flow, default=1.0, show_default=True, help="As `serve`'s."),
        click.option("--guidance-to", type=time_of_flow, default=0.0, show_default=True, help="Where guidance ends."),
    )
    for option in reversed(options):
        bench = option(bench)
    return _model_options(bench)


def _output_options(bench: Command) -> Command:
    path = click.Path(dir_okay=False, path_type=Path)
    bench = click.option("--plot", type=path, help="Draw the result: a .png or .svg file. Needs matplotlib.")(bench)
    return click.option("--json", "json_path", type=path, help="Write every raw figure here.")(bench)


def _numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Parse a list of positive integers, e.g. ``1,2,4``. Raises `click.BadParameter`."""
    if value is None:
        return None
    try:
        numbers = tuple(int(part) for part in value.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise click.BadParameter(f"{value!r} is no list of whole numbers such as 1,2,4")
    return tuple(dict.fromkeys(numbers))


@command.command("checkpoint")
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@click.option("--shape", default="voxcpm2", show_default=True, help="voxcpm2, voxcpm1.5, voxcpm-0.5b or tiny.")
@click.option("--dtype", help="Type of the language and flow weights; by default bfloat16 as published.")
@click.option("--device", default="auto", show_default=True, help="Device on which the weights are drawn.")
@click.option("--seed", default=0, show_default=True)
@click.option("--force", is_flag=True, help="Overwrite an existing checkpoint.")
def checkpoint(directory: Path, shape: str, dtype: str | None, device: str, seed: int, force: bool) -> None:
    """Write random weights of a published model's shape to DIRECTORY.

    They take the same time as real weights, without a download. The length of a text determines where its stream ends.
    """
    if (directory / "config.json").exists() and not force:
        raise ConfigError(f"there is a checkpoint in {directory} already; --force writes over it", field="directory")
    from tqdm import tqdm

    from realtime_tts.bench.checkpoint import write_random_checkpoint
    from realtime_tts.engine.setup import choose_device

    with tqdm(desc=shape, unit=" values", unit_scale=True) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        write_random_checkpoint(
            directory, shape, device=choose_device(device), dtype=dtype, seed=seed, progress=progress
        )
    size = sum(path.stat().st_size for path in directory.iterdir())
    click.echo(f"{directory}: {size / 1e6:,.0f} MB")


@command.command("engine")
@click.option(
    "--batches", callback=_numbers, metavar="N,N,…", help="Streams at once.  [default: 1,2,4,8; on a GPU up to 256]"
)
@click.option("--num-steps", type=click.IntRange(1), help="Steps measured in each run.  [default: 30; on a GPU 60]")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--split/--no-split", default=True, help="Also measure the stages of a step, in a run of its own.")
@_engine_options
def engine(
    batches: tuple[int, ...] | None,
    num_steps: int | None,
    runs: int,
    split: bool,
    steps: int | None,
    cfg: float | None,
    json_path: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    """Measure the duration of an engine step and of its stages, by the number of streams."""
    _check_plot(plot)
    from realtime_tts.bench.engine_steps import StepPlan, default_batches, measure_steps, num_parts
    from realtime_tts.bench.views import engine_table

    subject = _load({**options, "flow_steps": steps}, batches)
    is_cpu = subject.device.type == "cpu"
    plan = StepPlan(
        batches or default_batches(subject.device),
        num_steps or (30 if is_cpu else 60),
        num_warm=5 if is_cpu else 10,
        runs=runs,
        steps=steps,
        cfg=cfg,
        split=split,
    )
    with _Bar(num_parts(plan)) as bar:
        rows = measure_steps(subject, plan, bar.next)
    click.echo(engine_table(rows))
    _keep("engine", plan, subject.describe(), rows, json_path, plot)


@command.command("latency")
@click.option("--callers", callback=_numbers, metavar="N,N,…", help="At once.  [default: 1,2,4; on a GPU up to 256]")
@click.option("--num-streams", type=click.IntRange(1), help="Judged in each run.  [default: 4; on a GPU 20]")
@click.option("--patches", type=click.IntRange(1), help="Length of a stream.  [default: 12; on a GPU 40]")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@_engine_options
def latency(
    callers: tuple[int, ...] | None,
    num_streams: int | None,
    patches: int | None,
    runs: int,
    steps: int | None,
    cfg: float | None,
    json_path: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    """Measure the engine's time to first audio and real-time factor, with repeated and with simultaneous requests."""
    _check_plot(plot)
    from realtime_tts.bench.latency import LatencyPlan, default_callers, measure_latency
    from realtime_tts.bench.views import latency_table

    subject = _load({**options, "flow_steps": steps}, callers)
    is_cpu = subject.device.type == "cpu"
    plan = LatencyPlan(
        callers or default_callers(subject.device),
        num_streams or (4 if is_cpu else 20),
        patches or (12 if is_cpu else 40),
        runs,
        steps,
        cfg,
    )
    with _Bar(plan.num_parts) as bar:
        rows = measure_latency(subject, plan, bar.next)
    click.echo(latency_table(rows))
    _keep("latency", plan, subject.describe(), rows, json_path, plot)


def _capacity_options(bench: Command) -> Command:
    """Add the options for the criteria and the duration of a search for the capacity."""
    above_0 = click.FloatRange(0, min_open=True)
    rows: tuple[tuple[str, Any, Any, str], ...] = (
        ("--first-audio-ms", above_0, 100.0, "The p95 that must be held."),
        ("--stall-free", click.FloatRange(0, 1), 0.999, "Share of streams that must never stall."),
        ("--pre-buffer-ms", click.FloatRange(0), 0.0, "Pre-buffer of the player that must not stall."),
        ("--start", above_0, None, "Streams at once to try first.  [default: 2; on a GPU 128]"),
        ("--window-s", above_0, None, "Measured part of a trial.  [default: 5; on a GPU 12]"),
        ("--precision", above_0, None, "Share between what holds and what does not.  [default: 0.5; on a GPU 0.05]"),
        ("--max-trials", click.IntRange(1), None, "Trials of the search; more confirm it.  [default: 5; on a GPU 9]"),
        ("--runs", click.IntRange(1), 3, "Different arrivals that must all hold."),
    )
    options = [
        click.option(name, type=kind, default=default, show_default=default is not None, help=text)
        for name, kind, default, text in rows
    ]
    for option in reversed(options):
        bench = option(bench)
    return bench


@command.command("capacity")
@click.option("--patches", type=click.IntRange(1), help="Length of a stream.  [default: 12; on a GPU 40]")
@click.option("--max-streams", type=click.IntRange(1), help="Slots of the engine.  [default: 16; on a GPU 1024]")
@_capacity_options
@_engine_options
def capacity(
    patches: int | None,
    max_streams: int | None,
    steps: int | None,
    cfg: float | None,
    json_path: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    """Find the highest number of simultaneous streams within the limits for first audio and stalls, in process.

    Open loop: arrivals are Poisson, never wait and are never refused, and a stream's time counts from when its text was
    due.
    """
    _check_plot(plot)
    from realtime_tts.bench.capacity import measure_capacity
    from realtime_tts.bench.in_process import InProcess
    from realtime_tts.bench.views import capacity_table
    from realtime_tts.engine.setup import choose_device

    is_cpu = choose_device(options["device"]).type == "cpu"
    plan = _capacity_plan(options, is_cpu)
    subject = _load({**options, "flow_steps": steps}, (max_streams or (16 if is_cpu else 1024),))
    with _Bar(None) as bar:
        bar.next("warming up")
        driver = InProcess(subject, patches or (12 if is_cpu else 40), steps, cfg)
        result = measure_capacity(driver, plan, bar.next, driver.steps)
    click.echo(capacity_table(result))
    _keep("capacity", plan, subject.describe(), result, json_path, plot)


@command.command("server")
@click.option("--url", help="Running server, such as http://127.0.0.1:8000; without it one is started.")
@click.option("--api-key", envvar="REALTIME_TTS_API_KEY", help="The server's API key.")
@click.option("--clients", type=click.IntRange(1), help="Measuring processes.  [default: a quarter of the cores]")
@click.option("--words", type=click.IntRange(1, 20), help="Words of a turn.  [default: 6; on a GPU 10]")
@click.option("--codec", default="opus", show_default=True, help="Codec of the audio: opus, pcm_s16le …")
@click.option("--max-streams", type=click.IntRange(1), help="Slots of the engine.  [default: 16; on a GPU 1024]")
@click.option("--server-option", "server_options", multiple=True, help="Pass this on to `serve`, e.g. --max-queued=64.")
@_capacity_options
@_model_options
def server(
    url: str | None,
    api_key: str | None,
    clients: int | None,
    words: int | None,
    codec: str,
    max_streams: int | None,
    server_options: tuple[str, ...],
    steps: int | None,
    cfg: float | None,
    json_path: Path | None,
    plot: Path | None,
    **options: Any,
) -> None:
    """Find the highest number of simultaneous streams through a server's WebSocket, and what limits it.

    The criteria are those of `bench capacity`; the listeners run in separate processes.
    """
    _check_plot(plot)
    from realtime_tts.bench.server_load import Target, default_clients
    from realtime_tts.bench.server_process import running_server
    from realtime_tts.bench.server_run import describe_server, measure_server
    from realtime_tts.bench.views import server_table
    from realtime_tts.cli.remote import server_url
    from realtime_tts.engine.setup import choose_device

    is_cpu = choose_device(options["device"]).type == "cpu"
    plan = _capacity_plan(options, is_cpu)
    params = {name: value for name, value in (("steps", steps), ("cfg", cfg)) if value is not None}
    start = {"audio": {"codec": codec}, **({"params": params} if params else {})}
    flags = [
        f"--{name}={value}"
        for name, value in (
            ("model", options["model"]),
            ("devices", options["device"]),
            ("threads", options["threads"]),
            ("max-streams", max_streams or (16 if is_cpu else 1024)),
        )
        if value is not None
    ]
    with contextlib.ExitStack() as stack:
        if url is None:
            click.echo(f"Starting a server with {options['model']} …", err=True)
            running = stack.enter_context(running_server(*flags, *server_options))
            address, watched = running.stream_url, running.watched
        else:
            address, watched = server_url(url, "/v1/stream", "ws"), None
        num_words = words or (6 if is_cpu else 10)
        target = Target(address, watched, clients or default_clients(), num_words, start, api_key)
        with _Bar(None) as bar:
            result = measure_server(target, plan, bar.next)
        subject = describe_server(target)
    click.echo(server_table(result))
    _keep("server", plan, subject, result, json_path, plot)


@command.command("load")
@click.option("--url", required=True, help="Running server, such as ws://127.0.0.1:8000.")
@click.option("--token", "--api-key", "api_key", envvar="REALTIME_TTS_API_KEY", help="API key or token of the server.")
@click.option("--streams", type=click.FloatRange(0, min_open=True), help="Concurrent listeners, with even arrivals.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Turns a second, with random (Poisson) arrivals.")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), default=30.0, show_default=True, help="Measured time."
)
@click.option("--processes", type=click.IntRange(1), help="Listening processes.  [default: a quarter of the cores]")
@click.option("--codec", default="opus", show_default=True, help="Codec of the audio: opus, pcm, pcm_f32le …")
@click.option("--sample-rate", type=int, help="Sample rate of the audio in Hz; by default the server's choice.")
@click.option(
    "--text-rate",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    help="Tokens a second, as an LLM writes them; 0: a turn's whole text at once.",
)
@click.option("--words", type=click.IntRange(1, 200), default=20, show_default=True, help="Words of a turn.")
@click.option(
    "--barge-ins",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of turns that are interrupted.",
)
@click.option(
    "--pid", "pids", type=int, multiple=True, help="Process of a local server; its processor time is measured."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the arrivals.")
@_output_options
def load(
    url: str,
    api_key: str | None,
    streams: float | None,
    rate: float | None,
    seconds: float,
    processes: int | None,
    codec: str,
    sample_rate: int | None,
    text_rate: float,
    words: int,
    barge_ins: float,
    pids: tuple[int, ...],
    seed: int,
    json_path: Path | None,
    plot: Path | None,
) -> None:
    """Apply one load to any server over WebSockets; measure latency, stalls and cost.

    Open loop: turns begin at their times, independent of earlier turns, and each listener plays in real time from its
    first packet on. If the generator itself is late, the figures are void: it reports this and ends with status 1.
    """
    _check_plot(plot)
    if (streams is None) == (rate is None):
        raise ConfigError("either --streams or --rate says how large the load is", field="streams")
    from tqdm import tqdm

    from realtime_tts.bench.load_run import LoadPlan, measure_load
    from realtime_tts.bench.server_load import Target, default_clients
    from realtime_tts.bench.server_run import describe_server
    from realtime_tts.bench.usage import Watched, text_getter
    from realtime_tts.bench.views import load_table
    from realtime_tts.cli.remote import server_url

    audio = {"codec": {"pcm": "pcm_s16le"}.get(codec, codec), **({"sample_rate": sample_rate} if sample_rate else {})}
    address = server_url(url, "/v1/stream", "ws")
    target = Target(
        address,
        Watched(pids, text_getter(address, api_key)) if pids else None,
        processes or default_clients(),
        words,
        {"audio": audio},
        api_key,
        1 / text_rate if text_rate else 0.0,
    )
    plan = LoadPlan(streams, rate, seconds, barge_ins, seed)
    subject = describe_server(target)
    with tqdm(desc="one turn", unit="s", leave=False, bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}") as bar:

        def begin(total_s: float) -> None:
            bar.reset(round(total_s))

        def on_now(now: dict[str, int]) -> None:
            bar.set_description_str(f"{now['running']} speak, {now['ended']} have ended, {now['errors']} errors", False)
            bar.update(min(round(bar.format_dict["elapsed"]), bar.total) - bar.n)

        result = measure_load(target, plan, begin, on_now)
    click.echo(load_table(result))
    _keep("load", plan, subject, result, json_path, plot)
    if result["void"]:
        click.get_current_context().exit(1)


def _capacity_plan(options: dict[str, Any], is_cpu: bool) -> CapacityPlan:
    """Return the plan, and remove its options from `options`."""
    from realtime_tts.bench.capacity import CapacityPlan
    from realtime_tts.bench.streams import Bar

    bar = Bar(options.pop("first_audio_ms") / 1000, options.pop("stall_free"), options.pop("pre_buffer_ms") / 1000)
    usual = (2.0, 5.0, 0.5, 5) if is_cpu else (128.0, 12.0, 0.05, 9)
    names = ("start", "window_s", "precision", "max_trials")
    chosen: dict[str, Any] = {name: options.pop(name) or value for name, value in zip(names, usual, strict=True)}
    return CapacityPlan(bar, runs=options.pop("runs"), **chosen)


def _load(options: dict[str, Any], batches: tuple[int, ...] | None) -> Subject:
    from realtime_tts.bench.engine_steps import default_batches
    from realtime_tts.bench.subject import Subject
    from realtime_tts.contract.engine_options import EngineOptions
    from realtime_tts.engine.setup import choose_device

    click.echo(f"Loading {options['model']} …", err=True)
    wanted = max(batches or default_batches(choose_device(options["device"])))
    given = {name: value for name, value in options.items() if value is not None}
    subject = Subject.load(EngineOptions(max_streams=wanted, **given))
    gc.collect()
    gc.freeze()  # the same as in a worker
    click.get_current_context().call_on_close(gc.unfreeze)
    return subject


def _keep(
    bench: str, plan: Any, subject: dict[str, Any], results: Any, json_path: Path | None, plot: Path | None
) -> None:
    import dataclasses

    from realtime_tts.bench.report import document, write_json

    whole = document(bench, dataclasses.asdict(plan), subject, results)
    if json_path:
        write_json(json_path, whole)
    if plot:
        from realtime_tts.bench.plots import draw

        draw(whole, plot)


def _check_plot(plot: Path | None) -> None:
    """Check that plots can be drawn, before minutes of work. Raises `ConfigError` without matplotlib."""
    import importlib.util

    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install matplotlib", field="plot")


class _Bar:
    """Progress bar on stderr that names the current part. `num_parts`: None if unknown."""

    def __init__(self, num_parts: int | None) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=num_parts, leave=False)
        self._begun = False

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.close()

    def next(self, what: str) -> None:
        """Mark the previous part as done, and begin the next one."""
        if self._begun:
            self._bar.update()
        self._begun = True
        self._bar.set_description(what)

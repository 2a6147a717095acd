"""``realtime-tts bench``: what the engine and the server do on this machine, measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from realtime_tts.errors import ConfigError

if TYPE_CHECKING:
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
    """Measure the engine and the server: steps, first audio, how many streams at once. docs/benchmarks.md has more."""


def _model_options(bench: Command) -> Command:
    """What every bench that loads a model takes."""
    options = (
        click.option(
            "--model", default="starter-voice", show_default=True, help="A directory, a hub id, or the bundled voice."
        ),
        click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N."),
        click.option("--dtype", help="float32, bfloat16 or float16; by default what a worker would take."),
        click.option("--threads", type=click.IntRange(1), help="Torch threads on the CPU."),
        click.option("--steps", type=click.IntRange(2, 64), help="Flow steps; by default the model's own."),
        click.option("--cfg", type=click.FloatRange(0, 10), help="Guidance; by default the model's own."),
    )
    for option in reversed(options):
        bench = option(bench)
    return _output_options(bench)


def _output_options(bench: Command) -> Command:
    path = click.Path(dir_okay=False, path_type=Path)
    bench = click.option("--plot", type=path, help="Draw the result: a .png or .svg file. Needs matplotlib.")(bench)
    return click.option("--json", "json_path", type=path, help="Write every raw figure here.")(bench)


def _numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """``1,2,4``: whole numbers from 1 on."""
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
@click.option("--dtype", help="Of the language and flow models; by default bfloat16 as published.")
@click.option("--device", default="auto", show_default=True, help="Where the weights are drawn.")
@click.option("--seed", default=0, show_default=True)
@click.option("--force", is_flag=True, help="Write over the files of a checkpoint that is there.")
def checkpoint(directory: Path, shape: str, dtype: str | None, device: str, seed: int, force: bool) -> None:
    """Write random weights of a published model's shape to DIRECTORY.

    They take as long as the real ones, and nothing need be downloaded. A stream ends where its text's length says.
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
@_model_options
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
    """How long a step of the engine takes, by the number of streams, and where its time goes."""
    _check_plot(plot)
    from realtime_tts.bench.engine_steps import StepPlan, default_batches, measure_steps, num_parts
    from realtime_tts.bench.views import engine_table

    subject = _load(options, batches)
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


def _load(options: dict[str, Any], batches: tuple[int, ...] | None) -> Subject:
    from realtime_tts.bench.engine_steps import default_batches
    from realtime_tts.bench.subject import Subject
    from realtime_tts.engine.setup import EngineOptions, choose_device

    click.echo(f"Loading {options['model']} …", err=True)
    wanted = max(batches or default_batches(choose_device(options["device"])))
    return Subject.load(EngineOptions(**options, max_streams=wanted))


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
    """Before minutes of work, not after them."""
    import importlib.util

    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: pip install 'realtime-tts[bench]'", field="plot")


class _Bar:
    """A progress bar on stderr over so many parts, which says what the one under way is."""

    def __init__(self, num_parts: int) -> None:
        from tqdm import tqdm

        self._bar = tqdm(total=num_parts, leave=False)
        self._begun = False

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bar.close()

    def next(self, what: str) -> None:
        """The part before is done; this one begins."""
        if self._begun:
            self._bar.update()
        self._begun = True
        self._bar.set_description(what)

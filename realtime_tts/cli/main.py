"""The command line ``realtime-tts serve | say | voices | …``. Modules of commands are imported when called."""

from __future__ import annotations

import importlib
import os
import signal
import sys

import click

from realtime_tts import __version__
from realtime_tts.errors import ConfigError, RealtimeTTSError

# Name → module with a `command`, and the line shown in the list. Importing all modules would take a second.
COMMANDS = {
    "serve": ("realtime_tts.cli.serve", "Start the server and the playground."),
    "say": ("realtime_tts.cli.say", "Speak text: to the speaker, a file or a pipe."),
    "voices": ("realtime_tts.cli.voices", "List the voices of a model or a server; add and delete them."),
    "adapters": ("realtime_tts.cli.adapters", "List, load and unload a server's LoRA adapters."),
    "lexicon": ("realtime_tts.cli.lexicon", "Check a pronunciation lexicon and its effect on a text."),
    "doctor": ("realtime_tts.cli.doctor", "Report device, model, limits and speed of this machine."),
    "bench": ("realtime_tts.cli.bench", "Measure the engine and the server on this machine."),
    "calibrate": ("realtime_tts.cli.calibrate", "Find the attention head that gives a model word times."),
    "keys": ("realtime_tts.cli.keys", "Create API keys for the server."),
}


class LazyGroup(click.Group):
    """Command group that imports a command's module when it is called; `commands` has only the names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    commands=dict.fromkeys(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `realtime-tts serve` and open the address that it prints, or with "
    '`realtime-tts say "Hello there."`. Each command has its own --help.',
)
@click.version_option(__version__, prog_name="realtime-tts")
def cli() -> None:
    """Real-time text to speech: streams text in and audio out."""


def main() -> None:
    """Run the command line. A `RealtimeTTSError` is printed in one line and sets the status, without a traceback."""
    if os.getpid() == 1:  # in a container, where SIGTERM without a handler is ignored
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        status = cli.main(standalone_mode=False)
    except RealtimeTTSError as error:
        one_line = " ".join(error.message.split())  # messages of libraries may have several lines
        click.secho(f"Error: {one_line}", fg="red", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)

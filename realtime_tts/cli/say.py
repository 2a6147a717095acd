"""``realtime-tts say``"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import functools
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from realtime_tts import __version__
from realtime_tts.audio.provenance import Provenance
from realtime_tts.cli.checks import check_adapter, check_model, nothing_to_say
from realtime_tts.cli.options import FILE, read_settings, recording_options, speech_options, voices_of_model
from realtime_tts.cli.playing import Progress, Speech, play
from realtime_tts.cli.sinks import FORMATS, check_sink, open_sink
from realtime_tts.config import EngineConfig
from realtime_tts.contract.speech_params import SPEECH_PARAMS, SpeechParams, given
from realtime_tts.errors import ConfigError
from realtime_tts.speech.lexicons import read_lexicon
from realtime_tts.speech.text_source import TextSource

_EPILOG = """\b
Examples:
  realtime-tts say "Hello. I am speaking while I am still thinking."
  realtime-tts say "Your order is on its way." -o order.wav
  realtime-tts say --file story.txt -o story.mp3
  some-program | realtime-tts say                 # spoken while the program writes
  realtime-tts say "Hello." -o - | aplay
  realtime-tts say --url http://127.0.0.1:8000 "Through a running server."
  realtime-tts say --url http://127.0.0.1:8000 --reference speaker.wav --consent "In the voice of this recording."
  realtime-tts say --model openbmb/VoxCPM2 --reference speaker.wav "In the voice of this recording."
"""
_READ_BYTES = 4096
_REMOTE_RATE_HZ = 48_000
_RECORDINGS = ("reference", "prompt", "prompt_text", "consent", "consent_by", "consent_scope")


@dataclass(frozen=True)
class SayRequest:
    """Text and options of one `say`. recordings: arguments of the client's `OwnVoice`."""

    text: str | None  # None: standard input
    voice: str | None
    recordings: dict[str, Any]  # with a reference or a prompt they replace the voice
    params: SpeechParams  # without the lexicon
    lexicon: Path | None


@click.command("say", epilog=_EPILOG)
@click.argument("text", required=False)
@click.option("--file", "text_file", type=FILE, help="Read the text from a file.")
@click.option(
    "-o",
    "--output",
    help="Write to a file (.wav, .mp3, .ogg, .flac, .aac, .raw), or with - to standard output.  [default: the speaker]",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(tuple(FORMATS)),
    help="Format of the output; raw: 16-bit samples, mono, at the model's rate, with --url at 48000 Hz.  "
    "[default: by its name; wav for -]",
)
@click.option("--voice", shell_complete=voices_of_model, help="A voice's name; see `realtime-tts voices`.")
@recording_options
@speech_options
@click.option("--model", help="A directory, a Hugging Face id, or 'starter-voice'.  [default: starter-voice]")
@click.option("--device", help="auto, cpu, cuda, cuda:1 …  [default: auto]")
@click.option(
    "--url", envvar="REALTIME_TTS_URL", show_envvar=True, help="Use this running server; nothing is loaded here."
)
@click.option("--api-key", envvar="REALTIME_TTS_API_KEY", show_envvar=True, help="The server's API key.")
@click.option(
    "--provenance/--no-provenance",
    default=True,
    help="Mark files as synthetic speech, with the model and the voice.  [default: yes]",
)
@click.option("-q", "--quiet", is_flag=True, help="Print no progress and no summary.")
def command(
    text: str | None,
    text_file: Path | None,
    output: str | None,
    output_format: str | None,
    model: str | None,
    device: str | None,
    url: str | None,
    api_key: str | None,
    provenance: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Speak TEXT. Without TEXT, or with -, read the text from standard input and speak it while it arrives."""
    params = given(**{name: options.pop(name) for name in SPEECH_PARAMS if name != "lexicon"})
    recordings = {name: options.pop(name) for name in _RECORDINGS}
    request = SayRequest(_given_text(text, text_file), options["voice"], recordings, params, options["lexicon"])
    _check(request, url, model, device)
    progress = Progress(output, shown=not quiet and sys.stderr.isatty(), summary=not quiet)
    # Errors are reported, if possible, before a model is loaded, which may take minutes.
    check_sink(output, output_format)
    if request.text is not None and not request.text.strip():
        raise nothing_to_say()
    if url:
        speech = _remote(request, url, api_key, progress)
    else:
        engine = read_settings({"model": model, "devices": device}, None).engine
        check_model(engine.model, request.text, request.params.get("text_type", "auto"), request.voice)
        if "adapter" in request.params:
            check_adapter(request.params["adapter"])
        speech = _local(request, engine, progress)
    try:
        made_by = Provenance(f"realtime-tts {__version__}", voice=request.voice or "") if provenance else None
        asyncio.run(play(speech, lambda rate_hz: open_sink(output, output_format, rate_hz, made_by), progress))
    except KeyboardInterrupt:
        progress.interrupted()
        raise
    except BrokenPipeError:  # the reader has closed the pipe; the flush at exit must not raise again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _given_text(text: str | None, text_file: Path | None) -> str | None:
    if text_file is not None:
        if text is not None:
            raise click.UsageError("give TEXT or --file, not both")
        try:
            return text_file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise click.BadParameter("is not UTF-8 text", param_hint="--file") from error
    if text in (None, "-"):
        if sys.stdin.isatty() and text is None:
            raise click.UsageError("no text: give TEXT or --file, or pipe text in")
        return None
    return text


def _check(request: SayRequest, url: str | None, model: str | None, device: str | None) -> None:
    recordings = request.recordings
    if (recordings["prompt"] is None) != (recordings["prompt_text"] is None):
        raise click.UsageError("--prompt and --prompt-text belong together")
    if request.voice is not None and (recordings["reference"] or recordings["prompt"]):
        raise click.UsageError("give --voice or a recording, not both")
    if url and (model or device):
        raise click.UsageError("--model and --device need the model here: leave --url out")
    if not url and any(recordings[name] for name in _RECORDINGS[3:]):
        raise click.UsageError("--consent is for a server: it needs --url")


async def _local(request: SayRequest, engine: EngineConfig, progress: Progress) -> Speech:
    from realtime_tts.api import AsyncTTS
    from realtime_tts.cli.engine import worker_specs

    progress.note(f"Loading {engine.model} …")
    params = request.params.copy()
    adapters = {"adapter": params["adapter"]} if "adapter" in params else {}
    if adapters:
        params["adapter"] = "adapter"
    engine = replace(engine, adapters=tuple(adapters.items()), max_adapter_rank=128, adapter_mlp=True)
    workers = worker_specs(engine)[:1]
    async with AsyncTTS(workers=workers, lexicon=request.lexicon, adapters=adapters) as tts:
        progress.loaded()
        chunks = tts.generate(
            request.text if request.text is not None else standard_input(),
            voice=request.voice,
            reference_audio=request.recordings["reference"],
            prompt_audio=request.recordings["prompt"],
            prompt_text=request.recordings["prompt_text"],
            **params,
            on_skipped=progress.skipped.extend,
        )
        async with contextlib.aclosing(chunks) as generated:
            async for chunk in generated:
                yield tts.sample_rate, (chunk.clip(-1, 1) * 32767).round().astype("<i2").tobytes()


async def _remote(request: SayRequest, url: str, api_key: str | None, progress: Progress) -> Speech:
    """Yield the speech of a server as it arrives.

    Raises:
        RealtimeTTSError: the server's error; `ConfigError` without a server or without the Python client.
    """
    from realtime_tts.cli.remote import clean_key, server_error, server_url

    try:
        import realtime_tts_client as client
    except ImportError as error:
        raise ConfigError(
            "--url needs the Python client: pip install ./clients/python, in a copy of the repository",
            field="url",
        ) from error
    api_key, address = clean_key(api_key), server_url(url, "/v1/stream", "ws")
    audio, params = client.AudioFormat("pcm_s16le", _REMOTE_RATE_HZ), dict(request.params)
    if request.lexicon is not None:
        params["lexicon"] = dict(read_lexicon(request.lexicon).entries)
    text = request.text if request.text is not None else _in_a_thread(standard_input())
    recordings = request.recordings
    voice = client.OwnVoice(**recordings) if recordings["reference"] or recordings["prompt"] else request.voice
    # Consumed audio counts as played: the sink stores it, or waits for the speaker itself.
    session = client.connect(address, voice=voice, audio=audio, params=params, api_key=api_key, playback="consumed")
    try:
        async with session, session.speak(text) as context:
            async for packet in context:
                yield _REMOTE_RATE_HZ, packet.payload
            progress.skipped += context.skipped
    except client.ConnectionFailed as error:
        raise ConfigError(f"no server answers: {error.message}", field="url") from error
    except client.RealtimeTTSError as error:
        raise server_error(error.code, error.message, error.field) from error


async def _in_a_thread(pieces: Iterable[str]) -> AsyncGenerator[str, None]:
    source = TextSource(pieces)
    try:
        while await source.has_next(None) and (piece := source.take()) is not None:
            yield piece
    finally:
        await source.close()


def standard_input() -> Iterator[str]:
    """Yield the text of standard input as soon as it arrives. Invalid UTF-8 is replaced. Blocks."""
    pieces = iter(functools.partial(os.read, sys.stdin.fileno(), _READ_BYTES), b"")
    yield from codecs.iterdecode(pieces, "utf-8", "replace")

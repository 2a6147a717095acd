"""What one client makes a session hold is bounded in bytes, whatever it is, and the bound is near the truth."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from itertools import count

import pytest
from session_driver import PARKED, Closed, Driver

from realtime_tts.audio.codecs import AudioFormat
from realtime_tts.audio.packets import Packets
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.session.connection import SessionState
from realtime_tts.session.messages import (
    AudioPackets,
    CancelRequest,
    ClientMessage,
    ContextCancelled,
    End,
    ErrorMessage,
    Flush,
    Ping,
    PlaybackChanged,
    PlaybackReport,
    Pong,
    Resume,
    Text,
)
from realtime_tts.session.resume import ResumeBuffer

MAX_BYTES = 200_000
LOOK_EVERY = 500
ID = "i" * 100
Flood = Callable[[Driver, int], list[ClientMessage]]


def kept_bytes() -> int:
    """Return the memory allocated by sessions and by the test. Threads of other tests' servers allocate some, too.

    The collection also empties the interpreter's free lists: what is made of freed objects is not counted.
    """
    gc.collect()
    places = ("*/realtime_tts/session/*", "*/realtime_tts/audio/packets.py", "*/tests/*", "<string>")
    ours = [tracemalloc.Filter(True, pattern) for pattern in places]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces)


def tiny_contexts(driver: Driver, number: int) -> list[ClientMessage]:
    return [Text(f"{ID}{number}", "Hello."), CancelRequest(f"{ID}{number}")]


FLOODS: dict[str, Flood] = {
    "pings": lambda driver, number: [Ping(f"{ID}{number}")],
    "flushes": lambda driver, number: [Text("c", ""), Flush("c", f"{ID}{number}")],
    "cancels of nothing": lambda driver, number: [CancelRequest(f"{ID}{number}")],
    "bad messages": lambda driver, number: [Flush(f"{ID}{number}"), Ping()],
    "tiny contexts": tiny_contexts,
    "texts": lambda driver, number: [Text(f"c{number // 20 % 16}", "One two three four, " * 50)],
    "blanks": lambda driver, number: [Text(f"c{number % 16}", " " * 100)],
    "letters": lambda driver, number: [Text(f"c{number // 20_000 % 16}", "ab"), Text("c", "")],
    "cancels of all": lambda driver, number: [CancelRequest(None)],
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_whose_answers_are_not_read_closes_its_session(make_driver: Callable[..., Driver], name: str) -> None:
    driver = make_driver(max_session_bytes=MAX_BYTES)
    driver.say("c", "Hello there")
    driver.receive(PlaybackReport("c", 0))
    driver.session.writable(False, driver.now)
    tracemalloc.start()
    try:
        for number in count():
            for message in FLOODS[name](driver, number):
                driver.session.receive(message, driver.now)
            if driver.session.state is SessionState.CLOSED:
                break
            assert driver.session.contexts.num_bytes <= MAX_BYTES
            assert number < 200_000
            driver.did += driver.session.events()
            if number % LOOK_EVERY == 0:
                assert kept_bytes() < 2 * MAX_BYTES  # the fake planner keeps the text once more
        assert kept_bytes() < 2 * MAX_BYTES
    finally:
        tracemalloc.stop()
    assert driver.session.closing == (1008, "slow_consumer")
    assert not driver.session.contexts.open


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Text("i" * 129, "Hello."), "context_id"),
        (Flush("i" * 129), "context_id"),
        (End("i" * 129), "context_id"),
        (CancelRequest("i" * 129), "context_id"),
        (PlaybackReport("i" * 129, 0), "context_id"),
        (Flush("c", "i" * 129), "flush_id"),
        (Ping("i" * 129), "id"),
        (Text("", "Hello."), "context_id"),
    ],
)
def test_an_id_has_at_most_128_characters(driver: Driver, message: ClientMessage, field: str) -> None:
    driver.say("c", "Hello.")
    (error,) = driver.receive(message)
    assert isinstance(error, ErrorMessage)
    assert (error.code, error.field) == ("invalid_message", field)
    assert len(error.context_id or "") <= 128


def test_ids_of_128_characters_are_fine(driver: Driver) -> None:
    driver.receive(Text("i" * 128, "Hello."), Flush("i" * 128, "f" * 128))
    assert driver.receive(Ping("p" * 128)) == [Pong("p" * 128)]
    assert not driver.of(ErrorMessage)


def test_sent_messages_are_evicted_before_the_session_is_closed(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_session_bytes=MAX_BYTES)
    driver.say("c", "One.")
    for _ in range(2000):
        driver.give("c", 1)
        driver.wait(0.02)
        assert driver.session.contexts.num_bytes <= MAX_BYTES
    assert driver.session.state is SessionState.CONNECTED
    assert driver.sent_ms("c") == 40_000
    driver.session.connection_lost(driver.now)
    driver.session.resume(Resume("s1", {"c": 2000}), driver.now)
    assert [message.sequence for message in driver.drain() if hasattr(message, "sequence")] == [2001]


def test_finished_contexts_are_evicted_before_the_session_is_closed(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_session_bytes=MAX_BYTES)
    for index in range(16):
        driver.receive(Text(f"c{index}", "🙂" * 10_000), CancelRequest(f"c{index}"))
        assert driver.session.contexts.num_bytes <= MAX_BYTES
    assert driver.session.state is SessionState.CONNECTED
    assert len(driver.of(ContextCancelled)) == 16


def test_a_lexicon_counts_as_long_as_its_context(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver(max_session_bytes=MAX_BYTES)
    entries = {f"{number}" + "汉" * 60: "字" * 200 for number in range(100)}
    held = driver.session.contexts.num_bytes
    driver.receive(Text("c", "Hello.", params=SpeechParams(lexicon=entries)))
    assert driver.session.contexts.num_bytes - held > 2 * 100 * 260
    driver.receive(*(Text(f"c{number}", "Hello.", params=SpeechParams(lexicon=entries)) for number in range(4)))
    assert driver.session.state is SessionState.CLOSED


def test_a_blocked_socket_parks_the_engine_when_a_quarter_of_its_memory_is_used(
    make_driver: Callable[..., Driver],
) -> None:
    driver = make_driver(max_session_bytes=MAX_BYTES)
    driver.say("c", "One.")
    driver.give("c", 10)
    driver.session.writable(False, driver.now)
    while PARKED not in driver.did:
        driver.give("c", 8)
        driver.session.contexts.segment_progress("c", 0, driver.now, False, driver.now)
        driver.drain()
    assert MAX_BYTES / 4 < driver.session.contexts.num_bytes < MAX_BYTES * 0.35
    driver.give("c", 8)
    driver.session.contexts.segment_progress("c", 0, driver.now, False, driver.now)
    driver.drain()
    assert driver.did.count(PARKED) == 1
    driver.session.writable(True, driver.now)
    driver.drain()
    assert driver.done(PlaybackChanged)[-1].context_id == "c"
    assert driver.session.state is SessionState.CONNECTED


def test_what_loud_audio_has_under_way_is_held_for_a_resume(make_driver: Callable[..., Driver]) -> None:
    """A lead of 48 kHz PCM, more than any socket's buffers: all of it may be missing on the other side."""
    driver = make_driver()
    driver.receive(Text("c", "One two three. ", audio=AudioFormat("pcm_s16le", 48_000)))
    for number in range(8 * 50):
        driver.session.contexts.audio("c", Packets((bytes(2 * 960),), 960 * number, 960), driver.now)
        if number % 50 == 49 and number > 150:
            driver.wait(1)
    driver.wait(2)
    sent = driver.of(AudioPackets)
    assert len(sent) == 8 * 50
    driver.session.connection_lost(driver.now)
    driver.session.resume(Resume("s1", {"c": sent[-151].sequence}), driver.now)
    again = [message for message in driver.drain() + driver.wait(5) if isinstance(message, AudioPackets)]
    assert again == sent[-150:]


def test_thirty_seconds_of_opus_at_the_default_bit_rate_are_held_for_a_resume(
    make_driver: Callable[..., Driver],
) -> None:
    driver = make_driver(idle_timeout_s=1e9)
    driver.receive(Text("c", "One two three. "))
    patches, packet_bytes, lead = 250, 32_000 // 8 // 50, 13  # in patches
    for number in range(patches):
        packets = Packets(tuple(bytes(packet_bytes) for _ in range(8)), 8 * 960 * number, 960)
        driver.session.contexts.audio("c", packets, driver.now)
        driver.session.contexts.segment_progress("c", 0, 160.0 * (number + 1), False, driver.now)
        driver.drain()
        if number >= lead:
            driver.wait(0.16)
    sent = driver.of(AudioPackets)
    driver.session.connection_lost(driver.now)
    last = sent[-1].sequence + len(sent[-1].packets) - 1
    driver.session.resume(Resume("s1", {"c": last - 30 * 50}), driver.now)
    again = [message for message in driver.drain() + driver.wait(60) if isinstance(message, AudioPackets)]
    assert sum(len(message.packets) for message in again) >= 30 * 50


@pytest.mark.parametrize("num_packets", [1, 2, 8, 16])
@pytest.mark.parametrize("packet_bytes", [3, 80, 1920])
def test_what_is_kept_of_packets_counts_as_what_it_takes(num_packets: int, packet_bytes: int) -> None:
    buffer = ResumeBuffer(retain_s=1e9)
    tracemalloc.start()
    try:
        before = kept_bytes()
        for number in range(200):
            payloads = tuple([bytes([number]) * packet_bytes for _ in range(num_packets)])
            packets = Packets(payloads, 100_000 + number * num_packets * 960, 960)
            buffer.add(AudioPackets("c", 1_000 + number * num_packets, 1, packets), 1e3 + number)
        grown = kept_bytes() - before
    finally:
        tracemalloc.stop()
    assert grown <= buffer.num_bytes < 1.5 * grown  # what is asked for; the allocator rounds it up


def test_a_session_may_have_all_of_its_text(make_driver: Callable[..., Driver]) -> None:
    driver = make_driver()
    sentence = "It takes a while until all of this has been said. "
    for number in range(driver.session.config.max_contexts):
        driver.receive(Text(f"c{number}", sentence * (driver.session.config.max_text_chars // len(sentence))))
    assert not driver.done(Closed)
    assert len(driver.session.contexts.open) == driver.session.config.max_contexts

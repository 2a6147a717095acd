"""Frames out of a stream of bytes, however it is split."""

from __future__ import annotations

import dataclasses
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.contract import frames
from realtime_tts.errors import WireError

MESSAGES = [
    frames.Audio("r", 0, payload=bytes(range(256)) * 3),
    frames.Done("r", "stop"),
    frames.Audio("ü", 1, 2.5, payload=b""),
    frames.Stats(num_steps=3),
]
DATA = b"".join(map(frames.encode, MESSAGES))


@given(st.lists(st.integers(0, len(DATA)), max_size=12))
def test_any_split_gives_the_same_messages(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(DATA)]
    decoder = frames.Decoder()
    assert [m for a, b in itertools.pairwise(edges) for m in decoder.feed(DATA[a:b])] == MESSAGES


@pytest.mark.parametrize("message", [m for m in MESSAGES if isinstance(m, frames.Audio)])
def test_audio_may_go_out_under_another_id(message: frames.Audio) -> None:
    assert frames.encode(message, request_id="its client's") == frames.encode(
        dataclasses.replace(message, request_id="its client's")
    )


def test_a_prefix_is_put_in_front_of_the_ids_of_requests_and_contexts_alone() -> None:
    generate, audio, stats = frames.Generate("r", "c", "Hi."), frames.Audio("r", 0), frames.Stats(num_steps=3)
    voice = frames.EncodeVoice("v", 16_000)
    data = b"".join(map(frames.encode, (generate, audio, stats, voice)))
    named = dataclasses.replace(generate, request_id="7/r", context_id="7/c")
    assert frames.Decoder("7/").feed(data) == [named, frames.Audio("7/r", 0), stats, voice]


def test_each_message_comes_with_its_last_byte() -> None:
    decoder, ends = frames.Decoder(), []
    for place in range(len(DATA)):
        ends += [(place + 1, message) for message in decoder.feed(DATA[place : place + 1])]
    sizes = [len(frames.encode(message)) for message in MESSAGES]
    assert ends == [(sum(sizes[: index + 1]), message) for index, message in enumerate(MESSAGES)]


def test_a_long_frame_in_small_pieces_is_not_copied_for_each() -> None:
    """32 MiB in pieces of 4 KiB would be 128 GiB, if it were."""
    long = frames.encode(frames.Audio("r", 0, payload=bytes(32 * 1024 * 1024)))
    decoder, begun = frames.Decoder(), time.process_time()
    messages = [m for start in range(0, len(long), 4096) for m in decoder.feed(long[start : start + 4096])]
    assert [len(m.payload) for m in messages] == [32 * 1024 * 1024]
    assert time.process_time() - begun < 5
    assert decoder.feed(DATA) == MESSAGES  # the large buffer is gone


@pytest.mark.parametrize("size", [1000, 65_537, 1 << 20])
def test_a_long_stream_of_frames_is_read_whole(size: int) -> None:
    data, decoder = 2000 * DATA, frames.Decoder()
    messages = [m for start in range(0, len(data), size) for m in decoder.feed(data[start : start + size])]
    assert messages == 2000 * MESSAGES


@pytest.mark.parametrize("wrong", [b"\x07", b"\xc1", b"\x80", b"\x81\xa4type\xa4nope"])
def test_what_is_no_frame_is_refused_also_behind_others(wrong: bytes) -> None:
    for data in (wrong, DATA + wrong):
        with pytest.raises(WireError):
            frames.Decoder().feed(data)


def test_a_frame_that_never_ends_is_refused() -> None:
    decoder, piece = frames.Decoder(), bytes(1 << 20)
    decoder.feed(b"\x81\xa7payload\xc6" + frames.MAX_FRAME_BYTES.to_bytes(4, "big"))
    for _ in range(63):
        assert decoder.feed(piece) == []
    with pytest.raises(WireError):
        decoder.feed(piece)

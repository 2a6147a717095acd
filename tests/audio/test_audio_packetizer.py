"""Every sample once, in order, whatever the chunks; ends without a click."""

from __future__ import annotations

import itertools
import struct

from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.audio.packets import QUIET_LEVEL, Packetizer
from tests.support.single_packets import Packet, single_packets

RATE_HZ = 16_000
FRAME = 320


def ramp(num_samples: int, start: int = 1) -> bytes:
    """A different value for each sample, so that a lost or doubled one shows."""
    return struct.pack(f"<{num_samples}h", *((start + i + 32_768) % 65_536 - 32_768 for i in range(num_samples)))


def samples_of(packets: list[Packet]) -> list[int]:
    pcm = b"".join(packet.payload for packet in packets)
    return list(struct.unpack(f"<{len(pcm) // 2}h", pcm))


def packets_of(chunks: list[bytes], **options: int) -> list[Packet]:
    packetizer = Packetizer(RATE_HZ, FRAME, **options)
    return single_packets([*map(packetizer.push, chunks), packetizer.finish()])


@given(num_samples=st.integers(0, 5 * FRAME), cuts=st.lists(st.integers(0, 5 * FRAME), max_size=12))
def test_any_chunking_gives_the_same_packets(num_samples: int, cuts: list[int]) -> None:
    pcm = ramp(num_samples)
    edges = [0, *sorted(min(2 * cut, len(pcm)) for cut in cuts), len(pcm)]
    chunks = [pcm[a:b] for a, b in itertools.pairwise(edges)]
    assert packets_of(chunks) == packets_of([pcm])


@given(num_samples=st.integers(1, 5 * FRAME), lookahead=st.integers(0, 2 * FRAME))
def test_every_sample_comes_out_once_and_in_order(num_samples: int, lookahead: int) -> None:
    packets = packets_of([ramp(num_samples)], lookahead_samples=lookahead)
    assert samples_of(packets)[:num_samples] == list(range(1, num_samples + 1))
    assert len(samples_of(packets)) >= num_samples + lookahead


@given(num_samples=st.integers(1, 5 * FRAME))
def test_packets_are_of_one_length_and_their_pts_contiguous(num_samples: int) -> None:
    packets = packets_of([ramp(num_samples)])
    assert [packet.pts_samples for packet in packets] == [FRAME * i for i in range(len(packets))]
    assert {(packet.num_samples, len(packet.payload)) for packet in packets} == {(FRAME, 2 * FRAME)}


@given(num_samples=st.integers(1, 3 * FRAME), level=st.sampled_from([-32_768, -9000, 9000, 32_767]))
def test_the_end_decays_to_silence_without_a_step(num_samples: int, level: int) -> None:
    out = samples_of(packets_of([struct.pack("<h", level) * num_samples]))
    tail = out[num_samples - 1 :]
    fade_samples = RATE_HZ * 5 // 1000
    largest_step = max(abs(b - a) for a, b in itertools.pairwise(tail))
    assert largest_step <= 1.6 * abs(level) / fade_samples + 1  # half a cosine is π/2 times as steep as a line
    assert tail[-1] == 0
    assert set(tail[fade_samples + 1 :]) <= {0}


def test_a_quiet_end_on_a_frame_edge_needs_no_further_packet() -> None:
    assert len(packets_of([struct.pack("<h", QUIET_LEVEL) * FRAME])) == 1
    assert len(packets_of([struct.pack("<h", QUIET_LEVEL + 1) * FRAME])) == 2


def test_packets_leave_as_soon_as_they_are_full() -> None:
    packetizer = Packetizer(RATE_HZ, FRAME)
    assert not packetizer.push(ramp(FRAME - 1))
    assert len(packetizer.push(ramp(1))) == 1


def test_nothing_in_nothing_out() -> None:
    assert packets_of([]) == []
    assert packets_of([b"", b""], lookahead_samples=100) == []

"""Speech at another speed, over a real socket: all times are of what is heard."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from gateway_harness import GatewayHarness
from stream_client import open_stream

PCM = {"codec": "pcm_s16le", "sample_rate": 16_000}
TEXT = "One two three, four five. Six seven eight."
LONG = "This sentence goes on and on so that somebody can interrupt it. " * 8


@pytest.fixture(scope="module")
def measuring() -> Iterator[GatewayHarness]:
    """A gateway whose model tells which character it speaks, 25 of them a second."""
    with GatewayHarness(worker={"patch_delay_s": 0.002, "text_lag_ms": 40.0}) as harness:
        yield harness


@pytest.fixture
def gateway(measuring: GatewayHarness) -> Iterator[GatewayHarness]:
    baseline = measuring.usage()
    yield measuring
    assert measuring.settle(baseline) == baseline


@pytest.mark.parametrize("speed", [0.7, 1.4])
async def test_at_another_speed_all_times_are_of_what_is_heard(gateway: GatewayHarness, speed: float) -> None:
    done, last_ms = {}, {}
    for name, params in (("as it is", {"seed": 3}), ("at a speed", {"seed": 3, "speed": speed})):
        async with open_stream(gateway.ws_url) as client:
            await client.send("text", context_id="c", text=TEXT, audio=PCM, params=params)
            await client.send("end", context_id="c")
            done[name] = await client.until_terminal("c", 20)
            words = [word for message in client.messages if message["type"] == "words" for word in message["words"]]
            audio = client.contexts["c"].audio
        assert done[name]["audio_ms"] == len(audio) / 32
        assert [TEXT[word["start"] : word["end"]] for word in words] == TEXT.split()
        assert all(word["start_ms"] <= done[name]["audio_ms"] for word in words)
        last_ms[name] = words[-1]["start_ms"]
    assert last_ms["at a speed"] == pytest.approx(last_ms["as it is"] / speed, abs=100)
    padding_ms = 20 + 5  # of the last packet
    assert done["as it is"]["audio_ms"] / speed - padding_ms <= done["at a speed"]["audio_ms"]
    assert done["at a speed"]["audio_ms"] <= done["as it is"]["audio_ms"] / speed + padding_ms


async def test_an_interruption_at_another_speed_tells_what_was_heard(gateway: GatewayHarness) -> None:
    """The words of what was played, not of what was made."""
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text=LONG, audio=PCM, params={"speed": 2.0})
        await client.until(lambda m: m["type"] == "audio" and m["pts"] >= 16_000)
        await client.send("playback", context_id="c", played_ms=1000)
        await client.send("cancel", context_id="c")
        cancelled = await client.until_terminal("c")
        heard = [word for m in client.messages if m["type"] == "words" for word in m["words"] if word["end_ms"] <= 1000]
    assert LONG.startswith(cancelled["spoken_text"])
    assert abs(cancelled["spoken_chars"] - heard[-1]["end"]) <= 12  # some time passes until the cancel arrives


@pytest.mark.parametrize(("speed", "num_streams"), [(0.5, 1), (1.4, 1), (2.0, 2), (4.0, 4)])
async def test_a_faster_context_takes_more_of_the_engine(
    gateway: GatewayHarness, speed: float, num_streams: int
) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text=LONG, audio=PCM, params={"speed": speed})
        await client.until("audio")
        assert gateway.call(lambda: [live.num_speaking for live in gateway.gateway.sessions.values()]) == [num_streams]
        await client.send("cancel")
        await client.until_terminal("c")


@pytest.mark.parametrize(("steps", "speed", "num_streams"), [(2, 1.0, 1), (24, 1.0, 4), (24, 2.0, 8)])
async def test_a_context_with_more_flow_steps_takes_more_of_the_engine(
    gateway: GatewayHarness, steps: int, speed: float, num_streams: int
) -> None:
    async with open_stream(gateway.ws_url) as client:
        params = {"steps": steps, "speed": speed}
        await client.send("text", context_id="c", text=LONG, audio=PCM, params=params)
        await client.until("audio")
        assert gateway.call(lambda: [live.num_speaking for live in gateway.gateway.sessions.values()]) == [num_streams]
        await client.send("cancel")
        await client.until_terminal("c")


async def test_the_server_bounds_flow_steps_and_says_so(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="Hello.", params={"steps": 65})
        error = await client.until("error")
    assert (error["code"], error["field"]) == ("invalid_request", "params.steps")
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as http:
        (model,) = (await http.get("/v1/models")).json()["data"]
    assert model["params"]["steps"]["max"] == 64


@pytest.mark.parametrize("speed", [0, 0.2, 4.1, -1, "fast", True])
async def test_an_invalid_speed_is_refused(gateway: GatewayHarness, speed: object) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="c", text="Hello.", params={"speed": speed})
        error = await client.until("error")
    assert (error["code"] in ("invalid_request", "invalid_message"), error["field"]) == (True, "params.speed")

"""How a text is to be said, over real sockets; times and places are those of the text as sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from gateway_harness import GatewayHarness
from stream_client import StreamClient, open_stream

from realtime_tts.server.admission.auth import create_key

PCM = {"codec": "pcm_s16le", "sample_rate": 16_000}
SSML = (
    '<speak>Ask <sub alias="the web server">nginx</sub> &amp; me.<break time="700ms"/>'
    '<prosody rate="200%">Now <emphasis>then</emphasis></prosody></speak>'
)


@pytest.fixture
def gateway(shared: GatewayHarness) -> Iterator[GatewayHarness]:
    baseline = shared.usage()
    yield shared
    assert shared.settle(baseline) == baseline


@pytest.fixture(scope="module")
def shared() -> Iterator[GatewayHarness]:
    with GatewayHarness(worker={"patch_delay_s": 0.002}) as harness:
        yield harness


async def spoken(gateway: GatewayHarness, *texts: str, **params: object) -> StreamClient:
    """After a context of these deltas has come to its end."""
    async with open_stream(gateway.ws_url) as client:
        for text in texts:
            await client.send("text", context_id="c", text=text, audio=PCM, params={"seed": 3, **params})
        await client.send("end", context_id="c")
        await client.until_terminal("c", 30)
    return client


def silences_ms(pcm: bytes) -> list[float]:
    """Durations of the runs of zeros that last for more than a word's gap; the fake's speech has none."""
    zero = np.frombuffer(pcm, "<i2") == 0
    edges = np.flatnonzero(np.diff(np.concatenate(([0], zero.view(np.int8), [0]))))
    return [length / 16 for length in np.diff(edges)[::2] if length > 1600]


async def test_the_pause_between_sentences_is_exact_to_a_frame(gateway: GatewayHarness) -> None:
    client = await spoken(gateway, "One two. Three", " four. Five.", sentence_pause_ms=250)
    assert silences_ms(client.contexts["c"].audio)[:2] == pytest.approx([250, 250], abs=20)


@pytest.mark.parametrize("deltas", [(SSML,), tuple(SSML)], ids=["whole", "letters"])
async def test_ssml_is_spoken_as_it_comes(gateway: GatewayHarness, deltas: tuple[str, ...]) -> None:
    client = await spoken(gateway, *deltas)
    words = [word for message in client.messages if message["type"] == "words" for word in message["words"]]
    assert [word["text"] for word in words] == ["Ask", "nginx", "&amp;", "me.", "Now", "then"]
    assert all(SSML[word["start"] : word["end"]] == word["text"] for word in words)
    warnings = [message for message in client.messages if message["type"] == "warning"]
    assert [(m["code"], [SSML[a:b] for a, b in m["spans"]]) for m in warnings] == [("ignored_markup", ["<emphasis>"])]
    assert silences_ms(client.contexts["c"].audio)[0] == pytest.approx(700, abs=20)


@pytest.mark.parametrize("text", ["<speak>Hello there.</p>", "<speak>Hello there."])
async def test_malformed_ssml_fails_its_context_and_no_other(gateway: GatewayHarness, text: str) -> None:
    async with open_stream(gateway.ws_url) as client:
        await client.send("text", context_id="a", text=text, audio=PCM)
        await client.send("text", context_id="b", text="Fine.", audio=PCM)
        await client.send("end", context_id="a")
        await client.send("end", context_id="b")
        failed = await client.until_terminal("a", 30)
        assert (failed["type"], failed["code"], failed["retryable"]) == ("context.failed", "bad_ssml", False)
        assert "character" in failed["message"]
        assert (await client.until_terminal("b", 30))["type"] == "context.done"


async def test_what_cannot_be_asked_for_is_refused(gateway: GatewayHarness) -> None:
    async with open_stream(gateway.ws_url) as client:
        refused = (
            ({"text_type": "html"}, "invalid_request"),
            ({"volume": 3}, "invalid_request"),
            ({"sentence_pause_ms": -1}, "invalid_request"),
            ({"lexicon": {"a": "!"}}, "bad_lexicon"),
            ({"lexicon": {"a": {"phones": "eɪ"}}}, "invalid_message"),
            ({"lexicon": {f"w{number}": "x" for number in range(101)}}, "bad_lexicon"),
        )
        for number, (params, code) in enumerate(refused):
            await client.send("text", context_id=f"c{number}", text="Hello.", params=params)
            assert (await client.until("error", 30))["code"] == code


async def test_characters_that_a_lexicon_adds_are_charged_and_bounded() -> None:
    key, key_hash = create_key()
    params = {"lexicon": {"a": "b" * 180}}
    with GatewayHarness(api_key_hashes=(key_hash,), max_chars_per_minute=100, max_text_chars=300) as gateway:
        headers = {"Authorization": f"Bearer {key}"}
        async with open_stream(gateway.ws_url, additional_headers=headers) as client:
            await client.send("text", context_id="long", text="a a a a a. ", params=params)
            await client.send("flush", context_id="long")
            failed = await client.until_terminal("long", 30)
            assert (failed["type"], failed["code"]) == ("context.failed", "text_too_long")
            await client.send("text", context_id="short", text="Now a. ", params=params)
            await client.send("end", context_id="short")
            assert (await client.until_terminal("short", 30))["type"] == "context.done"
            await client.send("text", context_id="next", text="Hello. ")
            assert (await client.until("error", 30))["code"] == "rate_limited"


def test_over_http_malformed_ssml_is_refused_before_a_sound(gateway: GatewayHarness) -> None:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        body = {"model": "tts-1", "voice": "slt", "response_format": "pcm"}
        refused = client.post("/v1/audio/speech", json={**body, "input": "<speak>Hello there. " * 2 + "</p>"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_ssml")
        plain = client.post("/v1/audio/speech", json={**body, "input": "Hello there."})
        tagged = client.post("/v1/audio/speech", json={**body, "input": "<speak>Hello <p>there.</p></speak>"})
        literal = client.post("/v1/audio/speech", json={**body, "input": "<p>Hello</b> there.", "text_type": "text"})
        assert plain.status_code == tagged.status_code == literal.status_code == 200
        refused = client.post("/v1/audio/speech", json={**body, "input": "Hello.", "lexicon": {"": "x"}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "bad_lexicon")


async def test_lexicons_of_the_server_and_of_a_key(tmp_path: Path) -> None:
    """The fake speaks by the length of the text."""
    (key, key_hash), (other, other_hash) = create_key(), create_key()
    common, own = tmp_path / "common.json", tmp_path / "own.json"
    common.write_text('{"nginx": "a rather long way of saying this, is it not"}')
    own.write_text('{"nginx": "x"}')
    server: dict[str, object] = {
        "api_key_hashes": (key_hash, other_hash),
        "lexicon": str(common),
        "tenant_lexicons": ((key_hash.removeprefix("sha256:")[:12], str(own)),),
    }
    lengths = []
    with GatewayHarness(**server) as gateway:
        for each in (other, key):
            async with open_stream(gateway.ws_url, additional_headers={"Authorization": f"Bearer {each}"}) as client:
                await client.send("text", context_id="c", text="Ask Nginx.", audio=PCM)
                await client.send("end", context_id="c")
                lengths.append((await client.until_terminal("c", 30))["audio_ms"])
    assert lengths[0] > 2 * lengths[1]

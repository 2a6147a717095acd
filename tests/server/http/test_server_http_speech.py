"""Speech over plain HTTP: made as it is read, limited and counted as sessions are, gone when its client is."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI, Request
from gateway_harness import GatewayHarness
from starlette.routing import Route
from stream_client import native_pcm

from realtime_tts.audio.filters import StreamResampler
from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.speech_request import Chunk, Rendering, SpeechRequest, Total
from realtime_tts.errors import Draining, RealtimeTTSError
from realtime_tts.server.admission.auth import create_key
from realtime_tts.server.admission.client import Client
from realtime_tts.server.http import speech_response
from realtime_tts.server.http.speech import HttpSpeech
from realtime_tts.server.http.speech_response import SpeechResponse

MakeGateway = Callable[..., GatewayHarness]
PATH = "/v1/audio/speech"
RATE_HZ, PATCH_SAMPLES = 16_000, 2560
TEXT = "Hello there, this is a sentence. And this is one more of them."
LAGGING = {"text_lag_ms": 80.0}


@pytest.fixture
def http(gateway: GatewayHarness) -> Iterator[httpx.Client]:
    with client_of(gateway) as client:
        yield client


@pytest.fixture(scope="module")
def steady_gateway() -> Iterator[GatewayHarness]:
    """One whose speech takes some time; it tells where in the text it is."""
    with GatewayHarness(worker={"patch_delay_s": 0.02, **LAGGING}) as harness:
        yield harness


@pytest.fixture
def steady(steady_gateway: GatewayHarness) -> Iterator[GatewayHarness]:
    baseline = steady_gateway.usage()
    yield steady_gateway
    assert steady_gateway.settle(baseline) == baseline


def client_of(gateway: GatewayHarness, **options: Any) -> httpx.Client:
    return httpx.Client(base_url=gateway.url, trust_env=False, timeout=30, **options)


def speak(client: httpx.Client, text: str, **fields: Any) -> httpx.Response:
    return client.post(PATH, json={"model": "tts-1", "voice": "alloy", "input": text, **fields})


class Lines(Rendering):
    """JSON lines: chunks with their words, and the end."""

    content_type = "application/x-ndjson"
    wants_words = True

    def chunk(self, chunk: Chunk) -> bytes:
        words = [(word.text, word.start, word.end, word.start_ms, word.end_ms) for word in chunk.words]
        return json.dumps({"data": chunk.data.hex(), "words": words}).encode() + b"\n"

    def end(self, total: Total) -> bytes:
        return json.dumps({"characters": total.characters, "ms": total.audio_ms, "patches": total.patches}).encode()

    def error(self, error: RealtimeTTSError) -> bytes:
        return json.dumps({"code": error.code}).encode()


def mount_lines(app: FastAPI, audio: StreamFormat, seed: int = 0, speed: float = 1.0) -> None:
    """The route `/lines`, which speaks the body of a request."""

    async def lines(request: Request) -> SpeechResponse:
        text = (await request.body()).decode()
        wanted = SpeechRequest(text, audio, "slt", params=SpeechParams(seed=seed, speed=speed), rendering=Lines())
        gateway = request.app.state.gateway
        return SpeechResponse(gateway, gateway.admission.identify(request), wanted)

    app.router.routes.insert(0, Route("/lines", lines, methods=["POST"]))


def lines_of(response: httpx.Response) -> tuple[bytes, list[tuple[str, int, int, float, float]], dict[str, Any]]:
    *chunks, last = map(json.loads, response.text.splitlines())
    data = b"".join(bytes.fromhex(chunk["data"]) for chunk in chunks)
    return data, [tuple(word) for chunk in chunks for word in chunk["words"]], last


def test_estimated_word_starts_follow_the_speed(make_gateway: MakeGateway) -> None:
    starts_ms = []
    for speed in (1.0, 0.7):
        gateway = make_gateway()
        mount_lines(gateway.app, StreamFormat("raw", "pcm_s16le", RATE_HZ), speed=speed)
        with client_of(gateway) as client:
            _, words, _ = lines_of(client.post("/lines", content=TEXT.encode()))
        starts_ms.append([speed * word[3] for word in words])
    assert starts_ms[1] == pytest.approx(starts_ms[0], abs=100)


# ---- what is heard -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate_hz", [16_000, 24_000])
def test_the_samples_are_those_of_the_native_protocol(steady: GatewayHarness, rate_hz: int) -> None:
    gateway = steady
    gateway.call(lambda: mount_lines(gateway.app, StreamFormat("raw", "pcm_s16le", rate_hz), seed=3))
    with client_of(gateway) as client:
        data, _, last = lines_of(client.post("/lines", content=TEXT))
    audio = {"codec": "pcm_s16le", "sample_rate": rate_hz}
    native = asyncio.run(native_pcm(gateway.ws_url, TEXT, audio, seed=3, mode="clause"))
    assert len(native) >= len(data) > rate_hz
    assert native[: len(data)] == data
    assert last["ms"] == pytest.approx(1000 * len(data) / 2 / rate_hz)
    assert last["patches"] * PATCH_SAMPLES / RATE_HZ == pytest.approx(last["ms"] / 1000)
    assert last["characters"] == len(TEXT)


@pytest.mark.parametrize("worker", [{}, LAGGING], ids=["estimated", "measured"])
def test_every_word_comes_once_and_no_later_than_it_is_heard(
    make_gateway: MakeGateway, worker: dict[str, object]
) -> None:
    gateway = make_gateway(worker=worker)
    gateway.call(lambda: mount_lines(gateway.app, StreamFormat("raw", "pcm_s16le", 16_000)))
    with client_of(gateway) as client:
        response = client.post("/lines", content=TEXT)
    *chunks, _ = map(json.loads, response.text.splitlines())
    _, words, _ = lines_of(response)
    assert [word[0] for word in words] == TEXT.split()
    assert all(TEXT[start:end] == text for text, start, end, _, _ in words)
    times = [(start_ms, end_ms) for *_, start_ms, end_ms in words]
    assert times == sorted(times)
    before_ms = 0.0
    for chunk in chunks:
        assert all(word[3] >= before_ms - 200 for word in chunk["words"]), "a word comes with its sound"
        before_ms += len(chunk["data"]) / 64  # hex digits of 16-bit samples at 16 kHz


def test_the_first_audio_leaves_before_the_last_is_made(steady: GatewayHarness) -> None:
    with (
        client_of(steady) as client,
        client.stream("POST", PATH, json={"input": "command never.", "response_format": "pcm"}) as response,
    ):
        assert response.status_code == 200
        reading = response.iter_bytes()
        assert next(reading)
        assert steady.metric("http_speeches") == 1


def test_the_longest_text_is_spoken_however_it_is_escaped(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_text_chars=600)
    text = "Na so. " * 85 + "\U0001f600\U0001f600"
    with client_of(gateway) as client:
        body = json.dumps({"input": text, "response_format": "pcm"}).encode()
        assert client.post(PATH, content=body).status_code == 200
        escaped = b'{"input":"' + b"\\ud83d\\ude00" * 600 + b'","response_format":"pcm"}'
        assert client.post(PATH, content=escaped).status_code == 200
        too_long = speak(client, "a" * 601)
        too_large = client.post(PATH, content=b'{"input":"' + b" " * 30_000 + b'"}')
        for answer in (too_long, too_large):
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "string_above_max_length")
            assert "characters" in answer.json()["error"]["message"]


# ---- clients that go, or do not read ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["command never.", "command stall."])
def test_the_engine_is_free_when_the_client_goes(steady: GatewayHarness, text: str) -> None:
    gateway, baseline = steady, steady.usage()
    cancelled = gateway.metric("contexts_total", outcome="cancelled")
    interrupted = gateway.metric("barge_ins_total")
    with socket.create_connection(address_of(gateway)) as peer:
        peer.sendall(request_bytes(text))
        if "never" in text:
            assert peer.recv(1)
        else:
            wait_until(lambda: gateway.usage().requests == 1)
    wait_until(lambda: gateway.usage().requests == 0)
    assert gateway.settle(baseline) == baseline
    assert gateway.metric("contexts_total", outcome="cancelled") == cancelled + 1
    assert gateway.metric("barge_ins_total") == interrupted + 1
    assert gateway.metric("http_speeches") == 0


def test_no_more_than_a_step_is_made_for_a_client_that_has_gone(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.1})
    with socket.create_connection(address_of(gateway)) as peer:
        peer.sendall(request_bytes("command never."))
        wait_until(lambda: gateway.metric("audio_seconds_total") > 0.3)
    wait_until(lambda: gateway.metric("http_speeches") == 0)
    sent = round(gateway.metric("audio_seconds_total") * RATE_HZ / PATCH_SAMPLES)
    wait_until(lambda: num_steps(gateway) >= sent)  # as far as the worker has told
    assert settled_steps(gateway) <= sent + 1


def test_speech_is_not_made_ahead_of_a_client_that_does_not_read(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.001})
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(address_of(gateway))
        peer.sendall(request_bytes("command never."))
        made = settled_steps(gateway)
        assert made < 300, "of 600 patches, those that fit into the socket's buffers and the engine's lead"
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += peer.recv(65536)
    assert len(data) > 600 * PATCH_SAMPLES * 2 * 24 // 16, "it goes on when it reads"


def test_a_client_that_reads_at_leisure_gets_all_of_it(make_gateway: MakeGateway) -> None:
    """The last of an answer is still on our side when it is all made; the connection only seems idle."""
    gateway = make_gateway(worker={"patch_delay_s": 0.001}, close_timeout_s=0.1)
    gateway.server.config.timeout_keep_alive = 0.2  # type: ignore[assignment]
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(address_of(gateway))
        peer.sendall(request_bytes("This one has to be of some length. " * 6))
        received = peer.recv(1)
        while gateway.metric("http_speeches"):
            received += peer.recv(4096)
            time.sleep(0.01)
        time.sleep(1.0)  # several times as long as the connection may be idle
        while not received.endswith(b"0\r\n\r\n"):
            more = peer.recv(65536)
            assert more, "the answer was cut off"
            received += more


def test_a_client_that_never_reads_again_is_cut_off(make_gateway: MakeGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_response, "_UNREAD_S", 0.3)
    gateway = make_gateway(worker={"patch_delay_s": 0.001})
    baseline = gateway.usage()
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(address_of(gateway))
        peer.sendall(request_bytes("command never."))
        wait_until(lambda: gateway.metric("http_speeches") == 1)
        wait_until(lambda: gateway.metric("http_speeches") == 0)
    assert gateway.settle(baseline) == baseline


def test_a_connection_is_of_use_after_an_answer(http: httpx.Client) -> None:
    first = speak(http, "One.", response_format="pcm")
    second = speak(http, "Two.", response_format="pcm")
    assert len(first.content) == len(second.content) > 0
    assert http.get("/healthz").status_code == 200


# ---- what goes wrong ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["fail", "crash"])
def test_an_answer_that_cannot_be_finished_is_cut_off(make_gateway: MakeGateway, command: str) -> None:
    gateway = make_gateway()
    with client_of(gateway) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            speak(client, f"command {command} command never.", response_format="pcm")
        assert gateway.metric("contexts_total", outcome="failed") == 1


def test_what_fails_before_there_is_audio_has_a_status(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()
    gateway.call(lambda: setattr(gateway.gateway.engine, "submit", fail_to_submit))
    with client_of(gateway) as client:
        response = speak(client, "Hello.")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_lost")
    assert response.headers["retry-after"] == "1"


def fail_to_submit(request: object) -> None:
    from realtime_tts.errors import EngineLost

    raise EngineLost("no engine worker is ready")


@pytest.mark.logs_errors
def test_an_internal_error_is_sent_without_its_message(make_gateway: MakeGateway) -> None:
    gateway = make_gateway()

    def crash(*args: object) -> None:
        raise ZeroDivisionError("a secret")

    gateway.call(lambda: setattr(gateway.gateway.catalogue.defaults, "make_planner", crash))
    with client_of(gateway) as client:
        response = speak(client, "Hello.")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert "secret" not in response.text


def test_speech_with_a_voice_that_is_removed_is_cut_off(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.02})
    with socket.create_connection(address_of(gateway)) as peer:
        peer.sendall(request_bytes("command never."))
        assert peer.recv(12) == b"HTTP/1.1 200"
        gateway.call(lambda: gateway.gateway.voices.on_removed("rms"))
        assert gateway.metric("http_speeches") == 1
        gateway.call(lambda: gateway.gateway.voices.on_removed("slt"))
        wait_until(lambda: gateway.metric("http_speeches") == 0)
        received = b"".join(iter(lambda: peer.recv(65536), b""))
    assert not received.endswith(b"0\r\n\r\n")
    assert gateway.metric("errors_total", code="voice_not_found") == 1


# ---- limits ------------------------------------------------------------------------------------------------------


class Speaking:
    """A request that is being answered until the block is left."""

    def __init__(self, gateway: GatewayHarness, key: str = "") -> None:
        self._gateway, self._key = gateway, key
        self._peer = socket.create_connection(address_of(gateway))

    def __enter__(self) -> None:
        self._peer.sendall(request_bytes("command never.", self._key))
        assert self._peer.recv(12) == b"HTTP/1.1 200"

    def __exit__(self, *exc_info: object) -> None:
        self._peer.close()
        wait_until(lambda: self._gateway.metric("http_speeches") == 0)


def test_an_answer_holds_a_slot_as_a_session_does(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(max_sessions=1)
    with client_of(gateway) as client:
        with Speaking(gateway):
            refused = speak(client, "Hello.")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert refused.headers["retry-after"] == "1"
            assert client.get("/v1/stream").status_code == 426
            assert asyncio.run(handshake_status(gateway)) == 503
        assert speak(client, "Hello.").status_code == 200
    assert gateway.metric("handshakes_refused_total", code="overloaded") == 2


async def handshake_status(gateway: GatewayHarness) -> int:
    from websockets.asyncio.client import connect
    from websockets.exceptions import InvalidStatus

    try:
        async with connect(gateway.ws_url, proxy=None):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def test_no_request_is_admitted_beyond_the_streams_of_the_engine(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"max_streams": 1})
    with client_of(gateway) as client, Speaking(gateway):
        refused = speak(client, "Hello.")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")


def test_characters_are_charged(make_gateway: MakeGateway) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), max_chars_per_minute=60)
    with client_of(gateway, headers={"authorization": f"Bearer {key}"}) as client:
        assert speak(client, "a" * 50).status_code == 200
        refused = speak(client, "a" * 50)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")
        assert int(refused.headers["retry-after"]) > 10


def test_characters_that_a_lexicon_adds_are_charged_and_bounded(make_gateway: MakeGateway) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), max_chars_per_minute=100, max_text_chars=300)
    lexicon = {"a": "b" * 180}
    with client_of(gateway, headers={"authorization": f"Bearer {key}"}) as client:
        too_long = client.post(PATH, json={"input": "a a a a a.", "lexicon": lexicon})
        assert too_long.json()["error"]["code"] == "text_too_long"
        assert "lexicon" in too_long.json()["error"]["message"]
        assert client.post(PATH, json={"input": "Now a.", "lexicon": lexicon}).status_code == 200
        refused = speak(client, "Hello.")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limited")


def test_a_tenant_has_its_share_of_slots_and_a_token_its_own(make_gateway: MakeGateway) -> None:
    (key, key_hash), (other, other_hash) = create_key(), create_key()
    gateway = make_gateway(api_key_hashes=(key_hash, other_hash), max_sessions_per_tenant=1)
    with client_of(gateway) as client, Speaking(gateway, key):
        refused = client.post(PATH, json={"input": "Hi."}, headers={"x-api-key": key})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_sessions")
        assert client.post(PATH, json={"input": "Hi."}, headers={"xi-api-key": other}).status_code == 200


def test_a_token_speaks_with_its_voices(make_gateway: MakeGateway) -> None:
    key, key_hash = create_key()
    gateway = make_gateway(api_key_hashes=(key_hash,), strict_ids=True)
    with client_of(gateway) as client:
        wanted = {"voices": ["rms"]}
        token = client.post("/v1/tokens", json=wanted, headers={"authorization": f"Bearer {key}"}).json()["token"]
        headers = {"authorization": f"Bearer {token}"}
        assert client.post(PATH, json={"input": "Hi."}, headers=headers).headers["realtime-tts-voice"] == "rms"
        assert client.post(PATH, json={"input": "Hi.", "voice": "slt"}, headers=headers).status_code == 404


# ---- the end of the server ---------------------------------------------------------------------------------------


def test_a_drain_waits_for_speech_and_begins_none(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.02})
    answers: list[httpx.Response] = []
    with client_of(gateway) as client:
        thread = threading.Thread(target=lambda: answers.append(speak(client, TEXT, response_format="pcm")))
        thread.start()
        wait_until(lambda: gateway.metric("http_speeches") == 1)
        gateway.call(gateway.server.stop)
        with client_of(gateway) as other:
            refused = speak(other, "Hello.")
        thread.join(20)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert len(answers[0].content) > 24_000


def test_a_drain_that_takes_too_long_cuts_speech_off(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(worker={"patch_delay_s": 0.1}, drain_timeout_s=0.2)
    failures: list[Exception] = []

    def listen() -> None:
        try:
            with client_of(gateway) as client:
                speak(client, "command never.", response_format="pcm")
        except httpx.RemoteProtocolError as error:
            failures.append(error)

    thread = threading.Thread(target=listen)
    thread.start()
    wait_until(lambda: gateway.metric("http_speeches") == 1)
    gateway.call(gateway.server.stop)
    thread.join(20)
    assert len(failures) == 1


def test_speech_that_is_cut_off_before_it_begins_makes_no_audio(gateway: GatewayHarness) -> None:
    async def first_chunk() -> Chunk:
        wanted = SpeechRequest("Hello.", StreamFormat("raw", "pcm_s16le", RATE_HZ), "slt")
        speech = HttpSpeech(gateway.gateway, Client(), wanted)
        speech.close(1001, "draining")
        return await anext(speech.chunks())

    with pytest.raises(Draining):
        gateway.run(first_chunk())


# ---- figures -----------------------------------------------------------------------------------------------------


def test_speech_is_counted(steady: GatewayHarness) -> None:
    def figures() -> dict[str, float]:
        names = ("characters_total", "ttfa_seconds_count", "audio_seconds_total")
        packets = steady.metric("packets_total", codec="pcm_s16le")
        done = steady.metric("contexts_total", outcome="done")
        return {**{name: steady.metric(name) for name in names}, "packets": packets, "done": done}

    before = figures()
    with client_of(steady) as client:
        samples = np.frombuffer(speak(client, TEXT, response_format="pcm").content, "<i2")
    more = {name: value - before[name] for name, value in figures().items()}
    assert more.pop("packets") > 1
    seconds = pytest.approx(len(samples) / 24_000)
    assert more == {"characters_total": len(TEXT), "ttfa_seconds_count": 1, "audio_seconds_total": seconds, "done": 1}


def test_pcm_at_24_khz_is_resampled_as_a_whole(http: httpx.Client) -> None:
    heard = np.frombuffer(speak(http, "Hello there.", response_format="pcm").content, "<i2")
    resampler = StreamResampler(RATE_HZ, 24_000)
    ramp = np.arange(len(heard) * 2 // 3) % 2000 - 1000
    candidates = [np.frombuffer(resampled(ramp + 1000 * seed), "<i2")[: len(heard)] for seed in range(8)]
    assert any(np.array_equal(heard, candidate) for candidate in candidates)
    resampler.finish()


def resampled(samples: np.ndarray) -> bytes:
    resampler = StreamResampler(RATE_HZ, 24_000)
    return resampler.push(samples.astype("<i2").tobytes()) + resampler.finish()


# ---- helpers -----------------------------------------------------------------------------------------------------


def address_of(gateway: GatewayHarness) -> tuple[str, int]:
    host, port = gateway.url.removeprefix("http://").split(":")
    return host, int(port)


def request_bytes(text: str, key: str = "") -> bytes:
    body = json.dumps({"input": text, "response_format": "pcm"}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def num_steps(gateway: GatewayHarness) -> int:
    """Number of steps of the engine, as last reported."""
    return gateway.call(lambda: sum(stats.num_steps for stats in gateway.gateway.engine.stats))


def settled_steps(gateway: GatewayHarness) -> int:
    """Steps of the engine once it makes no more for a while."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 1.0:
        steps = num_steps(gateway)
        if steps != before or steps == 0:
            before, since = steps, time.monotonic()
        time.sleep(0.05)
    return before

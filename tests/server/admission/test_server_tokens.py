"""Short-lived tokens: what they allow, how long, and which clients they admit."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import realtime_tts_client as speech
from gateway_harness import GatewayHarness
from raw_http import RawConnection
from stream_client import open_stream
from voices import DEFAULT_VOICE
from websockets.exceptions import InvalidStatus

from realtime_tts.config import AccessConfig, ServerConfig
from realtime_tts.errors import ConfigError, Unauthorized
from realtime_tts.server.admission.auth import Authenticator, create_key
from realtime_tts.server.admission.client import Client
from realtime_tts.server.admission.tokens import Tokens, load_secret

MakeGateway = Callable[..., GatewayHarness]
SECRET = b"a secret of this test, as long as the longest hash wants it to be."
KEY, KEY_HASH = create_key()
KEY_ID = KEY_HASH.removeprefix("sha256:")[:12]


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


def claims(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    good = {"iss": "realtime-tts", "aud": "realtime-tts", "sub": KEY_ID, "jti": "t", "iat": now, "exp": now + 60}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    return str(path)


@pytest.fixture(scope="module")
def gateway_with_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    path = tmp_path_factory.mktemp("tokens") / "secret"
    path.write_bytes(SECRET + b"\n")
    with GatewayHarness(api_key_hashes=(KEY_HASH,), token_secret_file=str(path)) as harness:
        yield harness


@pytest.fixture
def gateway(gateway_with_keys: GatewayHarness) -> Iterator[GatewayHarness]:
    """A gateway with a key and a secret; nothing of a test may stay in it."""
    baseline = gateway_with_keys.usage()
    yield gateway_with_keys
    assert gateway_with_keys.settle(baseline) == baseline


async def issue(gateway: GatewayHarness, status: int = 201, credential: str = KEY, **body: Any) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30) as http:
        answer = await http.post("/v1/tokens", json=body, headers=bearer(credential))
    assert answer.status_code == status, answer.text
    return dict(answer.json())


# ---- what is a token ----------------------------------------------------------------------------------------------


def test_a_token_says_whose_it_is_and_what_it_may() -> None:
    holder = Client("key", "t1", ("slt", "rms"), 2, 300)
    token, expires_at = Tokens(SECRET).issue(holder, 60, time.time())
    assert Tokens(SECRET).read(token) == holder
    assert abs(expires_at - time.time() - 60) < 10
    with pytest.raises(Unauthorized):
        Tokens(SECRET[::-1]).read(token)


def ago(seconds: float) -> Callable[[], int]:
    """A time relative to the test's own: these are collected many minutes before."""
    return lambda: int(time.time() - seconds)


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": 1},
        {"exp": ago(60)},
        {"exp": None},
        {"exp": "tomorrow"},
        {"iat": ago(-600)},
        {"iat": None},
        {"nbf": ago(-600)},
        {"aud": "another-service"},
        {"aud": None},
        {"iss": "somebody"},
        {"iss": None},
        {"sub": None},
        {"sub": "unknown"},
        {"sub": ""},
        {"jti": None},
        {"jti": ""},
        {"jti": "x" * 65},
        {"voices": "slt"},
        {"voices": [1]},
        {"voices": []},
        {"max_sessions": -1},
        {"max_sessions": 2**64},
        {"max_chars_per_minute": "many"},
        {"max_chars_per_minute": 2**64},
        {"max_chars_per_minute": 10**400},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_claims_that_are_refused(secret_file: str, changes: dict[str, Any]) -> None:
    access = AccessConfig(api_key_hashes=(KEY_HASH,), token_secret_file=secret_file)
    authenticator = Authenticator(ServerConfig(access=access))
    assert authenticator.authenticate(bearer(jwt.encode(claims(), SECRET, "HS256")), {}) == Client(KEY_ID, "t")
    changed = {name: value() if callable(value) else value for name, value in changes.items()}
    with pytest.raises(Unauthorized):
        authenticator.authenticate(bearer(jwt.encode(claims(**changed), SECRET, "HS256")), {})


def planted() -> dict[str, str]:
    good = jwt.encode(claims(), SECRET, "HS256")
    head, body, signature = good.split(".")
    other = encoded(claims(max_sessions=99))
    none = encoded({"alg": "none", "typ": "JWT"})
    return {
        "no signature": f"{head}.{body}.",
        "alg none": f"{none}.{body}.",
        "alg none, signed": f"{none}.{body}.{signature}",
        "alg None": f"{encoded({'alg': 'None'})}.{body}.",
        "alg HS512": jwt.encode(claims(), SECRET, "HS512"),
        "alg HS384 of the secret": jwt.encode(claims(), SECRET, "HS384"),
        "alg missing": f"{encoded({'typ': 'JWT'})}.{body}.{signature}",
        "alg a list": f"{encoded({'alg': ['HS256']})}.{body}.{signature}",
        "another body": f"{head}.{other}.{signature}",
        "another secret": jwt.encode(claims(), SECRET[::-1], "HS256"),
        "the key's hash as secret": jwt.encode(claims(), KEY_HASH, "HS256"),
        "critical header": jwt.encode(claims(), SECRET, "HS256", headers={"crit": ["x"], "x": 1}),
        "a key inside": jwt.encode(claims(), SECRET[::-1], "HS256", headers={"jwk": {"kty": "oct", "k": "x"}}),
        "not base64": f"{head}.***.{signature}",
        "empty parts": "..",
        "a long one": f"{head}.{'A' * 20_000}.{signature}",
        "not an object": f"{head}.{encoded([1])}.{signature}",
        "an issuer that is no text": f"{head}.{encoded({'iss': chr(0xD800)})}.{signature}",
    }


@pytest.mark.parametrize("kind", planted())
async def test_planted_tokens_are_refused(secret_file: str, kind: str) -> None:
    access = AccessConfig(api_key_hashes=(KEY_HASH,), token_secret_file=secret_file)
    authenticator = Authenticator(ServerConfig(access=access))
    with pytest.raises(Unauthorized):
        authenticator.authenticate(bearer(planted()[kind]), {})


def test_a_secret_is_long_or_random(tmp_path: Path) -> None:
    assert load_secret("") != load_secret("")
    (tmp_path / "short").write_text("password")
    for path in (tmp_path / "short", tmp_path / "none"):
        with pytest.raises(ConfigError) as caught:
            load_secret(str(path))
        assert caught.value.field == "token_secret_file"
        assert "password" not in caught.value.message


# ---- what it opens ------------------------------------------------------------------------------------------------


async def test_a_token_goes_where_a_key_would(gateway: GatewayHarness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    token = (await issue(gateway, ttl_s=60))["token"]
    async with open_stream(gateway.ws_url, additional_headers=bearer(token)) as client:
        await client.speak("a", "Hello.")
        assert (await client.until_terminal("a"))["type"] == "context.done"
    async with open_stream(f"{gateway.ws_url}?api_key={token}"):
        pass
    async with open_stream(gateway.ws_url, subprotocols=["realtime-tts.v1", f"realtime-tts.key.{token}"]):
        pass
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30, headers=bearer(token)) as http:
        assert (await http.get("/v1/voices")).status_code == 200
    assert "token_issued" in caplog.text
    ours = str([vars(record) for record in caplog.records if record.name.startswith("realtime_tts")])
    assert token not in ours
    assert KEY not in ours


async def test_a_token_is_checked_at_the_handshake_only(make_gateway: MakeGateway, secret_file: str) -> None:
    gateway = make_gateway(api_key_hashes=(KEY_HASH,), token_secret_file=secret_file)
    short = jwt.encode(claims(exp=int(time.time()) - 3), SECRET, "HS256")  # within the clocks' skew
    async with open_stream(gateway.ws_url, additional_headers=bearer(short)) as client:
        ended = jwt.encode(claims(exp=int(time.time()) - 60), SECRET, "HS256")
        with pytest.raises(InvalidStatus) as caught:
            async with open_stream(gateway.ws_url, additional_headers=bearer(ended)):
                pass
        assert caught.value.response.status_code == 401
        assert b"has ended" in (caught.value.response.body or b"")
        await client.speak("a", "Still here.")
        assert (await client.until_terminal("a"))["type"] == "context.done"


async def test_only_the_voices_of_the_token(gateway: GatewayHarness) -> None:
    token = (await issue(gateway, voices=["rms"]))["token"]
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30, headers=bearer(token)) as http:
        answer = (await http.get("/v1/voices")).json()
    assert ([voice["id"] for voice in answer["voices"]], answer["default_voice"]) == (["rms"], "rms")
    async with open_stream(gateway.ws_url, additional_headers=bearer(token)) as client:
        await client.speak("a", "Hello.")
        assert (await client.until("context.started"))["voice"] == "rms"
        await client.send("text", context_id="b", text="Hello.", voice="slt")
        error = await client.until("error")
        assert (error["code"], error["message"]) == (
            "voice_not_found",
            "unknown voice 'slt'; the voices are rms",
        )


async def test_a_text_that_had_to_wait_is_taken_under_another_id_later(gateway: GatewayHarness) -> None:
    token = (await issue(gateway, max_chars_per_minute=600))["token"]
    async with open_stream(gateway.ws_url, additional_headers=bearer(token)) as client:
        await client.send("text", context_id="a", text="x" * 600)
        await client.send("cancel", context_id="a")
        await client.send("text", context_id="b", text="Hello again. ")
        await client.send("text", context_id="b", text="")
        error = await client.until("error")
        assert (error["code"], error["context_id"]) == ("rate_limited", "b")
        assert 0 < error["retry_after_s"] <= 1.3
        rest = await client.until("error")
        assert (rest["code"], rest["context_id"]) == ("context_closed", "b"), "it would be spoken without its beginning"
        await asyncio.sleep(error["retry_after_s"])
        await client.send("text", context_id="c", text="Hello again. ")
        await client.send("end", context_id="c")
        assert (await client.until_terminal("c"))["characters"] == 13


async def test_a_client_keeps_no_text_that_was_refused(gateway: GatewayHarness) -> None:
    """Although a later, shorter piece was accepted before the client knew of it."""
    token = (await issue(gateway, max_chars_per_minute=60))["token"]
    async with speech.connect(gateway.url, api_key=token) as session:
        context = session.speak()
        for piece in ("One two three. ", 60 * "x" + ". ", "Four five six."):
            await context.send(piece)
        await context.end()
        with pytest.raises(speech.RateLimited):
            async for _ in context:
                pass
        assert context.done is not None
        assert context.text == "One two three. Four five six."
        assert context.done.characters == len(context.text)
        assert [context.text[word.start : word.end] for word in context.words] == [word.text for word in context.words]


async def test_only_so_many_sessions_and_characters(gateway: GatewayHarness) -> None:
    token = (await issue(gateway, max_sessions=1, max_chars_per_minute=50))["token"]
    async with open_stream(gateway.ws_url, additional_headers=bearer(token)) as client:
        with pytest.raises(InvalidStatus) as caught:
            async with open_stream(gateway.ws_url, additional_headers=bearer(token)):
                pass
        assert (caught.value.response.status_code, caught.value.response.headers["retry-after"]) == (429, "1")
        await client.send("text", context_id="a", text="x" * 40 + ". ")
        await client.send("text", context_id="a", text="y" * 40 + ". ")
        error = await client.until("error")
        assert (error["code"], error["context_id"], error["retryable"]) == ("rate_limited", "a", True)
        assert 0 < error["retry_after_s"] <= 60
        assert error["span"] == [42, 84]
        await client.send("end", context_id="a")
        assert (await client.until_terminal("a"))["characters"] == 42, "what was let pass is spoken"
    token = (await issue(gateway, max_chars_per_minute=1))["token"]
    async with open_stream(gateway.ws_url, additional_headers=bearer(token)) as client:
        await client.speak("a", "Four.")
        await client.until_terminal("a")
    with pytest.raises(InvalidStatus) as caught:
        async with open_stream(gateway.ws_url, additional_headers=bearer(token)):
            pass
    assert caught.value.response.status_code == 429
    assert json.loads(caught.value.response.body or b"")["code"] == "rate_limited"
    assert int(caught.value.response.headers["retry-after"]) > 60


def test_the_lines_of_the_documentation_work_as_they_stand(gateway: GatewayHarness) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/operate/operation.md").read_text(encoding="utf-8")
    (lines,) = [block for block in re.findall(r"(?s)```sh\n(.*?)```", page) if "/v1/tokens" in block]
    script = lines.replace("http://127.0.0.1:8000", gateway.url).replace("rtts_your_key", KEY)
    script = script.replace(f'"{DEFAULT_VOICE}"', '"slt"')  # the fake worker's
    answer = subprocess.run(["sh", "-ec", script], stdout=subprocess.PIPE, check=True).stdout
    assert [voice["id"] for voice in json.loads(answer)["voices"]] == ["slt"]


# ---- which clients get one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"ttl_s": 0}, 400, "ttl_s"),
        ({"ttl_s": 3601}, 400, "ttl_s"),
        ({"ttl_s": "60"}, 400, "ttl_s"),
        ({"voices": "slt"}, 400, "voices"),
        ({"voices": []}, 400, "voices"),
        ({"voices": ["nobody"]}, 404, "voices"),
        ({"ttl_s": 10**400}, 400, "ttl_s"),
        ({"max_sessions": -1}, 400, "max_sessions"),
        ({"max_sessions": 2**64}, 400, "max_sessions"),
        ({"max_chars_per_minute": 2**64}, 400, "max_chars_per_minute"),
        ({"max_chars_per_minute": 10**400}, 400, "max_chars_per_minute"),
        ({"admin": True}, 400, "admin"),
    ],
)
async def test_requests_that_are_refused(
    gateway: GatewayHarness, body: dict[str, Any], status: int, field: str
) -> None:
    assert (await issue(gateway, status, **body))["field"] == field


async def test_bodies_that_are_refused(gateway: GatewayHarness) -> None:
    async with httpx.AsyncClient(base_url=gateway.url, trust_env=False, timeout=30, headers=bearer(KEY)) as http:
        assert (await http.post("/v1/tokens", content=b"")).status_code == 201
        for content, status in ((b"[]", 400), (b"{", 400), (b"\xff", 400), (b"[" * 10_000, 400), (b" " * 20_000, 413)):
            answer = await http.post("/v1/tokens", content=content)
            assert (answer.status_code, answer.json()["retryable"]) == (status, False)


async def test_a_wrong_key_and_a_token_get_no_token(gateway: GatewayHarness) -> None:
    token = (await issue(gateway))["token"]
    await issue(gateway, 403, credential=token)
    await issue(gateway, 401, credential="rtts_wrong")


async def test_a_server_without_keys_makes_none(shared_gateway: GatewayHarness) -> None:
    await issue(shared_gateway, 403)


async def test_a_body_that_arrives_too_slowly_is_given_up(make_gateway: MakeGateway) -> None:
    gateway = make_gateway(api_key_hashes=(KEY_HASH,), handshake_timeout_s=0.3)
    head = f"POST /v1/tokens HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 5000\r\n\r\n"
    async with RawConnection(gateway.url) as connection:
        connection.send(head.encode())
        assert (await connection.drip(b"{ ")).startswith(b"HTTP/1.1 408 ")

"""Pages of allowed origins may use the server over HTTP: preflight requests are answered, and answers can be read."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from gateway_harness import GatewayHarness

from realtime_tts.server.admission.auth import create_key

MakeGateway = Callable[..., GatewayHarness]
PAGE = "https://app.example.com"
PREFLIGHT = {"origin": PAGE, "access-control-request-method": "POST"}
SPEECH = {"input": "Hello there.", "voice": "slt"}


def client_of(gateway: GatewayHarness, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=gateway.url, trust_env=False, timeout=30, headers=headers)


@pytest.mark.parametrize(
    "path", ["/v1/audio/speech", "/tts/bytes", "/v1/text-to-speech/slt", "/v1/speak", "/v1/voices", "/v1/tokens"]
)
def test_a_preflight_request_needs_no_key(make_gateway: MakeGateway, path: str) -> None:
    """Browsers send it without one."""
    gateway = make_gateway(api_key_hashes=(create_key()[1],), allowed_origins=(f"{PAGE}/",))
    asked = "authorization,content-type,x-stainless-os,xi-api-key"
    with client_of(gateway) as client:
        answer = client.options(path, headers={**PREFLIGHT, "access-control-request-headers": asked})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "POST" in answer.headers["access-control-allow-methods"].split(", ")
    assert "DELETE" in answer.headers["access-control-allow-methods"].split(", ")
    assert set(asked.split(",")) <= set(answer.headers["access-control-allow-headers"].lower().split(","))
    assert "access-control-allow-credentials" not in answer.headers


def test_answers_and_errors_can_be_read_with_all_their_headers(make_gateway: MakeGateway) -> None:
    key, digest = create_key()
    gateway = make_gateway(api_key_hashes=(digest,), allowed_origins=(PAGE,))
    with client_of(gateway, origin=PAGE) as client:
        known = {"authorization": f"Bearer {key}"}
        answers = [
            client.post("/v1/audio/speech", json=SPEECH, headers=known),
            client.get("/v1/voices", headers=known),
            client.post("/v1/audio/speech", json=SPEECH),  # 401
            client.post("/v1/audio/speech", json={}, headers=known),  # 400
            client.get("/v1/nothing", headers=known),  # 404
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 401, 400, 404]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-expose-headers"] == "*"
        assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize("origins", [(), (PAGE,)])
def test_pages_of_other_origins_read_nothing(make_gateway: MakeGateway, origins: tuple[str, ...]) -> None:
    gateway = make_gateway(allowed_origins=origins)
    with client_of(gateway, origin="https://evil.example") as client:
        assert client.post("/v1/audio/speech", json=SPEECH).status_code == 403
        preflight = client.options("/v1/audio/speech", headers={"access-control-request-method": "POST"})
        assert preflight.status_code >= 400
        for answer in (preflight, client.get("/v1/voices")):
            assert "access-control-allow-origin" not in answer.headers


def test_clients_without_an_origin_see_no_difference(make_gateway: MakeGateway) -> None:
    with client_of(make_gateway(allowed_origins=(PAGE,))) as client:
        answer = client.post("/v1/audio/speech", json=SPEECH)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]

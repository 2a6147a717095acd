"""A gateway with the shipped settings and a fake worker, and each proxy in front of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from gateway_harness import GatewayHarness
from proxy_harness import COMMANDS, DEPLOY, Certificate, Proxy, make_certificate, running_proxy

from realtime_tts.config import flatten
from realtime_tts.config_loader import load_settings
from realtime_tts.server.admission.auth import create_key


@pytest.fixture(scope="session")
def key() -> tuple[str, str]:
    """An API key and its hash."""
    return create_key()


@pytest.fixture(scope="session")
def proxied_gateway(key: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text(f"{key[1]}  # a user\n")
    settings = load_settings(toml_text=(DEPLOY / "realtime-tts.toml").read_text(encoding="utf-8"))
    server = {**flatten(settings), "port": 0, "metrics_address": "127.0.0.1:0", "api_key_file": str(keys)}
    with GatewayHarness(worker={"patch_delay_s": 0.002}, **server) as harness:
        yield harness


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="session", params=COMMANDS)
def proxy(
    request: pytest.FixtureRequest,
    proxied_gateway: GatewayHarness,
    certificate: Certificate,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Proxy]:
    port = int(proxied_gateway.url.rpartition(":")[2])
    with running_proxy(request.param, tmp_path_factory.mktemp(request.param), certificate, port) as proxy:
        yield proxy

"""Keys, hashes and origins."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.config import AccessConfig, ServerConfig
from realtime_tts.errors import ConfigError, Forbidden, InvalidRequest, Unauthorized
from realtime_tts.server.admission.auth import Authenticator, create_key, hash_key, is_loopback, load_hashes
from realtime_tts.server.app import DIALECTS


def authenticator_of_the_server(key_hash: str) -> Authenticator:
    """An authenticator that reads keys where the clients of all dialects put them."""
    authenticator = Authenticator(ServerConfig(access=AccessConfig(api_key_hashes=(key_hash,))))
    for router in DIALECTS:
        authenticator.read_keys_in(router.keys)
    return authenticator


def test_a_key_is_long_random_and_found_by_its_hash() -> None:
    (key, key_hash), (other, _) = create_key(), create_key()
    assert key != other
    assert len(key) > 40
    assert hash_key(key) == key_hash
    assert key not in key_hash


def test_a_file_holds_several_hashes_and_comments(tmp_path: Path) -> None:
    hashes = [create_key()[1] for _ in range(3)]
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{hashes[0]}  # phone app\n\n{hashes[1]}\n")
    config = AccessConfig(api_key_file=str(path), api_key_hashes=(hashes[2],))
    assert set(load_hashes(config)) == set(hashes)


def test_a_key_put_where_its_hash_belongs_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key, _ = create_key()
    path.write_text(key)
    with pytest.raises(ConfigError) as caught:
        load_hashes(AccessConfig(api_key_file=str(path)))
    assert key not in caught.value.message
    assert "entry 1" in caught.value.message


def test_a_missing_key_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_hashes(AccessConfig(api_key_file=str(tmp_path / "none")))


@pytest.mark.parametrize("content", ["", "\n", "# sha256 of nobody\n"])
def test_a_key_file_without_a_key_does_not_open_the_server(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys"
    path.write_text(content)
    with pytest.raises(ConfigError, match="has no key hash"):
        Authenticator(ServerConfig(access=AccessConfig(api_key_file=str(path))))


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "Bearer wrong", "bearer rtts_"])
def test_anything_but_the_key_is_refused(header: str) -> None:
    authenticator = Authenticator(ServerConfig(access=AccessConfig(api_key_hashes=(create_key()[1],))))
    with pytest.raises(Unauthorized):
        authenticator.authenticate({"authorization": header}, {})


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("authorization", "Bearer {}"),
        ("authorization", "Token {}"),
        ("authorization", "token  {}"),
        ("x-api-key", "{}"),
        ("xi-api-key", "{}"),
        ("sec-websocket-protocol", "realtime-tts.v1, realtime-tts.key.{}"),
        ("sec-websocket-protocol", "token, {}"),
        ("sec-websocket-protocol", "bearer,{}"),
        ("sec-websocket-protocol", "token, {}, x-deepgram-session-id, 1f"),
        ("sec-websocket-protocol", "x-deepgram-session-id, 1f, bearer, {}"),
    ],
)
def test_a_key_is_found_where_other_services_clients_put_it(name: str, form: str) -> None:
    key, key_hash = create_key()
    authenticator = authenticator_of_the_server(key_hash)
    assert authenticator.authenticate({name: form.format(key)}, {}).tenant
    for wrong in (form.format(create_key()[0]), form.format(""), key[:-1]):
        with pytest.raises(Unauthorized):
            authenticator.authenticate({name: wrong}, {})


def test_a_key_may_be_the_issuer_of_a_token() -> None:
    """Clients of LiveKit sign a token with a secret that this server does not have."""
    key, key_hash = create_key()
    authenticator = authenticator_of_the_server(key_hash)

    def signed(**claims: object) -> dict[str, str]:
        return {"authorization": "Bearer " + jwt.encode(claims, "s" * 32, "HS256")}

    assert authenticator.authenticate(signed(iss=key, sub="agent"), {}).tenant
    for wrong in (signed(iss=create_key()[0]), signed(sub=key), signed(iss=""), {"authorization": f"Bearer a.{key}.c"}):
        with pytest.raises(Unauthorized):
            authenticator.authenticate(wrong, {})


@pytest.mark.parametrize("name", ["api_key", "xi_api_key", "access_token", "single_use_token"])
def test_a_key_is_found_in_an_address(name: str) -> None:
    key, key_hash = create_key()
    authenticator = authenticator_of_the_server(key_hash)
    assert authenticator.authenticate({}, {name: key}).tenant
    assert authenticator.authenticate({"authorization": "Basic abc"}, {name: key}).tenant
    for query in ({name: create_key()[0]}, {name: ""}, {"key": key}):
        with pytest.raises(Unauthorized):
            authenticator.authenticate({}, query)


def test_a_wrong_key_in_one_place_is_not_made_good_by_another() -> None:
    key, key_hash = create_key()
    authenticator = authenticator_of_the_server(key_hash)
    with pytest.raises(Unauthorized):
        authenticator.authenticate({"authorization": "Bearer wrong", "x-api-key": key}, {})


def test_keys_are_told_apart_by_ids_that_do_not_reveal_them() -> None:
    keys = [create_key() for _ in range(2)]
    access = AccessConfig(api_key_hashes=tuple(key_hash for _, key_hash in keys))
    authenticator = Authenticator(ServerConfig(access=access))
    ids = [authenticator.authenticate({"authorization": f"Bearer {key}"}, {}).tenant for key, _ in keys]
    assert ids[0] != ids[1]
    assert not any(key_id in key for key_id, (key, _) in zip(ids, keys, strict=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST.", "a.localhost"])
def test_loopback_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "localhost.evil.example", "127.0.0.1.nip.io", ""])
def test_other_names(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "origin", "allowed"),
    [
        ("127.0.0.1:8000", "", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("localhost:8000", "http://localhost:8000", True),
        ("localhost:8000", "http://localhost:9000", False),
        ("localhost:8000", "null", False),
        ("evil.example", "", False),
        ("evil.example", "http://evil.example", False),
        ("localhost:8000", "https://app.example", True),
        ("localhost:8000", "https://app.example.evil.example", False),
        ("app.example", "https://app.example", True),
        ("", "", False),
    ],
)
def test_origins(host: str, origin: str, allowed: bool) -> None:
    authenticator = Authenticator(ServerConfig(access=AccessConfig(allowed_origins=("https://app.example/",))))
    headers = {"host": host} | ({"origin": origin} if origin else {})
    if allowed:
        authenticator.check_origin(headers)
    else:
        with pytest.raises(Forbidden):
            authenticator.check_origin(headers)


@pytest.mark.parametrize(
    ("site", "origin", "has_keys", "allowed"),
    [
        ("cross-site", "", False, False),
        ("Cross-Site", "", False, False),
        ("cross-site", "https://app.example", False, True),
        ("cross-site", "https://evil.example", False, False),
        ("cross-site", "", True, True),
        ("same-site", "", False, True),
        ("same-origin", "", False, True),
        ("none", "", False, True),
    ],
)
def test_a_page_of_another_site_cannot_ask_without_an_origin(
    site: str, origin: str, has_keys: bool, allowed: bool
) -> None:
    hashes = (create_key()[1],) if has_keys else ()
    access = AccessConfig(allowed_origins=("https://app.example",), api_key_hashes=hashes)
    authenticator = Authenticator(ServerConfig(access=access))
    headers = {"host": "localhost", "sec-fetch-site": site} | ({"origin": origin} if origin else {})
    with contextlib.nullcontext() if allowed else pytest.raises(Forbidden):
        authenticator.check_origin(headers)


BAD_HOSTS = ("[::1", "::1]", "[::1]x", "a b", "u@localhost", "localhost/x", "localhost:x", "127.0.0.1:8000:1", "\xff")
BAD_ORIGINS = (
    "http://[",
    "http://[::1",
    "http://a:b:c",
    "\xff",
    "http://a b",
    "null null",
    "//",
    "localhost",
    "http://u@a",
)
BAD_HEADERS = [*(("host", value) for value in BAD_HOSTS), *(("origin", value) for value in BAD_ORIGINS)]


@pytest.mark.parametrize("keys", [(), (create_key()[1],)])
@pytest.mark.parametrize(
    ("header", "value"), [*(("host", v) for v in BAD_HOSTS), *(("origin", v) for v in BAD_ORIGINS)]
)
def test_a_malformed_host_or_origin_is_invalid(keys: tuple[str, ...], header: str, value: str) -> None:
    authenticator = Authenticator(ServerConfig(access=AccessConfig(api_key_hashes=keys)))
    with pytest.raises(InvalidRequest) as caught:
        authenticator.check_origin({"host": "localhost", header: value})
    assert caught.value.field == header


@given(st.text(st.characters(max_codepoint=255)), st.text(st.characters(max_codepoint=255)))
def test_no_host_and_no_origin_raises_what_is_not_typed(host: str, origin: str) -> None:
    for value in (host, f"[{host}", f"{host}:8000", f"[::1]{host}"):
        for page in (origin, f"http://{origin}", f"http://{value}", f"http://[{origin}"):
            with contextlib.suppress(InvalidRequest, Forbidden):
                Authenticator(ServerConfig()).check_origin({"host": value, "origin": page})


@pytest.mark.parametrize("origin", ["app.example", "https://app example", "https://[", "https://app.example/path"])
def test_an_allowed_origin_that_no_browser_sends_is_a_config_error(origin: str) -> None:
    with pytest.raises(ConfigError, match=f"allowed origin '{re.escape(origin)}'"):
        Authenticator(ServerConfig(access=AccessConfig(allowed_origins=(origin,))))

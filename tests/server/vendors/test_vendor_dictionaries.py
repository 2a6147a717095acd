"""Pronunciation dictionaries that clients store at ElevenLabs' and Cartesia's addresses, and speech with them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_harness import GatewayHarness
from websockets.asyncio.client import connect

from realtime_tts.server.admission.auth import create_key

(KEY, KEY_HASH), (OTHER, OTHER_HASH) = create_key(), create_key()
SAID = "engine x " * 6  # much longer than its word, so that it is seen in the audio
PATH = "/v1/pronunciation-dictionaries"
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}
PLS = f"""<?xml version="1.0" encoding="UTF-8"?>
<lexicon version="1.0" xmlns="http://www.w3.org/2005/01/pronunciation-lexicon" alphabet="ipa" xml:lang="en">
  <lexeme><grapheme>nginx</grapheme><alias>{SAID}</alias></lexeme>
</lexicon>"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayHarness]:
    directory = str(tmp_path_factory.mktemp("voices"))
    with GatewayHarness(api_key_hashes=(KEY_HASH, OTHER_HASH), voices_dir=directory, mode="clause") as harness:
        yield harness


@pytest.fixture
def http(gateway: GatewayHarness) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, headers={"xi-api-key": KEY}, timeout=30) as client:
        yield client


def rules(*words: str) -> list[dict[str, str]]:
    return [{"type": "alias", "string_to_replace": word, "alias": SAID} for word in words]


def add(http: httpx.Client, *words: str) -> str:
    made = http.post(f"{PATH}/add-from-rules", json={"name": "Names", "rules": rules(*words)})
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def elevenlabs_bytes(http: httpx.Client, *ids: str) -> int:
    locators = [{"pronunciation_dictionary_id": id_, "version_id": "any"} for id_ in ids]
    body = {"text": "Ask nginx.", "pronunciation_dictionary_locators": locators}
    answer = http.post("/v1/text-to-speech/rms", params={"output_format": "pcm_16000"}, json=body)
    assert answer.status_code == 200, answer.text
    return len(answer.content)


def cartesia_bytes(http: httpx.Client, **fields: str) -> int:
    answer = http.post("/tts/bytes", json={"transcript": "Ask nginx.", "output_format": RAW, "voice": "rms", **fields})
    assert answer.status_code == 200, answer.text
    return len(answer.content)


def test_rules_added_at_the_same_time_are_all_kept(http: httpx.Client) -> None:
    id_, words = add(http, "apache"), [f"word{number}" for number in range(12)]

    def add_rule(word: str) -> int:
        return http.post(f"{PATH}/{id_}/add-rules", json={"rules": rules(word)}).status_code

    with ThreadPoolExecutor(len(words)) as threads:
        assert set(threads.map(add_rule, words)) == {200}
    assert {rule["string_to_replace"] for rule in http.get(f"{PATH}/{id_}").json()["rules"]} == {"apache", *words}
    http.patch(f"{PATH}/{id_}", json={"archived": True})


def test_elevenlabs_dictionaries_are_made_changed_and_used(http: httpx.Client) -> None:
    plain = elevenlabs_bytes(http)
    id_ = add(http, "apache")
    assert elevenlabs_bytes(http, id_) == plain
    added = http.post(f"{PATH}/{id_}/add-rules", json={"rules": rules("nginx")}).json()
    assert added["version_rules_num"] == 2
    assert elevenlabs_bytes(http, id_) > 2 * plain
    removed = http.post(f"{PATH}/{id_}/remove-rules", json={"rule_strings": ["nginx"]}).json()
    assert removed["version_id"] != added["version_id"]
    assert elevenlabs_bytes(http, id_) == plain
    assert http.post(f"{PATH}/{id_}/set-rules", json={"rules": rules("nginx")}).json()["version_rules_num"] == 1
    assert [rule["string_to_replace"] for rule in http.get(f"{PATH}/{id_}").json()["rules"]] == ["nginx"]
    assert http.patch(f"{PATH}/{id_}", json={"name": "Other"}).json()["name"] == "Other"
    listed = http.get(PATH).json()["pronunciation_dictionaries"]
    assert [each["id"] for each in listed] == [id_]
    assert http.patch(f"{PATH}/{id_}", json={"archived": True}).status_code == 200
    assert http.get(f"{PATH}/{id_}").status_code == 404


def test_of_equal_words_in_several_dictionaries_the_first_counts(http: httpx.Client) -> None:
    """Also if they are written in another form, as with a blank, or é as one character or as two."""
    long = add(http, "nginx")
    rule = {"type": "alias", "string_to_replace": "nginx ", "alias": "x"}
    short = http.post(f"{PATH}/add-from-rules", json={"name": "Short", "rules": [rule]}).json()["id"]
    assert elevenlabs_bytes(http, long, short) > 2 * elevenlabs_bytes(http, short, long)
    for id_ in (long, short):
        http.patch(f"{PATH}/{id_}", json={"archived": True})


def test_elevenlabs_dictionary_may_be_a_file(http: httpx.Client) -> None:
    made = http.post(f"{PATH}/add-from-file", data={"name": "File"}, files={"file": ("a.pls", PLS.encode())})
    assert made.status_code == 200, made.text
    assert elevenlabs_bytes(http, made.json()["id"]) > 2 * elevenlabs_bytes(http)


def test_half_a_utf_16_pair_in_a_file_is_replaced(http: httpx.Client) -> None:
    content = json.dumps({"x\ud800": "y\ud800"}).encode()
    made = http.post(f"{PATH}/add-from-file", data={"name": "File"}, files={"file": ("a.json", content)})
    answer = http.get(f"{PATH}/{made.json()['id']}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["rules"] == [{"type": "alias", "string_to_replace": "x\ufffd", "alias": "y\ufffd"}]


def test_an_empty_file_is_no_dictionary(http: httpx.Client) -> None:
    answer = http.post(f"{PATH}/add-from-file", data={"name": "File"}, files={"file": ("a.pls", b"")})
    detail = answer.json()["detail"]
    assert (answer.status_code, detail["status"], detail["message"]) == (400, "invalid_request", "the file is empty")


def test_cartesias_dictionaries_are_made_changed_and_used(http: httpx.Client) -> None:
    plain = cartesia_bytes(http)
    made = http.post(
        "/pronunciation-dicts/", json={"name": "Names", "items": [{"text": "nginx", "alias": SAID}]}
    ).json()
    assert cartesia_bytes(http, pronunciation_dict_id=made["id"]) > 2 * plain
    path = f"/pronunciation-dicts/{made['id']}"
    assert http.get(path).json() == made
    assert made in http.get("/pronunciation-dicts/").json()["data"]
    changed = http.patch(path, json={"items": [{"text": "apache", "alias": "a patchy"}]}).json()
    assert (changed["name"], changed["items"]) == ("Names", [{"text": "apache", "alias": "a patchy"}])
    assert cartesia_bytes(http, pronunciation_dict_id=made["id"]) == plain
    assert http.delete(path).status_code == 204
    assert http.get(path).json()["error_code"] == "dictionary_not_found"


async def test_sockets_speak_with_them(gateway: GatewayHarness, http: httpx.Client) -> None:
    id_, plain = add(http, "nginx"), elevenlabs_bytes(http)
    base = gateway.ws_url.removesuffix("/v1/stream")
    headers = {"xi-api-key": KEY}
    url = f"{base}/v1/text-to-speech/rms/stream-input?output_format=pcm_16000"
    async with connect(url, additional_headers=headers, proxy=None) as socket:
        locators = [{"pronunciation_dictionary_id": id_, "version_id": "any"}]
        await socket.send(json.dumps({"text": " ", "pronunciation_dictionary_locators": locators}))
        await socket.send('{"text": "Ask nginx. "}')
        await socket.send('{"text": ""}')
        told = [json.loads(message) async for message in socket]
    assert sum(len(message["audio"]) * 3 // 4 for message in told if message.get("audio")) > 2 * plain
    async with connect(f"{base}/tts/websocket", additional_headers=headers, proxy=None) as socket:
        wanted = {"voice": "rms", "output_format": RAW, "context_id": "a", "pronunciation_dict_id": id_}
        await socket.send(json.dumps({"transcript": "Ask nginx.", **wanted}))
        told = [json.loads(await socket.recv())]
        while not told[-1]["done"]:
            told.append(json.loads(await socket.recv()))
    assert sum(len(message["data"]) * 3 // 4 for message in told if message["type"] == "chunk") > 2 * plain


def test_a_dictionary_is_its_keys_own(gateway: GatewayHarness, http: httpx.Client) -> None:
    id_ = add(http, "nginx")
    other = {"xi-api-key": OTHER}
    assert httpx.get(f"{gateway.url}{PATH}/{id_}", headers=other).status_code == 404
    assert httpx.get(f"{gateway.url}{PATH}", headers=other).json()["pronunciation_dictionaries"] == []
    token = http.post("/v1/single-use-token/tts_websocket").json()["token"]
    assert httpx.get(f"{gateway.url}{PATH}", headers={"xi-api-key": token}).status_code == 403


def test_a_dictionary_outlives_the_server(tmp_path: Path) -> None:
    options: dict[str, Any] = {"voices_dir": str(tmp_path), "strict_ids": True}
    with GatewayHarness(**options) as before, httpx.Client(base_url=before.url) as client:
        id_ = add(client, "nginx")
    with GatewayHarness(**options) as after, httpx.Client(base_url=after.url) as client:
        assert client.get(f"{PATH}/{id_}").json()["rules"] == rules("nginx")
        locators = [{"pronunciation_dictionary_id": "another's"}]
        body = {"text": "Hi.", "pronunciation_dictionary_locators": locators}
        refused = client.post("/v1/text-to-speech/rms", json=body)
        assert (refused.status_code, refused.json()["detail"]["status"]) == (404, "dictionary_not_found")


def test_an_unknown_dictionary_is_ignored_with_a_notice(http: httpx.Client) -> None:
    for id_ in ("21m00Tcm4TlvDq8ikWAM", "../" * 4, "dict_" + "0" * 32):
        body = {"text": "Hi.", "pronunciation_dictionary_locators": [{"pronunciation_dictionary_id": id_}]}
        answer = http.post("/v1/text-to-speech/rms", json=body)
        assert (answer.status_code, "dictionary" in answer.headers["realtime-tts-notice"]) == (200, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{PATH}/add-from-rules", {"name": "", "rules": []}),
        (f"{PATH}/add-from-rules", {"name": "a", "rules": {}}),
        (f"{PATH}/add-from-rules", {"name": "a", "rules": rules(*map(str, range(101)))}),
        (
            f"{PATH}/add-from-rules",
            {"name": "a", "rules": [{"type": "phoneme", "string_to_replace": "a"}]},
        ),
        (f"{PATH}/add-from-rules", {"name": "a" * 129, "rules": []}),
        ("/pronunciation-dicts", {"items": []}),
        ("/pronunciation-dicts", {"name": "a", "items": [{"text": "", "alias": "a"}]}),
        ("/v1/text-to-speech/rms", {"text": "a", "pronunciation_dictionary_locators": [{}]}),
        ("/v1/text-to-speech/rms", {"text": "a", "pronunciation_dictionary_locators": [{}] * 4}),
    ],
)
def test_what_cannot_be_stored_or_asked_for(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    assert http.post(path, json=body).status_code == 400

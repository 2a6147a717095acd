"""The table of carriers: what is read and written, without sockets. `phone_carriers` has the other side."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from phone_carriers import CARRIERS as PEERS
from phone_carriers import Carrier as Peer
from server_environment import ROOT

sys.path.insert(0, str(ROOT / "agents"))

from carriers import CARRIERS, Carrier, Failed, Heard, Played, Started, Stopped

ROWS = [pytest.param(CARRIERS[name], PEERS[name], id=name) for name in CARRIERS]


def text(message: dict[str, Any] | bytes) -> str | bytes:
    return message if isinstance(message, bytes) else json.dumps(message)


@pytest.mark.parametrize(("carrier", "peer"), ROWS)
def test_events_of_a_call_are_read(carrier: Carrier, peer: type[Peer]) -> None:
    *before, start = [carrier.read(text(message)) for message in peer.start()]
    assert before in ([], [None])
    assert isinstance(start, Started)
    assert (start.stream_id == "") == (carrier.stream_id is None)
    assert carrier.read(text(peer.media(peer.loud))) == Heard(peer.loud)
    assert carrier.read(text(peer.played("1.0/200/end"))) == Played("1.0/200/end")
    assert carrier.read('{"event": "of another version", "anything": []}') is None
    if peer.stop is not None:
        assert isinstance(carrier.read(text(peer.stop)), Stopped)
    if carrier.error is not None:
        error = json.dumps({"event": carrier.error, "error_text": "unable"})
        assert carrier.read(error) == Failed(error)


@pytest.mark.parametrize(("carrier", "peer"), ROWS)
def test_the_carrier_understands_what_is_written(carrier: Carrier, peer: type[Peer]) -> None:
    start = carrier.read(text(peer.start()[-1]))
    assert isinstance(start, Started)
    understood = peer.__new__(peer).understand
    audio = carrier.to_play(start.stream_id, peer.loud)
    assert (audio if isinstance(audio, bytes) else understood(json.loads(audio))[1]) == peer.loud
    longest = "100000.1000/100000000/end"
    assert understood(json.loads(carrier.to_mark(start.stream_id, longest))) == ("mark", longest)
    assert understood(json.loads(carrier.to_clear(start.stream_id))) == ("clear", None)


@pytest.mark.parametrize("stream_id", ['"', '", "event": "media', "$name", "\n", "\u2028"])
def test_a_name_of_a_stream_stays_a_name(stream_id: str) -> None:
    for carrier in CARRIERS.values():
        for message in (carrier.to_mark(stream_id, "1.0/200"), carrier.to_clear(stream_id)):
            fields = json.loads(message)
            assert fields.get("streamSid", fields.get("streamId", stream_id)) == stream_id


BAD = ["", "no", "[]", "{}", "7", "null", '"start"', "[" * 60_000, '{"event": ' + "[" * 60_000]


@pytest.mark.parametrize(("carrier", "peer"), ROWS)
def test_malformed_messages_are_value_errors(carrier: Carrier, peer: type[Peer]) -> None:
    no_name = {"event": peer.played("")["event"]}
    media = peer.bad_media if carrier.media is not None else []  # the decoder refuses the others
    for message in [*BAD, *map(text, [*peer.bad_starts, *media, no_name])]:
        with pytest.raises(ValueError, match=r"."):
            carrier.read(message)


@pytest.mark.parametrize("name", ["twilio", "telnyx"])
def test_audio_of_another_track_is_not_the_caller(name: str) -> None:
    message = PEERS[name].media(b"\xff")
    assert isinstance(message, dict)
    assert CARRIERS[name].read(json.dumps({**message, "media": {**message["media"], "track": "outbound"}})) is None

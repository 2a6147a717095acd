"""What Cartesia's and Deepgram's clients ask for over plain HTTP, in this server's terms; pages of voices."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.contract.speech_params import SpeechParams
from realtime_tts.dialects.cartesia import requests as cartesia
from realtime_tts.dialects.cartesia.events import cartesia_problem
from realtime_tts.dialects.deepgram import requests as deepgram
from realtime_tts.dialects.speech_request import Rendering, SpeechRequest
from realtime_tts.errors import InvalidRequest, Overloaded, UnsupportedAudioFormat
from realtime_tts.server.http.schemas import Voice
from realtime_tts.server.vendors.cartesia_voices import page_of, voice_entry, voices_with

WAV = {"container": "wav", "encoding": "pcm_f32le", "sample_rate": 44_100}


def ask_cartesia(as_events: bool = False, **fields: Any) -> SpeechRequest:
    body = {"transcript": "Hello.", "output_format": WAV, "voice": {"id": "v"}, "model_id": "m", **fields}
    return cartesia.SpeechBody.parse(json.dumps(body).encode()).speech(Rendering() if as_events else None)


def ask_deepgram(text: str = "Hello.", **query: str) -> SpeechRequest:
    return deepgram.parse_speech(query, json.dumps({"text": text}).encode())


def test_cartesia_asks_for_a_file() -> None:
    asked = ask_cartesia(language="en", generation_config={"speed": 1.2})
    params = SpeechParams(language="en", speed=1.2)
    assert asked == SpeechRequest("Hello.", StreamFormat("wav", "pcm_f32le", 44_100), "v", "m", params)


def test_cartesia_asks_for_mp3() -> None:
    asked = ask_cartesia(output_format={"container": "mp3", "sample_rate": 44_100, "bit_rate": 192_000})
    assert asked.audio == StreamFormat("mp3", "mp3", 44_100, 192_000)


def test_cartesia_asks_for_events_with_words() -> None:
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 8_000}
    assert ask_cartesia(True, output_format=raw, context_id="c", add_timestamps=True).notices == ()
    with pytest.raises(UnsupportedAudioFormat):
        ask_cartesia(True)


def test_cartesia_is_told_what_is_ignored() -> None:
    asked = ask_cartesia(
        generation_config={"volume": 2, "emotion": "sad"}, pronunciation_dict_id="p", normalization="auto", save=True
    )
    ignored = ("emotion", "save")
    assert asked.params["volume"] == 2
    assert asked.dictionaries == ("p",)
    assert asked.notices == tuple(f"{name} is ignored" for name in ignored)


@pytest.mark.parametrize("transcript", ["", " \n"])
def test_cartesia_asks_for_nothing(transcript: str) -> None:
    with pytest.raises(InvalidRequest):
        ask_cartesia(transcript=transcript)


@pytest.mark.parametrize(
    ("query", "audio"),
    [
        ({}, StreamFormat("mp3", "mp3", 22_050, 48_000)),
        ({"encoding": "linear16"}, StreamFormat("wav", "pcm_s16le", 24_000)),
        ({"encoding": "linear16", "container": "none", "sample_rate": "8000"}, StreamFormat("raw", "pcm_s16le", 8_000)),
        ({"encoding": "mulaw"}, StreamFormat("wav", "mulaw", 8_000)),
        ({"encoding": "alaw", "container": "none"}, StreamFormat("raw", "alaw", 8_000)),
        ({"encoding": "opus", "bit_rate": "32000"}, StreamFormat("ogg", "opus", 48_000, 32_000)),
        ({"encoding": "flac"}, StreamFormat("flac", "flac", 22_050)),
        ({"encoding": "aac", "container": "none"}, StreamFormat("adts", "aac", 22_050, 48_000)),
    ],
)
def test_deepgrams_formats(query: dict[str, str], audio: StreamFormat) -> None:
    assert ask_deepgram(**query) == SpeechRequest("Hello.", audio)


def test_deepgrams_mp3_has_the_highest_bit_rate_that_there_is() -> None:
    asked = ask_deepgram(encoding="mp3", sample_rate="8000", bit_rate="128000")
    assert (asked.audio.bitrate, asked.notices) == (
        64_000,
        ("bit_rate is 64000, the highest of MP3 at this sample rate",),
    )
    with pytest.raises(UnsupportedAudioFormat):
        ask_deepgram(encoding="mp3", sample_rate="8000", bit_rate="65000")


def test_deepgram_asks_for_a_voice_and_a_speed() -> None:
    asked = ask_deepgram(model="v", speed="0.9", encoding="flac", bit_rate="1")
    assert (asked.voice, asked.params, asked.notices) == ("v", SpeechParams(speed=0.9), ("bit_rate is ignored",))


@pytest.mark.parametrize(
    "query",
    [
        {"encoding": "vorbis"},
        {"encoding": "opus", "container": "wav"},
        {"sample_rate": "x"},
        {"speed": "fast"},
        {"callback": "http://a"},
    ],
)
def test_invalid_deepgram_requests_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        ask_deepgram(**query)


def test_errors_name_the_request() -> None:
    status, told = cartesia_problem(Overloaded("full"), "r1")
    assert (status, told["error_code"], told["request_id"]) == (503, "concurrency_limited", "r1")
    assert deepgram.deepgram_problem(Overloaded("full"), "r1") == (
        503,
        {"err_code": "overloaded", "err_msg": "full", "request_id": "r1"},
    )


def voice(name: str, kind: Literal["model", "cloned"] = "model", created_at: float | None = None) -> Voice:
    return Voice(id=name, name=name, kind=kind, description="Warm", language="en", default=False, created_at=created_at)


@pytest.mark.parametrize(("kind", "access", "is_own"), [("model", "public", False), ("cloned", "private", True)])
def test_a_voice_is_private_to_its_owner_or_public(kind: Literal["model", "cloned"], access: str, is_own: bool) -> None:
    entry = voice_entry(voice("v", kind, 0.0), 7)
    assert (entry["access"], entry["is_owner"], entry["created_at"]) == (access, is_own, "1970-01-01T00:00:00Z")
    assert entry["locales"] == [{"locale": "en", "is_native": True}]


@given(st.integers(0, 9), st.integers(1, 4))
def test_pages_hold_every_voice_once_in_both_directions(num_voices: int, limit: int) -> None:
    entries = [voice_entry(voice(f"v{index}"), 0) for index in range(num_voices)]
    forth: list[dict[str, Any]] = []
    page: Any = page_of(entries, limit, None, None)
    forth += page["data"]
    while page["has_more"]:
        page = page_of(entries, limit, page["next_page"], None)
        forth += page["data"]
    assert forth == entries
    if entries:
        back: list[dict[str, Any]] = [entries[-1]]
        while (page := page_of(entries, limit, None, back[0]["id"]))["data"]:
            back = [*page["data"], *back]
        assert back == entries
    assert page_of(entries, 9, "unknown", None)["data"] == entries
    assert page_of(entries, 9, None, "unknown")["data"] == []


def test_voices_are_found_by_name_or_description() -> None:
    both = [voice("Ann"), voice("Bob")]
    assert voices_with("ANN", both) == both[:1]
    assert voices_with("warm", both) == both

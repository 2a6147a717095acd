"""ElevenLabs' speech over plain HTTP: requests read, answers written, with the times of every character."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from realtime_tts.audio.stream_format import StreamFormat
from realtime_tts.dialects.elevenlabs.formats import DEFAULT_FORMAT
from realtime_tts.dialects.elevenlabs.speech import TimedLines, TimedObject, parse_request
from realtime_tts.dialects.speech_request import Chunk, Total
from realtime_tts.errors import EngineLost, InvalidRequest
from realtime_tts.server.http.schemas import Voice
from realtime_tts.server.vendors.elevenlabs_voices import voice_entry
from realtime_tts.session.messages import TimedWord

TEXT = "Hello there. Bye!"
WORDS = (
    TimedWord("Hello", 0, 5, 100, 400),
    TimedWord("there.", 6, 12, 500, 900),
    TimedWord("Bye!", 13, 17, 1000, 1200),
)
END = Total(17, 1300, 0)


def parsed(**fields: Any):
    return parse_request(json.dumps({"text": "Hello.", **fields}).encode(), "rachel", DEFAULT_FORMAT)


def test_what_plugins_send() -> None:
    wanted = parsed(
        model_id="eleven_turbo_v2_5",
        voice_settings=None,
        apply_text_normalization="auto",
        previous_text="Before.",
        language_code="en",
        seed=7,
    )
    assert (wanted.text, wanted.voice, wanted.model) == ("Hello.", "rachel", "eleven_turbo_v2_5")
    assert wanted.params == {"seed": 7, "language": "en"}
    assert wanted.audio == StreamFormat("mp3", "mp3", 44_100, 128_000)
    assert wanted.notices == ()


def test_what_makes_no_difference_is_named() -> None:
    wanted = parsed(voice_settings={"stability": 0.5, "style": 0.1, "speed": 0.9}, use_pvc_as_ivc=True)
    assert wanted.params["speed"] == 0.9
    assert wanted.notices == ("stability is ignored", "style is ignored", "use_pvc_as_ivc is ignored")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pcm_24000", StreamFormat("raw", "pcm_s16le", 24_000)),
        ("wav_16000", StreamFormat("wav", "pcm_s16le", 16_000)),
        ("opus_48000_32", StreamFormat("ogg", "opus", 48_000, 32_000)),
        ("ulaw_8000", StreamFormat("raw", "mulaw", 8_000)),
    ],
)
def test_formats_are_in_the_address(name: str, expected: StreamFormat) -> None:
    assert parse_request(b'{"text":"a"}', "x", name).audio == expected


@pytest.mark.parametrize(
    ("body", "output_format", "field"),
    [
        (b"", DEFAULT_FORMAT, None),
        (b"[]", DEFAULT_FORMAT, None),
        (b"{}", DEFAULT_FORMAT, "text"),
        (b'{"text":"  "}', DEFAULT_FORMAT, "text"),
        (b'{"text":7}', DEFAULT_FORMAT, "text"),
        (b'{"text":"a","seed":"x"}', DEFAULT_FORMAT, "seed"),
        (b'{"text":"a","voice_settings":[]}', DEFAULT_FORMAT, "voice_settings"),
        (b'{"text":"a","voice_settings":{"speed":"x"}}', DEFAULT_FORMAT, "voice_settings.speed"),
        (b'{"text":"a"}', "mp3_1_1", "output_format"),
    ],
)
def test_an_invalid_field_is_refused_by_name(body: bytes, output_format: str, field: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(body, "x", output_format)
    assert caught.value.field == field


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=60)
    | st.dictionaries(st.text(max_size=8), st.integers() | st.text(), max_size=4).map(
        lambda fields: json.dumps({"text": "a", **fields}).encode()
    )
)
def test_any_body_is_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        assert parse_request(body, "x", DEFAULT_FORMAT).text


def test_lines_have_sound_and_what_begins_in_it() -> None:
    answer = TimedLines(TEXT)
    lines = [
        answer.chunk(Chunk(b"\x01" * 5, WORDS[:2])),
        answer.chunk(Chunk(b"", ())),
        answer.chunk(Chunk(b"\x02", WORDS[2:])),
        answer.end(END),
    ]
    read = [json.loads(line) for line in lines if line]
    assert [base64.b64decode(line["audio_base64"]) for line in read] == [b"\x01" * 5, b"\x02"]
    assert [line["alignment"] for line in read] == [line["normalized_alignment"] for line in read]
    chars = [char for line in read for char in line["alignment"]["characters"]]
    starts = [at for line in read for at in line["alignment"]["character_start_times_seconds"]]
    ends = [at for line in read for at in line["alignment"]["character_end_times_seconds"]]
    assert "".join(chars) == TEXT
    assert (starts[0], ends[4], starts[6], ends[-1]) == (0.1, 0.4, 0.5, 1.2)
    assert all(line.endswith(b"\n") for line in lines if line)


def test_what_no_word_has_comes_with_the_end() -> None:
    answer = TimedLines("Hi 🙂")
    assert answer.chunk(Chunk(b"", (TimedWord("Hi", 0, 2, 0, 100),)))
    last = json.loads(answer.end(Total(4, 400, 0)))
    assert last == {**last, "audio_base64": ""}
    assert last["alignment"]["characters"] == ["🙂"]
    assert json.loads(answer.error(EngineLost("gone")))["detail"]["message"] == "gone"


def whole(pieces: list[bytes], cut: Callable[[int], tuple[TimedWord, ...]]) -> dict[str, Any]:
    answer = TimedObject(TEXT)
    told = b"".join(answer.chunk(Chunk(piece, cut(index))) for index, piece in enumerate(pieces)) + answer.end(END)
    return dict(json.loads(told))


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_an_object_that_is_made_piece_by_piece_is_one(pieces: list[bytes]) -> None:
    found = whole(pieces, lambda index: WORDS[index : index + 1])
    assert base64.b64decode(found["audio_base64"], validate=True) == b"".join(pieces)
    assert "".join(found["alignment"]["characters"]) == TEXT
    assert found["alignment"] == found["normalized_alignment"]
    assert len(found["alignment"]["character_end_times_seconds"]) == len(TEXT)


def test_in_an_object_no_character_ends_after_the_audio() -> None:
    answer = TimedObject("Hi you.")
    told = answer.chunk(Chunk(b"pcm", (TimedWord("Hi", 0, 2, 0, 100), TimedWord("you.", 3, 7, 150, 260))))
    times = json.loads(told + answer.end(Total(7, 200.2, 1)))["alignment"]
    assert times["character_end_times_seconds"][-2:] == [0.2, 0.2]
    assert max(times["character_start_times_seconds"]) <= 0.2


def test_nothing_is_told_before_there_is_sound() -> None:
    assert TimedObject(TEXT).chunk(Chunk(b"", WORDS[:1])) == b""


def test_voices_look_as_theirs_do() -> None:
    own = Voice(id="slt", name="slt", kind="model", description="d", language="en", default=True)
    assert voice_entry(own) == {
        "voice_id": "slt",
        "name": "slt",
        "category": "premade",
        "description": "d",
        "labels": {"language": "en"},
        "preview_url": None,
        "settings": None,
        "is_owner": False,
        "created_at_unix": None,
    }
    cloned = voice_entry(own.model_copy(update={"kind": "cloned", "created_at": 7.5}))
    assert (cloned["created_at_unix"], cloned["is_owner"], cloned["category"]) == (7, True, "cloned")
    assert voice_entry(own.model_copy(update={"kind": "designed"}))["category"] == "generated"

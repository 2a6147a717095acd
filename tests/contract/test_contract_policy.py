from __future__ import annotations

import json

import pytest
from voices import DEFAULT_VOICE, STARTER_DIRECTORY, VOICES

from realtime_tts.contract.policy import ServingPolicy, TextHead, VoicePolicy
from realtime_tts.errors import CheckpointError


def test_a_checkpoint_without_one_gets_the_defaults(tmp_path):
    policy = ServingPolicy.load(tmp_path)
    assert policy == ServingPolicy()
    assert policy.continuity == "continuation"
    assert policy.text_head is None
    assert ServingPolicy.from_map({"text_head": None}) == policy


def test_the_starter_voice_has_named_voices():
    policy = ServingPolicy.load(STARTER_DIRECTORY)
    assert policy.default_voice == DEFAULT_VOICE
    assert len(VOICES) >= 3
    assert {name: voice.text_prefix for name, voice in policy.voices.items()} == {name: f"<{name}>" for name in VOICES}
    assert all(voice.description and voice.language == "en" for voice in policy.voices.values())
    assert policy.charset is not None
    assert "a" in policy.charset
    assert policy.text_head is not None


def test_it_survives_the_trip_as_a_plain_map():
    policy = ServingPolicy(
        name="x",
        languages=("de",),
        voices={"a": VoicePolicy("<a>")},
        default_voice="a",
        charset="ab",
        text_head=TextHead(3, 1, -20.5, 0.9),
    )
    assert ServingPolicy.from_map(json.loads(json.dumps(policy.to_map()))) == policy


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ([], "must be an object"),
        ({"steps": 3}, "'steps'"),
        ({"default_steps": "6"}, "default_steps"),
        ({"default_steps": True}, "default_steps"),
        ({"default_steps": 1}, "default_steps"),
        ({"default_steps": 65}, "default_steps"),
        ({"onset_db": 0}, "onset_db"),
        ({"onset_db": "-50"}, "onset_db"),
        ({"default_cfg": -1.0}, "default_cfg"),
        ({"default_cfg": 10.5}, "default_cfg"),
        ({"continuity": "none"}, "continuity"),
        ({"languages": "en"}, "languages"),
        ({"languages": [1]}, "languages"),
        ({"max_segment_chars": 0}, "max_segment_chars"),
        ({"max_prompt_patches": -1}, "max_prompt_patches"),
        ({"max_patches_per_char": 0}, "max_patches_per_char"),
        ({"default_voice": "eve"}, "default_voice"),
        ({"text_head": 3}, "text_head"),
        ({"text_head": {"layer": 3}}, "text_head.head is missing"),
        ({"text_head": {"layer": 3, "head": -1}}, "text_head"),
        ({"text_head": {"layer": 3, "head": 1.0}}, "head"),
        ({"text_head": {"layer": 3, "head": 1, "lag_ms": float("nan")}}, "lag_ms"),
        ({"text_head": {"layer": 3, "head": 1, "reach": 0.0}}, "reach"),
        ({"text_head": {"layer": 3, "head": 1, "reach": 1.01}}, "reach"),
        ({"text_head": {"layer": 3, "head": 1, "reach": float("nan")}}, "reach"),
        ({"text_head": {"layer": 3, "head": 1, "tail": 2}}, "unknown key 'text_head.tail'"),
        ({"voices": []}, "voices"),
        ({"voices": {"a": {"prefix": "<a>"}}}, "unknown key 'voices.a.prefix'"),
        ({"voices": {"a": "<a>"}}, "voices"),
    ],
)
def test_faults_are_named(raw, named):
    with pytest.raises(CheckpointError, match=named):
        ServingPolicy.from_map(raw)


def test_a_file_that_is_no_json_is_a_checkpoint_error(tmp_path):
    for text in ("{", "[" * 100_000):
        (tmp_path / "serving.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"serving\.json cannot be read"):
            ServingPolicy.load(tmp_path)

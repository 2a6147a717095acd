"""The engine with a small random model: what a stream sounds like depends on itself alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from engine_harness import EngineHarness, patch_duration_s

from realtime_tts.contract import frames
from realtime_tts.contract.policy import VoicePolicy
from realtime_tts.engine import engine as engine_module
from realtime_tts.engine.continuity import Continuity, join_text
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.engine.voices import ZERO_SHOT, EngineVoice, encode_voice
from realtime_tts.errors import AudioDecodeError, EngineOutOfMemory, InvalidRequest
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.generate import decode, generate
from realtime_tts.model.local_transformers import LocDiT
from realtime_tts.model.sequence import build_sequence

TEXTS = ["hello", "theweatherisnicetoday", "yes", "onetwothreefourfivesixseven", "abc", "quick", "brownfox", "zz"]


@pytest.fixture(autouse=True)
def short_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch of the random model is 1.5 ms; a tenth of a second would fill its context."""
    monkeypatch.setattr("realtime_tts.engine.voices.MIN_RECORDING_S", 0.005)


def recording(seconds: float = 0.05, rate_hz: int = 16000, seed: int = 0) -> bytes:
    noise = np.random.RandomState(seed).uniform(-0.5, 0.5, int(seconds * rate_hz))
    return (noise * 32767).astype("<i2").tobytes()


def latents_of(loaded: LoadedModel, message: frames.EncodeVoice, **fields: Any) -> frames.AddVoice:
    encoded = encode_voice(loaded, message)
    counts = encoded.num_reference_patches, encoded.num_prompt_patches, encoded.patch_size, encoded.latent_dim
    return frames.AddVoice(message.voice_id, *counts, payload=encoded.payload, **fields)


def add_voice(harness: EngineHarness, voice_id: str, **fields: Any) -> None:
    pcm = recording(0.012, seed=len(voice_id))
    message = frames.EncodeVoice(voice_id, 16000, len(pcm), payload=pcm)
    harness.engine.post(latents_of(harness.engine.loaded, message, **fields))


def alone(loaded: LoadedModel, text: str, **fields: Any) -> np.ndarray[Any, Any]:
    harness = EngineHarness(loaded)
    harness.say("x", text, **fields)
    harness.run()
    return harness.pcm("x")


def test_eight_ragged_streams_that_join_and_leave_equal_eight_runs_alone(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, max_prefill_positions=16)
    for number, text in enumerate(TEXTS):
        steps, cfg = (3, 1.5) if number % 3 == 0 else (4, 2.0)
        harness.say(f"r{number}", text, seed=number, max_patches=4 + number, steps=steps, cfg=cfg)
        harness.engine.step()
    harness.run()
    for number, text in enumerate(TEXTS):
        steps, cfg = (3, 1.5) if number % 3 == 0 else (4, 2.0)
        expected = alone(tiny, text, seed=number, max_patches=4 + number, steps=steps, cfg=cfg)
        actual = harness.pcm(f"r{number}")
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max())
    harness.assert_nothing_leaked()


def test_the_engine_speaks_what_the_model_generates_without_it(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    harness.say("x", "hello", seed=3, segment=2, max_patches=8, steps=4, cfg=1.5)
    harness.run()
    config, key = tiny.config, torch.tensor([noise_key(3, 2)])
    (patches,) = generate(
        tiny.model,
        [build_sequence(config, tiny.tokenizer.encode("hello"))],
        [lambda index: patch_noise(key, torch.tensor([index]), config.patch_size, config.latent_dim)[0]],
        [8],
        flow_steps=4,
        cfg=1.5,
    )
    np.testing.assert_allclose(harness.pcm("x"), decode(tiny.model, patches).numpy(), atol=1e-5)


def test_a_guidance_of_one_computes_no_guidance_on_a_cpu(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sound is that of the guided flow, which is then the conditional one. Other streams keep their weight."""
    expected = alone(tiny, "hello", seed=3, cfg=2.0)
    num_rows: list[int] = []
    velocity = LocDiT.velocity

    def counting(self: LocDiT, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        num_rows.append(len(x))
        return velocity(self, x, *rest)

    monkeypatch.setattr(LocDiT, "velocity", counting)
    unguided = alone(tiny, "hello", seed=3, cfg=1.0)
    assert set(num_rows) == {1}
    nearly = alone(tiny, "hello", seed=3, cfg=1.000001)
    assert num_rows[-1] == 2
    np.testing.assert_allclose(unguided, nearly, atol=1e-4 * np.abs(nearly).max())
    harness = EngineHarness(tiny)
    harness.say("guided", "hello", seed=3, cfg=2.0)
    harness.say("unguided", "hello", seed=3, cfg=1.0)
    harness.run()
    np.testing.assert_allclose(harness.pcm("guided"), expected, atol=1e-4 * np.abs(expected).max())
    np.testing.assert_allclose(harness.pcm("unguided"), nearly, atol=1e-4 * np.abs(nearly).max())


def test_streamed_audio_is_the_whole_decode_of_its_patches(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    harness.say("x", "hello", max_patches=6)
    while not harness.sent or isinstance(harness.sent[-1], frames.Audio):
        segments = dict(harness.engine._segments)
        harness.engine.step()
    patches = np.stack(segments["x"].patches)
    whole = tiny.model.vae.decode(torch.from_numpy(patches).flatten(0, 1)[None])[0]
    np.testing.assert_allclose(harness.pcm("x"), whole.numpy(), atol=1e-5)
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert done.num_samples == len(harness.pcm("x")) == done.num_patches * tiny.config.patch_samples


def test_a_seed_decides_and_nothing_else_does(tiny: LoadedModel) -> None:
    one, again, other = (alone(tiny, "hello", seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.allclose(one[: other.size], other[: one.size], atol=1e-3)


def test_a_cached_prefix_sounds_like_a_cold_one(tiny: LoadedModel) -> None:
    text = "abcdefghij" * 5
    cold = alone(tiny, text, seed=3)
    harness = EngineHarness(tiny)
    for name in ("first", "second"):
        harness.say(name, text, seed=3)
        harness.run()
    done = harness.end("second")
    assert isinstance(done, frames.Done)
    assert done.cached_positions == 48
    np.testing.assert_allclose(harness.pcm("second"), cold, atol=1e-4 * np.abs(cold).max())


def test_tenants_share_no_prefix(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    for tenant in "ab":
        harness.say(tenant, "abcdefghij" * 5, tenant=tenant)
        harness.run()
        done = harness.end(tenant)
        assert isinstance(done, frames.Done)
        assert done.cached_positions == 0


def test_s16_is_the_same_audio_rounded(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    harness.say("f", "hello")
    harness.say("s", "hello", encoding="s16le")
    harness.run()
    samples = b"".join(m.payload for m in harness.sent if isinstance(m, frames.Audio) and m.request_id == "s")
    np.testing.assert_allclose(np.frombuffer(samples, "<i2") / 32767, np.clip(harness.pcm("f"), -1, 1), atol=1e-4)


@pytest.mark.parametrize("num_steps", range(6))
def test_a_cancel_at_any_step_ends_at_once_and_leaks_nothing(tiny: LoadedModel, num_steps: int) -> None:
    harness = EngineHarness(tiny, max_prefill_positions=16)
    harness.say("victim", "abcdefghij" * 4, max_patches=30)
    harness.say("other", "hello")
    for _ in range(num_steps):
        harness.engine.step()
    harness.engine.post(frames.Cancel("victim"))
    harness.engine.step()
    end = harness.end("victim")
    assert isinstance(end, frames.Done)
    assert end.finish_reason == "cancelled"
    harness.engine.post(frames.Cancel("victim"))
    harness.run()
    np.testing.assert_allclose(harness.pcm("other"), alone(tiny, "hello"), atol=1e-4)
    harness.assert_nothing_leaked()


def test_nan_in_one_stream_fails_it_and_leaves_the_others_as_they_are(tiny: LoadedModel) -> None:
    def run(poison: bool) -> EngineHarness:
        harness = EngineHarness(tiny, num_blocks=16)
        harness.say("bad", "abcdefghij" * 3, seed=1)
        harness.say("good", "hello", seed=2)
        harness.engine.step()
        harness.engine.step()
        if poison:
            slot = harness.engine.scheduler._requests["bad"].slot
            harness.engine.runner.state.last_patch[slot] = float("nan")
        harness.engine.step()
        harness.engine.post(frames.Cancel("bad"))  # so that both runs go on with the same batch
        harness.run()
        return harness

    healthy, poisoned = run(False), run(True)
    failed = poisoned.end("bad")
    assert isinstance(failed, frames.Failed)
    assert failed.code == "numerical_error"
    assert np.isfinite(poisoned.pcm("bad")).all()
    assert np.array_equal(poisoned.pcm("good"), healthy.pcm("good"))  # bit for bit
    assert poisoned.engine.scheduler.pool.num_cached == 0  # "hello" fills no block
    assert torch.isfinite(poisoned.engine.runner.state.kv.pool).all()  # 0 × NaN in a masked position would be NaN
    # the next stream in the failed one's blocks and slot is not touched by what it left there
    for number in range(4):
        poisoned.say(f"next{number}", "abcdefghij" * 3, seed=number, max_patches=20)
    poisoned.run()
    for number in range(4):
        expected = alone(tiny, "abcdefghij" * 3, seed=number, max_patches=20)
        np.testing.assert_allclose(poisoned.pcm(f"next{number}"), expected, atol=1e-4 * np.abs(expected).max())
    poisoned.assert_nothing_leaked()


def test_out_of_memory_fails_the_batch_and_the_third_in_a_minute_the_worker(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = EngineHarness(tiny)
    run_step = harness.engine.runner._step

    def no_memory(layout: Any) -> Any:
        raise torch.OutOfMemoryError("asked to")

    for number in range(2):
        monkeypatch.setattr(harness.engine.runner, "_step", no_memory)
        harness.say(f"r{number}", "hello")
        assert harness.engine.step()
        failed = harness.end(f"r{number}")
        assert isinstance(failed, frames.Failed)
        assert failed.code == "engine_out_of_memory"
        monkeypatch.setattr(harness.engine.runner, "_step", run_step)
        harness.say(f"ok{number}", "hello")
        harness.run()
        assert isinstance(harness.end(f"ok{number}"), frames.Done)
    harness.now += 61.0
    monkeypatch.setattr(harness.engine.runner, "_step", no_memory)
    harness.say("late", "hello")
    assert harness.engine.step()  # the first two are too long ago
    harness.say("r3", "hello")
    harness.engine.step()
    harness.say("r4", "hello")
    with pytest.raises(EngineOutOfMemory):
        harness.engine.step()
    harness.assert_nothing_leaked()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"voice": "nobody"}, "voice_not_found"),
        ({"encoding": "mp3"}, "invalid_request"),
        ({"steps": 1}, "invalid_request"),
        ({"steps": 65}, "invalid_request"),
        ({"cfg": float("nan")}, "invalid_request"),
        ({"cfg": -1.0}, "invalid_request"),
        ({"cfg": 10.1}, "invalid_request"),
        ({"text": "a" * 300}, "request_too_large"),
    ],
)
def test_a_bad_request_fails_typed_and_costs_nothing(tiny: LoadedModel, fields: dict[str, Any], code: str) -> None:
    harness = EngineHarness(tiny)
    harness.say("x", **{"text": "hello", "max_patches": None, **fields})
    harness.run()
    failed = harness.end("x")
    assert isinstance(failed, frames.Failed)
    assert failed.code == code
    harness.assert_nothing_leaked()


@pytest.mark.parametrize("text", ["", " ", "123", "🙂", "\x00"])
def test_a_text_without_a_known_character_is_done_at_once(tiny: LoadedModel, text: str) -> None:
    harness = EngineHarness(tiny)
    harness.say("x", text)
    harness.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches) == ("stop", 0)


def test_a_request_id_in_use_is_refused_and_the_first_goes_on(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    harness.say("x", "hello")
    harness.engine.step()
    harness.say("x", "again")
    harness.run()
    assert [type(m) for m in harness.sent if isinstance(m, frames.Failed)] == [frames.Failed]
    assert len(harness.pcm("x")) == len(alone(tiny, "hello"))


def inputs_of(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Record what each request's input was."""
    found: dict[str, Any] = {}

    def record(source: Any, end: int) -> list[bytes]:
        name = next(name for name in harness.engine._segments if name not in found)
        found[name] = source
        return content(source, end)

    content = engine_module.content_of
    monkeypatch.setattr(engine_module, "content_of", record)
    return found


def test_a_zero_shot_voice_becomes_the_reference_of_its_context(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = EngineHarness(tiny, policy={"continuity": "reference"})
    inputs = inputs_of(harness, monkeypatch)
    for number in range(3):
        harness.say(f"c{number}", "hello", context="c", max_patches=12 - number)
    harness.run()
    assert len(inputs["c0"].features) == 0
    assert len(inputs["c1"].features) == 10  # the first ten patches, and the same ones for ever
    assert np.array_equal(inputs["c1"].features, inputs["c2"].features)
    assert inputs["c1"].token_ids[0] == 103
    harness.engine.post(frames.CloseContext("c"))
    harness.run()
    assert len(harness.engine.continuity._memories) == 0
    assert harness.engine.scheduler.num_contexts == 0


def test_a_continued_context_goes_on_from_its_last_segment(
    tiny_first: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = EngineHarness(tiny_first, policy={"max_prompt_patches": 8})
    inputs = inputs_of(harness, monkeypatch)
    harness.say("a", "hello", context="c", max_patches=6)
    harness.say("b", "world", context="c", max_patches=8)
    harness.run()
    expected = tiny_first.tokenizer.encode("hello world")
    first = harness.end("a")
    assert isinstance(first, frames.Done)
    assert inputs["b"].token_ids == [*expected, 101, *[0] * first.num_patches]
    assert len(inputs["b"].context) == tiny_first.config.num_context_patches
    assert isinstance(harness.end("b"), frames.Done)


def test_a_prompt_that_is_too_long_is_cut_at_a_word(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, policy={"max_prompt_patches": 4})
    speech = np.arange(8, dtype=np.float32)[:, None, None] * np.ones((1, 4, 8), np.float32)
    text, patches = harness.engine.continuity._prompt("one two three four", speech)
    assert text == "four"
    assert patches[:, 0, 0].tolist() == [6.0, 7.0]
    text, patches = harness.engine.continuity._prompt("oneword", speech)
    assert (text, len(patches)) == ("oneword", 4)


def test_continuity_gives_way_when_there_is_no_room_for_it(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(tiny, num_blocks=2)
    inputs = inputs_of(harness, monkeypatch)
    harness.say("a", "hello", context="c", max_patches=8)
    harness.say("b", "abcdefghijklmnop", context="c", max_patches=12)
    harness.run()
    assert len(inputs["b"].features) == 0
    assert isinstance(harness.end("b"), frames.Done)


def test_texts_are_joined_as_their_script_joins_them() -> None:
    assert join_text("Hello.", "World") == "Hello. World"
    assert join_text("Hello. ", "World") == "Hello. World"
    assert join_text("你好。", "世界") == "你好。世界"
    assert join_text("안녕하세요.", "반가워요") == "안녕하세요. 반가워요"
    assert join_text("안녕", "hello") == "안녕 hello"
    assert join_text("", "x") == "x"


def test_an_added_voice_changes_the_sound_belongs_to_its_tenant_and_goes_with_its_cache(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    add_voice(harness, "mine", tenant="t")
    harness.say("spoken", "hello", voice="mine", tenant="t")
    harness.say("stolen", "hello", voice="mine", tenant="other")
    harness.run()
    assert isinstance(harness.end("stolen"), frames.Failed)
    assert not np.allclose(harness.pcm("spoken")[:100], alone(tiny, "hello")[:100], atol=1e-3)
    assert harness.engine.scheduler.pool.num_cached > 0
    harness.engine.post(frames.RemoveVoice("mine"))
    harness.engine.post(frames.RemoveVoice("unknown"))
    harness.say("after", "hello", voice="mine", tenant="t")
    harness.run()
    assert isinstance(harness.end("after"), frames.Failed)
    assert harness.engine.scheduler.pool.num_cached == 0


@pytest.mark.parametrize("when", ["before its first step", "in its prefill", "before the next segment"])
def test_nothing_of_a_removed_voice_is_cached_after_its_last_request(tiny: LoadedModel, when: str) -> None:
    harness = EngineHarness(tiny, max_prefill_positions=16)
    add_voice(harness, "mine")
    harness.say("x", "theweatherisnicetoday", context="c", voice="mine")
    if when != "before its first step":
        harness.engine.step()
    if when == "before the next segment":
        harness.say("y", "theweatherisnicetoday", context="c", voice="mine")
    harness.engine.post(frames.RemoveVoice("mine"))
    harness.run()
    assert isinstance(harness.end("x"), frames.Done)
    assert harness.engine.scheduler.pool.num_cached == 0
    harness.assert_nothing_leaked()


def test_of_a_voices_blocks_those_used_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realtime_tts.engine.voices._MAX_HASHES", 4)
    voice, prefix = EngineVoice("mine", is_added=True), [b"first", b"second"]
    for text in (b"a", b"b", b"c", b"d"):
        voice.note_hashes([*prefix, text])
        assert [*voice.hashes][-3:] == [*prefix, text]
    assert len(voice.hashes) == 4


@pytest.mark.parametrize("parts", ["reference", "prompt", "both"])
def test_every_way_to_make_a_voice_speaks(tiny: LoadedModel, parts: str) -> None:
    harness = EngineHarness(tiny)
    reference = b"" if parts == "prompt" else recording(0.01, seed=1)
    prompt = b"" if parts == "reference" else recording(0.02, seed=2)
    message = frames.EncodeVoice("v", 16000, len(reference), payload=reference + prompt)
    harness.engine.post(latents_of(tiny, message, prompt_text="abc" if prompt else None))
    harness.say("x", "hello", voice="v")
    harness.run()
    assert isinstance(harness.end("x"), frames.Done)
    assert np.abs(harness.pcm("x")).max() > 0


def test_reference_and_prompt_are_two_recordings(tiny: LoadedModel) -> None:
    first, second = recording(0.01, seed=1), recording(0.02, seed=2)
    both = encode_voice(tiny, frames.EncodeVoice("v", 16000, len(first), payload=first + second))
    reference = encode_voice(tiny, frames.EncodeVoice("v", 16000, len(first), payload=first))
    prompt = encode_voice(tiny, frames.EncodeVoice("v", 16000, payload=second))
    assert both.payload == reference.payload + prompt.payload
    assert both.num_prompt_patches == prompt.num_prompt_patches > both.num_reference_patches > 0
    assert (reference.num_prompt_patches, prompt.num_reference_patches) == (0, 0)


@pytest.mark.parametrize("rate_hz", [22_050, 24_000, 44_100, 48_000])
def test_a_resampled_recording_has_the_references_length(tiny: LoadedModel, rate_hz: int) -> None:
    """Rounded up: here the last sample begins a patch of its own."""
    num_samples = 50 * tiny.config.patch_encode_samples * rate_hz // tiny.config.encode_rate_hz + 1
    pcm = np.ones(num_samples, "<i2").tobytes()
    assert encode_voice(tiny, frames.EncodeVoice("v", rate_hz, len(pcm), payload=pcm)).num_reference_patches == 51


def test_a_bad_recording_is_refused(tiny: LoadedModel, tiny_first: LoadedModel) -> None:
    for rate_hz, payload in (
        (16000, b""),
        (100, recording()),
        (16000, b"\0" * 4001),
        (16000, b"\0" * 2 * 16000 * 61),
    ):
        with pytest.raises(AudioDecodeError):
            encode_voice(tiny, frames.EncodeVoice("v", rate_hz, len(payload), payload=payload))
    with pytest.raises(InvalidRequest, match="text"):
        encode_voice(tiny_first, frames.EncodeVoice("v", 16000, 32000, payload=recording(1.0)))


def test_a_voice_sounds_the_same_wherever_its_latents_go(tiny: LoadedModel) -> None:
    pcm = recording(0.012, seed=4)
    voice = latents_of(tiny, frames.EncodeVoice("v", 16000, len(pcm), payload=pcm))
    spoken = []
    for _ in range(2):
        harness = EngineHarness(tiny)
        harness.engine.post(frames.Decoder().feed(frames.encode(voice))[0])
        harness.say("x", "hello", voice="v")
        harness.run()
        spoken.append(harness.pcm("x"))
    assert np.array_equal(*spoken)


@pytest.mark.parametrize(
    "change",
    [
        {"patch_size": 8},
        {"latent_dim": 4},
        {"num_reference_patches": 0, "payload": b""},
        {"num_reference_patches": -1},
        {"num_reference_patches": 10**9},
        {"num_prompt_patches": 1, "prompt_text": "abc"},
        {"num_prompt_patches": -1},
        {"prompt_text": "abc"},
        {"payload": b"\0"},
        {"payload": "nan"},
    ],
)
def test_latents_that_are_not_of_this_model_are_refused_and_nothing_breaks(
    tiny: LoadedModel, change: dict[str, Any]
) -> None:
    harness = EngineHarness(tiny)
    pcm = recording(0.012)
    voice = latents_of(tiny, frames.EncodeVoice("v", 16000, len(pcm), payload=pcm))
    if change.get("payload") == "nan":
        change = {"payload": np.full(len(voice.payload) // 4, np.nan, "<f4").tobytes()}
    harness.engine.post(dataclasses.replace(voice, **change))
    harness.say("refused", "hello", voice="v")
    harness.engine.post(voice)
    harness.say("spoken", "hello", voice="v")
    harness.run()
    assert [(m.voice_id, m.code) for m in harness.sent if isinstance(m, frames.VoiceFailed)] == [
        ("v", "invalid_request")
    ]
    assert isinstance(harness.end("refused"), frames.Failed)
    assert isinstance(harness.end("spoken"), frames.Done)


def test_a_model_without_isolated_references_refuses_their_latents(tiny_first: LoadedModel) -> None:
    config = tiny_first.config
    payload = np.zeros((2, config.patch_size, config.latent_dim), "<f4").tobytes()
    harness = EngineHarness(tiny_first)
    harness.engine.post(frames.AddVoice("v", 2, 0, config.patch_size, config.latent_dim, payload=payload))
    harness.engine.step()
    (failed,) = harness.sent
    assert isinstance(failed, frames.VoiceFailed)
    assert "reference" in failed.message


def test_a_paced_context_waits_for_its_listener(tiny: LoadedModel) -> None:
    patch_s = patch_duration_s(tiny)
    harness = EngineHarness(tiny, park_high_s=4.5 * patch_s, park_low_s=2.5 * patch_s)
    harness.say("x", "hello", paced=True, max_patches=12)
    while harness.engine.step():
        pass
    assert len(harness.pcm("x")) == 5 * tiny.config.patch_samples
    stats = harness.engine.stats()
    assert (stats.parked, stats.running) == (1, 0)
    harness.now += harness.engine.idle_s() or 0.0
    assert harness.engine.step()
    harness.engine.post(frames.Playback("x", 1e9))
    while harness.engine.step():
        harness.engine.post(frames.Playback("x", 1e9))
    assert isinstance(harness.end("x"), frames.Done)


def test_a_drain_refuses_new_contexts_and_goes_on_with_old_ones(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    harness.say("a", "hello", context="c")
    harness.engine.step()
    harness.engine.is_draining = True
    harness.say("b", "world", context="c")
    harness.say("new", "hello")
    harness.run()
    assert isinstance(harness.end("b"), frames.Done)
    refused = harness.end("new")
    assert isinstance(refused, frames.Failed)
    assert refused.code == "draining"


def test_an_odd_request_that_breaks_the_front_fails_alone(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = EngineHarness(tiny)
    harness.say("good", "hello")
    harness.engine.step()
    with monkeypatch.context() as patch:
        patch.setattr("realtime_tts.engine.engine.make_segment", lambda *args: 1 / 0)
        harness.say("odd", "hello")
        harness.engine.step()
    failed = harness.end("odd")
    assert isinstance(failed, frames.Failed)
    assert failed.code == "internal_error"
    harness.run()
    assert isinstance(harness.end("good"), frames.Done)


def test_a_taken_voice_id_is_never_given_to_another_voice(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, policy={"voices": {"own": VoicePolicy(text_prefix="a")}})
    add_voice(harness, "own")
    add_voice(harness, "mine", tenant="t")
    harness.say("before", "hello", voice="mine", tenant="t")
    harness.run()
    add_voice(harness, "mine", tenant="thief")
    harness.say("after", "hello", voice="mine", tenant="t")
    harness.say("stolen", "hello", voice="mine", tenant="thief")
    harness.say("x", "hello", voice="own", tenant="t")
    harness.run()
    assert [(m.voice_id, m.code) for m in harness.sent if isinstance(m, frames.VoiceFailed)] == [
        ("own", "voice_exists"),
        ("mine", "voice_exists"),
    ]
    np.testing.assert_allclose(harness.pcm("before"), harness.pcm("after"), atol=1e-4)
    assert isinstance(harness.end("stolen"), frames.Failed)
    assert isinstance(harness.end("x"), frames.Done)


def test_the_memory_of_contexts_that_were_never_closed_is_bounded(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realtime_tts.engine.continuity.MAX_CONTEXTS", 2)
    continuity = Continuity(tiny)
    patches = [np.zeros((4, 8), np.float32)]
    for context in "abcb":
        continuity.spoken(context, "hello", ZERO_SHOT, patches)
    assert len(continuity._memories) == 2
    continuity.spoken("empty", "hello", ZERO_SHOT, [])
    continuity.forget("unknown")
    assert len(continuity._memories) == 2


def test_a_context_with_priority_goes_first(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, max_streams=1)
    for name in ("running", "old", "new"):
        harness.say(name, "hello", max_patches=4)
    harness.engine.post(frames.SetPriority("old", 8))
    harness.run()
    ends = [m.request_id for m in harness.sent if isinstance(m, frames.Done)]
    assert ends == ["running", "new", "old"]


def test_instructions_are_read_before_the_first_segment_only(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny, {"continuity": "continuation"})
    harness.say("plain", "hello", seed=1)
    harness.say("designed", "hello", seed=1, instructions="a (very) old man ")
    harness.say("written", "(a very old man)hello", seed=1)
    harness.say("next", "and on", "designed", seed=1, segment=1, instructions="a (very) old man ")
    harness.run()
    np.testing.assert_allclose(harness.pcm("designed"), harness.pcm("written"), atol=1e-4)
    assert not np.array_equal(harness.pcm("designed"), harness.pcm("plain"))
    done = harness.end("next")
    assert isinstance(done, frames.Done)
    num_carried = len(tiny.tokenizer.encode("hello and on")) + harness.end("designed").num_patches  # type: ignore[union-attr]
    assert done.prefill_positions == num_carried + 1


@pytest.mark.parametrize("parts", ["prompt", "both"])
def test_with_instructions_a_voice_is_a_reference_and_no_prompt(tiny: LoadedModel, parts: str) -> None:
    """After a prompt, the model would speak the instructions aloud."""
    harness = EngineHarness(tiny)
    other = recording(0.02, seed=2) if parts == "both" else b""
    prompt = recording(0.012, seed=1)  # whole patches: padded on neither side
    reference = other or prompt
    for name, payload, size in (("prompted", other + prompt, len(other)), ("referenced", reference, len(reference))):
        message = frames.EncodeVoice(name, 16000, size, payload=payload)
        harness.engine.post(latents_of(tiny, message, prompt_text="abc" if name == "prompted" else None))
    for voice in ("prompted", "referenced"):
        harness.say(voice, "hello", voice=voice, seed=1, instructions="an old man")
        harness.say(f"{voice} next", "and on", voice, voice=voice, seed=1, segment=1, instructions="an old man")
    harness.run()
    for part in ("", " next"):
        np.testing.assert_allclose(harness.pcm(f"prompted{part}"), harness.pcm(f"referenced{part}"), atol=1e-4)
    first, second = harness.end("prompted"), harness.end("referenced")
    assert isinstance(first, frames.Done)
    assert isinstance(second, frames.Done)
    assert first.prefill_positions == second.prefill_positions
    harness.assert_nothing_leaked()


def test_a_model_without_instructions_says_so(tiny_first: LoadedModel) -> None:
    harness = EngineHarness(tiny_first)
    harness.say("x", "hello", instructions="an old man")
    harness.run()
    failed = harness.end("x")
    assert isinstance(failed, frames.Failed)
    assert failed.code == "invalid_request"


def test_segments_of_one_seed_draw_noise_of_their_own(tiny: LoadedModel) -> None:
    harness = EngineHarness(tiny)
    harness.say("first", "hello", seed=1, segment=0)
    harness.say("second", "hello", seed=1, segment=1)
    harness.run()
    assert not np.array_equal(harness.pcm("first"), harness.pcm("second"))


def test_the_audio_of_a_step_is_handed_over_at_once(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if one of its patches cannot be judged: what came before it is not lost."""
    harness = EngineHarness(tiny)
    output, seen = harness.engine.output, []
    send = output.send

    def watched(*patch: Any) -> Any:
        seen.append(len(harness.sent))
        flags = send(*patch)
        if len(seen) == 6:
            raise ValueError("not foreseen")
        return flags

    monkeypatch.setattr(output, "send", watched)
    for number in range(3):
        harness.say(f"r{number}", "hello", max_patches=4)
    with pytest.raises(ValueError, match="not foreseen"):
        harness.run()
    assert seen == [0, 0, 0, 3, 3, 3]
    assert len(harness.sent) == 6

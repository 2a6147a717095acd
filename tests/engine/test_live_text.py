"""A text that grows while it is spoken, with a small random model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from engine_harness import EngineHarness, patch_duration_s

from realtime_tts.contract import frames
from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.continuity import join_text
from realtime_tts.engine.core.step_cost import StepCost
from realtime_tts.engine.runtime.noise import noise_key, patch_noise
from realtime_tts.engine.segment import EngineSegment, spoken_chars
from realtime_tts.engine.voices import encode_voice
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.generate import decode, generate
from realtime_tts.model.sequence import build_sequence

WHOLE = "theweatherisnicetodayandwewalkalongtheriver"
BEGIN = WHOLE[:20]  # of it: enough for some patches, not for all
CHARS_PER_PATCH = 2.4


@pytest.fixture(autouse=True)
def short_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch of the random model is 1.5 ms; a tenth of a second would fill its context."""
    monkeypatch.setattr("realtime_tts.engine.voices.MIN_RECORDING_S", 0.005)


def live(loaded: LoadedModel, policy: dict[str, Any] | None = None, **limits: Any) -> EngineHarness:
    """An engine for which a patch of the random model is as many characters as one of a real model."""
    patch_s = patch_duration_s(loaded)
    return EngineHarness(loaded, policy, **{"chars_per_s": CHARS_PER_PATCH / patch_s, **limits})


def begin(harness: EngineHarness, name: str = "x", text: str = BEGIN, **fields: Any) -> EngineSegment:
    """Open a request and let it speak until it waits for text; with `context` etc. as `say`."""
    harness.say(name, text, **{"final": False, "max_patches": 14, **fields})
    while harness.engine.step():
        pass
    return harness.engine._segments[name]


def extend(harness: EngineHarness, text: str, final: bool = True, name: str = "x") -> None:
    harness.engine.post(frames.Extend(name, text, final))


def never_stop(monkeypatch: pytest.MonkeyPatch, loaded: LoadedModel) -> None:
    """A random model ends where it likes; then only its length is bounded."""
    monkeypatch.setattr(loaded.model, "stop_flags", lambda hidden: torch.zeros(len(hidden), dtype=torch.bool))


def whole(loaded: LoadedModel, text: str = WHOLE, **fields: Any) -> np.ndarray[Any, Any]:
    harness = EngineHarness(loaded)
    harness.say("x", text, **{"max_patches": 14, **fields})
    harness.run()
    return harness.pcm("x")


@pytest.mark.parametrize("known", [["", "t", "thewea"], [BEGIN], [BEGIN, WHOLE[:30]], ["thewea", WHOLE]])
def test_a_text_that_is_whole_before_its_first_patch_sounds_as_if_it_had_come_whole(
    tiny: LoadedModel, known: list[str]
) -> None:
    harness = live(tiny)
    harness.say("x", known[0], final=False, max_patches=14, seed=5)
    for text in known[1:]:
        if len(text) < 8:
            assert not harness.engine.step()  # too little to begin with
        extend(harness, text, final=False)
    extend(harness, WHOLE)
    harness.run()
    assert np.array_equal(harness.pcm("x"), whole(tiny, seed=5))
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert done.extensions == 0
    harness.assert_nothing_leaked()


def test_a_text_that_becomes_whole_in_its_prefill_sounds_like_it(tiny: LoadedModel) -> None:
    harness = live(tiny, max_prefill_positions=16)
    harness.say("x", BEGIN, final=False, max_patches=14, seed=5)
    harness.engine.step()
    assert harness.engine.scheduler._requests["x"].num_computed == 16
    extend(harness, WHOLE)
    harness.run()
    expected = whole(tiny, seed=5)
    np.testing.assert_allclose(harness.pcm("x"), expected, atol=1e-4 * np.abs(expected).max())


def recording(seconds: float, seed: int) -> bytes:
    noise = np.random.RandomState(seed).uniform(-0.5, 0.5, int(seconds * 16000))
    return (noise * 32767).astype("<i2").tobytes()


def add_voice(harness: EngineHarness, parts: str) -> None:
    reference = b"" if parts == "prompt" else recording(0.03, seed=1)
    prompt = b"" if parts == "reference" else recording(0.02, seed=2)
    message = frames.EncodeVoice("v", 16000, len(reference), payload=reference + prompt)
    latents = encode_voice(harness.engine.loaded, message)
    harness.engine.post(
        frames.AddVoice(
            "v", latents.num_reference_patches, latents.num_prompt_patches, latents.patch_size, latents.latent_dim,
            "abc" if prompt else None, payload=latents.payload,
        )
    )  # fmt: skip


@pytest.mark.parametrize("parts", [None, "reference", "prompt", "both", "instructions"])
def test_what_follows_an_extension_is_what_the_model_says_to_the_whole_text_and_the_patches_so_far(
    tiny: LoadedModel, parts: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_stop(monkeypatch, tiny)
    harness = live(tiny, max_prefill_positions=16)
    fields: dict[str, Any] = {"instructions": "old"} if parts == "instructions" else {}
    if parts in ("reference", "prompt", "both"):
        add_voice(harness, parts)
        fields = {"voice": "v"}
    segment = begin(harness, seed=3, **fields)
    voice, so_far = segment.voice.conditioning, np.stack(segment.patches)
    assert 2 <= len(so_far) <= 4  # at 20 characters, with 14 in front
    extend(harness, WHOLE)
    harness.run()
    text = ("(old)" if parts == "instructions" else "") + WHOLE
    prompt = so_far if voice.prompt is None else np.concatenate((voice.prompt, so_far))
    source = build_sequence(
        tiny.config,
        tiny.tokenizer.encode(text if voice.prompt is None else join_text(voice.prompt_text, text)),
        reference=voice.reference,
        prompt=prompt,
    )
    key, config = torch.tensor([noise_key(3)]), tiny.config
    (following,) = generate(
        tiny.model,
        [source],
        [lambda i: patch_noise(key, torch.tensor([i + len(so_far)]), config.patch_size, config.latent_dim)[0]],
        [14 - len(so_far)],
        flow_steps=4,
        cfg=tiny.policy.default_cfg,
    )
    patches = np.stack(segment.patches)
    np.testing.assert_allclose(patches, np.concatenate((so_far, following)), atol=1e-4 * np.abs(patches).max())
    context = patches[:0] if voice.prompt is None else voice.prompt[-config.num_context_patches :]
    audio = decode(tiny.model, np.concatenate((context, patches)))[len(context) * config.patch_samples :]
    np.testing.assert_allclose(harness.pcm("x"), audio.numpy(), atol=1e-5)
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert (done.extensions, done.text_waits) == (1, 1)
    num_kept = source.text_start + len(BEGIN) * (voice.prompt is None) * (parts != "instructions")
    if voice.prompt is None and parts != "instructions":
        assert done.extended_positions == source.num_positions - num_kept  # what lies in front of the new text is kept
    harness.assert_nothing_leaked()


def test_every_extension_takes_in_all_that_is_known_and_none_is_made_for_each_word(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_stop(monkeypatch, tiny)
    harness = live(tiny)
    segment = begin(harness, max_patches=18)
    for end in range(len(BEGIN) + 1, len(WHOLE)):
        extend(harness, WHOLE[:end], final=False)
    harness.engine.step()
    assert segment.request.num_extensions == 1
    assert len(segment.input.token_ids) == len(WHOLE) - 1 + 1 + len(segment.patches) - 1
    extend(harness, WHOLE)
    harness.run()
    assert segment.request.num_extensions == 2


def test_the_end_that_a_model_sees_in_an_open_text_does_not_count(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = live(tiny, look_ahead_chars=6)
    monkeypatch.setattr(tiny.model, "stop_flags", lambda hidden: torch.ones(len(hidden), dtype=torch.bool))
    segment = begin(harness)
    num_open = len(segment.patches)
    assert num_open > tiny.config.min_patches + 2
    extend(harness, WHOLE)
    harness.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches) == ("stop", num_open + 1)


def test_a_text_that_turns_out_to_be_whole_already_is_not_read_again(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_stop(monkeypatch, tiny)
    harness = live(tiny)
    begin(harness)
    free = harness.engine.scheduler.pool.num_available
    extend(harness, BEGIN)
    harness.engine.step()
    assert harness.engine.scheduler.pool.num_available > free  # what was kept for a longer one is given back
    harness.run()
    done = harness.end("x")
    assert isinstance(done, frames.Done)
    assert (done.extensions, done.finish_reason) == (0, "length")
    np.testing.assert_allclose(harness.pcm("x"), whole(tiny, BEGIN), atol=1e-5)


def test_while_it_waits_it_is_neither_running_nor_parked_and_the_others_go_on(tiny: LoadedModel) -> None:
    harness = live(tiny)
    begin(harness)
    stats = harness.engine.stats()
    assert (stats.running, stats.parked, stats.awaiting_text) == (0, 0, 1)
    assert harness.engine.idle_s() is None  # only a message can help
    harness.say("other", "hello")
    for _ in range(20):
        harness.engine.step()
    assert isinstance(harness.end("other"), frames.Done)
    harness.engine.is_draining = True
    extend(harness, WHOLE)  # a drain lets it finish
    harness.run()
    assert isinstance(harness.end("x"), frames.Done)
    stats = harness.engine.stats()
    assert (stats.extensions, stats.text_waits) == (1, 1)
    assert stats.extended_positions > 0


def test_what_may_still_change_is_neither_cached_nor_taken_from_the_cache(tiny: LoadedModel) -> None:
    harness = live(tiny)
    add_voice(harness, "reference")
    begin(harness, text="abcdefghij" * 3, voice="v", max_patches=10)
    pool = harness.engine.scheduler.pool
    (front,) = {segment.input.text_start for segment in harness.engine._segments.values()}
    assert pool.num_cached == front // 16 > 0
    extend(harness, "abcdefghij" * 4)
    harness.run()
    assert pool.num_cached == (front + 40 + 1) // 16  # no patches: no request can share those
    harness.say("y", "abcdefghij" * 4, voice="v", max_patches=10)  # the same text, known: what was final is found
    harness.run()
    harness.say("z", "abcdefghij" * 4, voice="v", max_patches=10, final=False)
    harness.engine.step()
    extend(harness, "abcdefghij" * 5, name="z")
    harness.run()
    cached = {name: harness.end(name).cached_positions for name in "xyz"}  # type: ignore[union-attr]
    assert cached == {"x": 0, "y": (front + 40) // 16 * 16, "z": front // 16 * 16}
    cold = live(tiny)
    add_voice(cold, "reference")
    cold.say("y", "abcdefghij" * 4, voice="v", max_patches=10)
    cold.run()
    np.testing.assert_allclose(harness.pcm("y"), cold.pcm("y"), atol=1e-4 * np.abs(cold.pcm("y")).max())
    harness.engine.post(frames.RemoveVoice("v"))
    harness.engine.step()
    assert pool.num_cached == 0
    harness.assert_nothing_leaked()


MOMENTS = ["before its first words", "in its prefill", "between", "waiting", "reading anew", "after that"]


def at_moment(harness: EngineHarness, moment: str) -> None:
    """Bring "x" to a point of its life, beside "other"."""
    harness.say("other", "hello", paced=True)
    harness.engine.step()
    if moment == "before its first words":
        harness.say("x", "the", final=False)
        harness.engine.step()
        return
    harness.say("x", BEGIN, final=False, max_patches=14)
    harness.engine.step()
    if moment == "in its prefill":
        return
    harness.engine.step()
    if moment == "between":
        return
    while harness.engine.step():
        pass
    if moment == "waiting":
        return
    extend(harness, WHOLE, final=False)
    harness.engine.step()
    if moment == "after that":
        while harness.engine.step():
            pass


@pytest.fixture(scope="module")
def spoken_whole(tiny: LoadedModel) -> np.ndarray[Any, Any]:
    """What the model says to the whole text at once."""
    return whole(tiny)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", ["cancel", "close", "nan", "memory", "wrong text", "too long"])
def test_whenever_and_however_an_open_request_ends_it_leaves_nothing(
    tiny: LoadedModel, spoken_whole: np.ndarray[Any, Any], moment: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = live(tiny, max_prefill_positions=16)
    at_moment(harness, moment)
    request = harness.engine.scheduler._requests["x"]
    if how == "cancel":
        harness.engine.post(frames.Cancel("x"))
    elif how == "close":
        harness.engine.post(frames.CloseContext("x"))
    elif how == "wrong text":
        extend(harness, "another", final=False)
    elif how == "too long":
        extend(harness, WHOLE * 20, final=False)
    else:
        extend(harness, WHOLE)
        if how == "nan" and request.blocks:
            harness.engine.runner.state.kv.pool[:, :, request.blocks[0]] = float("nan")
        elif how == "memory":
            with monkeypatch.context() as patch:
                patch.setattr(harness.engine.runner, "_step", _no_memory)
                harness.engine.step()
    harness.run()
    end = harness.end("x")
    codes = {"nan": "numerical_error", "wrong text": "invalid_request", "too long": "request_too_large"}
    if how in ("cancel", "close"):
        assert isinstance(end, frames.Done)
        assert end.finish_reason == "cancelled"
    elif how == "memory":
        assert isinstance(end, frames.Failed)
        assert end.code == "engine_out_of_memory"
    elif how != "nan" or moment != "before its first words":
        assert isinstance(end, frames.Failed)
        assert end.code == codes[how]
    assert torch.isfinite(harness.engine.runner.state.kv.pool).all()
    harness.say("next", WHOLE, max_patches=14)
    harness.run()
    np.testing.assert_allclose(harness.pcm("next"), spoken_whole, atol=1e-4 * np.abs(spoken_whole).max())
    harness.assert_nothing_leaked()


def _no_memory(batch: Any) -> Any:
    raise torch.OutOfMemoryError("asked to")


def test_a_final_text_is_final_and_one_without_a_word_is_done(tiny: LoadedModel) -> None:
    harness = live(tiny)
    harness.say("x", "hello")
    extend(harness, "hello world", name="x")
    harness.say("empty", "", final=False)
    extend(harness, " ", name="empty")
    extend(harness, "whatever", name="unknown")
    harness.run()
    failed, done = harness.end("x"), harness.end("empty")
    assert isinstance(failed, frames.Failed)
    assert failed.code == "invalid_request"
    assert isinstance(done, frames.Done)
    assert (done.finish_reason, done.num_patches) == ("stop", 0)
    harness.assert_nothing_leaked()


def test_an_extension_that_breaks_the_front_fails_alone(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = live(tiny)
    begin(harness)
    with monkeypatch.context() as patch:
        patch.setattr("realtime_tts.engine.engine.text_size", lambda *args: 1 / 0)
        extend(harness, WHOLE)
        harness.engine.step()
    failed = harness.end("x")
    assert isinstance(failed, frames.Failed)
    assert failed.code == "internal_error"
    harness.assert_nothing_leaked()


def test_the_next_segment_waits_for_an_open_one_and_continues_from_all_of_its_text(tiny_first: LoadedModel) -> None:
    harness = live(tiny_first)
    harness.say("a", "hellothere", context="c", final=False, max_patches=6)
    harness.say("b", "world", context="c", max_patches=8)
    while harness.engine.step():
        pass
    waiting = harness.engine._segments["b"]
    assert waiting.request.blocks == ()
    extend(harness, "hellothereagain", name="a")
    harness.run()
    first = harness.end("a")
    assert isinstance(first, frames.Done)
    expected = tiny_first.tokenizer.encode("hellothereagain world")
    assert waiting.input.token_ids == [*expected, 101, *[0] * first.num_patches]


def test_an_open_text_of_a_continued_context_keeps_its_prompt(tiny_first: LoadedModel) -> None:
    harness = live(tiny_first, {"max_segment_chars": 40})
    harness.say("a", "hello", context="c", max_patches=6)
    harness.run()
    segment = begin(harness, "b", context="c", max_patches=10)
    extend(harness, WHOLE[:40], name="b")
    harness.run()
    assert isinstance(harness.end("b"), frames.Done)
    expected = tiny_first.tokenizer.encode("hello " + WHOLE[:40])
    assert segment.input.token_ids[: len(expected) + 1] == [*expected, 101]


def test_what_stands_around_a_text_stays_whatever_becomes_of_its_context_meanwhile(
    tiny_first: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("realtime_tts.engine.continuity.MAX_CONTEXTS", 1)
    harness = live(tiny_first, {"max_segment_chars": 40})
    harness.say("a", "hello", context="c", max_patches=6)
    harness.run()
    segment = begin(harness, "b", context="c", max_patches=10)
    harness.say("another", "zz", max_patches=6)
    while harness.engine.step():
        pass
    extend(harness, WHOLE[:40], name="b")
    harness.engine.step()
    expected = tiny_first.tokenizer.encode("hello " + WHOLE[:40])
    assert segment.input.token_ids[: len(expected)] == expected
    harness.run()


def test_continuity_gives_way_to_the_longest_that_an_open_text_may_become(tiny: LoadedModel) -> None:
    harness = live(tiny, {"max_segment_chars": 50}, num_blocks=4)
    harness.say("a", "hello", context="c", max_patches=8)
    harness.run()
    segment = begin(harness, "b", context="c", max_patches=10)
    assert len(segment.input.features) == 0
    extend(harness, WHOLE, name="b")
    harness.run()
    assert isinstance(harness.end("b"), frames.Done)
    harness.assert_nothing_leaked()


def test_a_paced_open_text_stays_two_patches_ahead_of_its_listener(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_stop(monkeypatch, tiny)
    patch_s = patch_duration_s(tiny)
    harness = live(tiny, begin_chars=1, look_ahead_chars=1)
    harness.engine.scheduler.cost = StepCost(1e-6, 1e-6, 1e-6)  # next to a patch of the random model
    segment = begin(harness, paced=True)
    assert len(segment.patches) == 2
    idle_s = harness.engine.idle_s()
    assert idle_s == pytest.approx(patch_s, rel=0.01)
    harness.now += idle_s or 0.0
    assert harness.engine.step()
    extend(harness, WHOLE)
    while harness.engine.step():
        pass
    assert isinstance(harness.end("x"), frames.Done)


def test_a_measured_position_is_what_decides(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    never_stop(monkeypatch, tiny)
    harness = live(tiny)
    harness.say("x", BEGIN, final=False, max_patches=14)
    harness.engine.step()
    segment = harness.engine._segments["x"]
    for _ in range(4):
        segment.request.supply.position = 5.0  # of 20: 15 in front
        assert harness.engine.step()
    segment.request.supply.position = 7.0
    assert not harness.engine.step()
    assert len(segment.patches) == 5


def test_positions_in_the_text_go_on_where_it_is_extended(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    never_stop(monkeypatch, tiny)
    harness = live(tiny, {"text_head": TextHead(0, 0, 0.0)})
    segment = begin(harness)
    last_open = [m for m in harness.sent if isinstance(m, frames.Audio)][-1].text_position
    assert last_open is not None
    assert segment.request.supply.position == round(last_open) > len(BEGIN) - 14  # that is why it waits
    extend(harness, WHOLE)
    harness.run()
    positions = [m.text_position for m in harness.sent if isinstance(m, frames.Audio)]
    assert len(positions) == 14
    assert all(a <= b for a, b in itertools.pairwise(positions) if a is not None and b is not None)
    assert (positions[-1] or 0.0) < len(WHOLE)


def test_a_text_with_more_tokens_than_were_expected_is_spoken_as_if_they_had_been(tiny: LoadedModel) -> None:
    """A character without a token of its own is several, its bytes."""
    heard = []
    for max_segment_chars in (len(BEGIN), 200):
        harness = live(tiny, {"max_segment_chars": max_segment_chars})
        reserved = len(begin(harness).request.blocks)
        extend(harness, WHOLE, final=False)
        while harness.engine.step():
            pass
        assert (len(harness.engine._segments["x"].request.blocks) > reserved) is (max_segment_chars == len(BEGIN))
        extend(harness, WHOLE)
        harness.run()
        assert isinstance(harness.end("x"), frames.Done)
        heard.append(harness.pcm("x"))
        harness.assert_nothing_leaked()
    np.testing.assert_array_equal(*heard)


def test_a_wide_character_is_as_long_as_some_letters() -> None:
    assert spoken_chars("hello, world") == 12
    assert spoken_chars("你好 ab") == 9

"""The text position of each patch, through the engine, against the whole sequence attended to at once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_harness import EngineHarness
from torch import Tensor

from realtime_tts.contract import frames
from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.contract.policy import TextHead, VoicePolicy
from realtime_tts.engine.core.request import StepFlags
from realtime_tts.engine.runtime.outputs import StepAudio, TextReading
from realtime_tts.engine.segment import EngineSegment
from realtime_tts.engine.setup import ready_message
from realtime_tts.engine.voices import encode_voice
from realtime_tts.errors import CheckpointError
from realtime_tts.model.attention import AttentionMetadata, KVCache, PagedAttention, SDPABackend
from realtime_tts.model.checkpoint import LoadedModel, load_model
from realtime_tts.model.sequence import AUDIO_START

HEAD = TextHead(layer=1, head=3, lag_ms=40.0)
POLICY = {"text_head": HEAD, "voices": {"own": VoicePolicy(text_prefix="zz")}}
TEXT = "What a strange, long text this is"  # the tokenizer knows small letters only: the rest is skipped


@pytest.fixture(autouse=True)
def short_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("realtime_tts.engine.voices.MIN_RECORDING_S", 0.005)


class Watched:
    """An engine with a text head, every segment it had, and the head's mass on the text at each patch."""

    def __init__(self, loaded: LoadedModel, policy: dict[str, Any] | None = None, **limits: Any) -> None:
        self.harness = EngineHarness(loaded, {**POLICY, **(policy or {})}, **limits)
        self.segments: dict[str, EngineSegment] = {}
        self.masses: dict[str, list[float]] = {}
        self._send = self.harness.engine.output.send
        self.harness.engine.output.send = self._note_mass  # type: ignore[method-assign]

    def _note_mass(self, segment: EngineSegment, audio: StepAudio, *others: Any) -> StepFlags:
        assert audio.text is not None
        self.masses.setdefault(segment.message.request_id, []).append(audio.text.mass)
        return self._send(segment, audio, *others)

    def add_voice(self, *, as_reference: bool = True, prompt_text: str | None = None) -> None:
        noise = np.random.RandomState(3).uniform(-0.5, 0.5, 200)
        pcm = (noise * 32767).astype("<i2").tobytes()
        parts = [pcm if wanted else b"" for wanted in (as_reference, prompt_text is not None)]
        message = frames.EncodeVoice("added", 16000, len(parts[0]), payload=b"".join(parts))
        encoded = encode_voice(self.harness.engine.loaded, message)
        counts = encoded.num_reference_patches, encoded.num_prompt_patches, encoded.patch_size, encoded.latent_dim
        self.harness.engine.post(frames.AddVoice("added", *counts, prompt_text=prompt_text, payload=encoded.payload))

    def run(self) -> None:
        engine = self.harness.engine
        while engine.step() or not engine.is_idle:
            self.segments.update(engine._segments)

    def positions(self, name: str) -> list[float | None]:
        return [m.text_position for m in self.harness.sent if isinstance(m, frames.Audio) and m.request_id == name]


class KeepLayer:
    """An `AttentionProbe` that keeps one layer's q of the new positions, and the keys of all."""

    def __init__(self, layer: int) -> None:
        self._layer = layer

    def observe(self, layer: int, q: Tensor, keys: Tensor, meta: AttentionMetadata) -> None:
        if layer == self._layer:
            self.q, self.keys = q, keys.flatten(0, 1)


@torch.inference_mode()
def expected(loaded: LoadedModel, segment: EngineSegment) -> tuple[list[float], list[float]]:
    """Position and mass of each patch: one prefill of input and patches, attention in float64, characters found by
    looking for the text's tokens right before the audio."""
    source, config = segment.input, loaded.config
    token_ids = [*source.token_ids, *[0] * (len(segment.patches) - 1)]
    features = np.concatenate([source.features, np.stack(segment.patches)[:-1]])
    audio = [*source.audio_index, *range(source.num_positions, len(token_ids))]
    num_blocks = -(-len(token_ids) // 16)
    kv = KVCache.allocate(config, num_blocks, 16, "cpu", torch.float32)
    meta = AttentionMetadata.build([len(token_ids)], [len(token_ids)], [list(range(num_blocks))], 16)
    embedded = loaded.model.embed(torch.tensor(token_ids), torch.from_numpy(features), torch.tensor(audio).long())
    probe = KeepLayer(HEAD.layer)
    loaded.model.lm_forward(*embedded, PagedAttention(SDPABackend(), kv, meta, probe=probe))
    text = segment.message.text
    chars = [number for number, c in enumerate(text) if loaded.tokenizer.encode(c)]
    end = max(position for position, token in enumerate(source.token_ids) if token == AUDIO_START)
    start = end - len(chars)
    assert source.token_ids[start:end] == loaded.tokenizer.encode(text)
    kv_head = HEAD.head * config.base.num_kv_heads // config.base.num_heads
    positions: list[float] = []
    masses: list[float] = []
    for patch in range(len(segment.patches)):
        last = source.num_positions - 1 + patch
        scores = (
            probe.keys[: last + 1, kv_head].double() @ probe.q[last, HEAD.head].double() / config.base.head_dim**0.5
        )
        weights = scores.softmax(0)[start:end]
        index = float((weights * torch.arange(len(chars))).sum() / weights.sum())
        position = float(np.interp(index, np.arange(len(chars)), chars))
        positions.append(max([position, *positions[-1:]]))
        masses.append(float(weights.sum()))
    return positions, masses


def zero_shot(watched: Watched) -> None:
    watched.harness.say("x", TEXT, seed=1)


def named(watched: Watched) -> None:
    watched.harness.say("x", TEXT, voice="own", seed=1)


def reference(watched: Watched) -> None:
    watched.add_voice()
    watched.harness.say("x", TEXT, voice="added", seed=1)


def prompt(watched: Watched) -> None:
    watched.add_voice(prompt_text="strange long text", as_reference=False)
    watched.harness.say("x", TEXT, voice="added", seed=1)


def reference_and_prompt(watched: Watched) -> None:
    watched.add_voice(prompt_text="strange long text")
    watched.harness.say("x", TEXT, voice="added", seed=1)


def instructions(watched: Watched) -> None:
    watched.harness.say("x", TEXT, instructions="a strange long man", seed=1)


def continued(watched: Watched) -> None:
    watched.harness.say("before", "this is", context="c", seed=1)
    watched.harness.say("x", TEXT, context="c", seed=1, segment=1)


def cached(watched: Watched) -> None:
    watched.harness.say("before", TEXT, seed=2)
    watched.run()
    watched.harness.say("x", TEXT, seed=1)


MODES = [zero_shot, named, reference, prompt, reference_and_prompt, instructions, continued, cached]


@pytest.mark.parametrize("max_prefill_positions", [512, 16], ids=["whole", "in chunks"])
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
def test_a_position_is_the_heads_look_at_the_requests_own_text(
    tiny: LoadedModel, mode: Callable[[Watched], None], max_prefill_positions: int
) -> None:
    watched = Watched(tiny, max_prefill_positions=max_prefill_positions)
    mode(watched)
    watched.run()
    positions, masses = expected(tiny, watched.segments["x"])
    assert watched.positions("x") == pytest.approx(positions, abs=1e-3)
    assert watched.masses["x"] == pytest.approx(masses, abs=1e-4)
    assert all(0 <= position <= len(TEXT) for position in positions)
    done = watched.harness.end("x")
    assert isinstance(done, frames.Done)
    assert len(positions) == done.num_patches > 1  # the patch of the prefill has one, too
    assert (done.cached_positions > 0) == (mode is cached)


def test_the_first_generation_continues_and_still_reads_its_own_text(tiny_first: LoadedModel) -> None:
    watched = Watched(tiny_first, {"max_prompt_patches": 8})
    continued(watched)
    watched.run()
    positions, masses = expected(tiny_first, watched.segments["x"])
    assert watched.positions("x") == pytest.approx(positions, abs=1e-3)
    assert watched.masses["x"] == pytest.approx(masses, abs=1e-4)


def test_streams_that_join_and_leave_read_what_each_reads_alone(tiny: LoadedModel) -> None:
    texts = ["hello", "theweatherisnicetoday", "yes", "one two three four five", "z", "What is this?"]
    together = Watched(tiny, max_prefill_positions=16)
    for number, text in enumerate(texts):
        steps = 3 if number % 2 else 4  # the order of the streams that speak is not that of the rows
        together.harness.say(f"r{number}", text, seed=number, max_patches=4 + number, steps=steps)
        together.harness.engine.step()
    together.run()
    for number, text in enumerate(texts):
        alone = Watched(tiny)
        steps = 3 if number % 2 else 4
        alone.harness.say("x", text, seed=number, max_patches=4 + number, steps=steps)
        alone.run()
        assert together.positions(f"r{number}") == pytest.approx(alone.positions("x"), abs=1e-3)
        assert None not in alone.positions("x")


def test_without_a_head_nothing_is_read_and_nothing_else_changes(tiny: LoadedModel) -> None:
    plain, watched = EngineHarness(tiny), Watched(tiny)
    for harness in (plain, watched.harness):
        harness.say("x", "hello", seed=1)
        harness.run()
    assert np.array_equal(plain.pcm("x"), watched.harness.pcm("x"))
    audio = [m for m in plain.sent if isinstance(m, frames.Audio)]
    assert {m.text_position for m in audio} == {None}


def test_a_reading_that_is_no_number_is_none_and_speech_goes_on(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tiny)
    runner, num_steps = watched.harness.engine.runner, 0
    result_of = runner.result

    def sometimes_nothing(*args: Any) -> Any:
        nonlocal num_steps
        num_steps += 1
        result = result_of(*args)
        broken = [spoken._replace(text=TextReading(math.nan, math.nan)) for spoken in result.audio]
        return dataclasses.replace(result, audio=broken) if num_steps in (1, 3) else result

    monkeypatch.setattr(runner, "result", sometimes_nothing)
    watched.harness.say("x", TEXT, seed=1)
    watched.run()
    positions = watched.positions("x")
    assert [position is None for position in positions[:4]] == [True, False, True, False]
    assert isinstance(watched.harness.end("x"), frames.Done)
    sent = [m for m in watched.harness.sent if isinstance(m, frames.Audio)]
    assert frames.Decoder().feed(b"".join(map(frames.encode, sent))) == sent


def test_the_worker_says_whether_positions_are_measured(tiny: LoadedModel) -> None:
    ready = ready_message(Watched(tiny).harness.engine, torch.device("cpu"), EngineOptions(), 0.0)
    assert ready.policy["text_head"] == dataclasses.asdict(HEAD)
    ready = ready_message(EngineHarness(tiny).engine, torch.device("cpu"), EngineOptions(), 0.0)
    assert ready.policy["text_head"] is None


@pytest.mark.parametrize(("layer", "head"), [(3, 0), (0, 6)])
def test_a_head_that_the_model_lacks_is_refused_when_it_is_loaded(
    tiny: LoadedModel, tmp_path: Path, layer: int, head: int
) -> None:
    for file in tiny.path.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "serving.json").write_text(f'{{"text_head": {{"layer": {layer}, "head": {head}}}}}')
    with pytest.raises(CheckpointError, match="text_head"):
        load_model(tmp_path)

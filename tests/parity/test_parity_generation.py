"""Against what the reference package computed (make_goldens.py), for every generation and input mode."""

from __future__ import annotations

import pytest
import torch
from generation import Recorded, new_runner, run, step
from golden_inputs import CFG, NUM_FLOW_STEPS, PROMPT_TEXT, TEXT
from torch import Tensor

from realtime_tts.errors import InvalidRequest
from realtime_tts.model.attention import FullAttention
from realtime_tts.model.sequence import build_sequence


def relative_error(ours: Tensor, theirs: Tensor) -> float:
    return ((ours - theirs).norm() / theirs.norm()).item()


def stream_of(golden, mode: str, blocks: list[int], **fields) -> Recorded:
    def patches(name: str):
        tensor = golden.tensors.get(f"{mode}.{name}")
        return None if tensor is None else tensor.numpy()

    prompt = patches("audio_feat")
    text_ids = TEXT if prompt is None else PROMPT_TEXT + TEXT
    sequence = build_sequence(golden.loaded.config, text_ids, reference=patches("ref_audio_feat"), prompt=prompt)
    noise = golden.tensors[f"{mode}.noise"]
    return Recorded(sequence, noise.__getitem__, blocks, **{"cfg": CFG, "num_patches": len(noise), **fields})


_RUNS: dict[tuple[str, str], Recorded] = {}


def cold_run(golden, mode: str) -> Recorded:
    """What ours makes of a mode's input, alone and without a cached prefix; made once."""
    if (golden.name, mode) not in _RUNS:
        stream = _RUNS[golden.name, mode] = stream_of(golden, mode, list(range(10, 30)))
        run(new_runner(golden.loaded.model, NUM_FLOW_STEPS), [stream])
    return _RUNS[golden.name, mode]


def modes_of(golden) -> list[str]:
    return sorted(key.removesuffix(".noise") for key in golden.tensors if key.endswith(".noise"))


def test_latents_and_hidden_states_follow_the_reference_through_prefill_and_decode(golden, mode):
    stream = cold_run(golden, mode)
    assert len(stream.patches) >= 13
    made = {"latents": stream.patches, "lm_hidden": stream.lm_hidden, "residual_hidden": stream.residual_hidden}
    for name, ours in made.items():
        for number, (mine, theirs) in enumerate(zip(ours, golden.tensors[f"{mode}.{name}"], strict=True)):
            assert relative_error(mine, theirs) < 1e-4, (number, name)


def test_stop_flags_are_those_of_the_reference_and_the_stopping_patch_counts(golden, mode):
    stream = cold_run(golden, mode)
    assert stream.stop_flags == golden.tensors[f"{mode}.stop_logits"].argmax(-1).bool().tolist()
    # Ignored while the step index is at most min_patches; the patch of the stopping step is still emitted.
    stops = [i for i, flag in enumerate(stream.stop_flags) if flag and i > golden.loaded.config.min_patches]
    num_patches = stops[0] + 1 if stops else len(stream.stop_flags)
    assert num_patches == golden.tensors[f"{mode}.num_patches_with_stop"].item()


def test_streamed_audio_equals_the_references_whole_decode(golden, mode):
    latents, theirs = golden.tensors[f"{mode}.latents"], golden.tensors[f"{mode}.audio"]
    context = stream_of(golden, mode, []).input.context
    vae = golden.loaded.model.vae
    state, slots = vae.new_state(1, "cpu"), torch.arange(1)
    patches = [*torch.from_numpy(context), *latents]
    audio = torch.cat([vae.decode_stream(patch[None], state, slots)[0] for patch in patches])
    audio = audio[len(context) * golden.loaded.config.patch_samples :]
    assert theirs.std() > 0.05  # loud enough to tell
    assert len(audio) == len(latents) * golden.loaded.config.patch_samples
    # The reference drops two patches even after a prompt of one, so its audio may start a patch late.
    assert len(audio) - len(theirs) in (0, golden.loaded.config.patch_samples)
    torch.testing.assert_close(audio[-len(theirs) :], theirs, atol=1e-5, rtol=0)


def test_recordings_are_encoded_as_the_reference_encodes_them(golden):
    ours = golden.loaded.model.vae.encode(golden.tensors["encode.pcm"][None])[0]
    assert relative_error(ours, golden.tensors["encode.latents"]) < 1e-5


def test_a_ragged_batch_of_eight_equals_eight_runs_alone(golden):
    """Streams of every mode, of different ages and guidance, in one batch over scattered blocks."""
    modes = (modes_of(golden) * 8)[:8]
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1)).tolist()
    cfgs = [2.0, 1.0, 3.0, 1.5, 2.5, 2.0, 4.0, 0.5]

    def streams() -> list[Recorded]:
        return [
            stream_of(golden, mode, order[20 * i : 20 * i + 20], start_step=(0, 0, 1, 3)[i % 4], cfg=cfg)
            for i, (mode, cfg) in enumerate(zip(modes, cfgs, strict=True))
        ]

    together, alone = streams(), streams()
    run(new_runner(golden.loaded.model), together)
    for stream in alone:
        run(new_runner(golden.loaded.model), [stream])
    for ours, reference in zip(together, alone, strict=True):
        assert relative_error(torch.stack(ours.patches), torch.stack(reference.patches)) < 1e-4
        assert ours.stop_flags == reference.stop_flags


def test_paged_steps_equal_one_whole_forward_without_a_cache(golden, mode):
    model = golden.loaded.model
    stream = cold_run(golden, mode)
    patches = torch.stack(stream.patches)
    sequence = stream.input
    num_positions = sequence.num_positions + len(patches) - 1
    audio_index = [*sequence.audio_index, *range(sequence.num_positions, num_positions)]
    embeddings, is_audio = model.embed(
        torch.tensor(sequence.token_ids + [0] * (len(patches) - 1)),
        torch.cat((torch.from_numpy(sequence.features), patches[:-1])),
        torch.tensor(audio_index),
    )
    attend, rope = FullAttention(causal=True), model.base_lm.first_rotary(num_positions)
    hidden = model.quantize(model.base_lm(embeddings[None], rope, attend)[0], is_audio)
    inputs = model.residual_inputs(hidden, embeddings, is_audio)
    residual_rope = model.residual_lm.first_rotary(num_positions)
    residual = model.residual_lm(inputs[None], residual_rope, attend)[0]
    assert relative_error(torch.stack(stream.lm_hidden), hidden[-len(patches) :]) < 1e-4
    assert relative_error(torch.stack(stream.residual_hidden), residual[-len(patches) :]) < 1e-4


def test_a_cached_prefix_gives_what_a_cold_prefill_gives(golden, mode):
    cold = cold_run(golden, mode)
    shared = new_runner(golden.loaded.model, NUM_FLOW_STEPS)
    first = stream_of(golden, mode, list(range(20)))
    step(shared, [first])
    # The second stream shares the first's leading block and computes the rest into blocks of its own.
    warm = stream_of(golden, mode, [0, *range(40, 59)], num_computed=4)
    run(shared, [warm])
    assert relative_error(torch.stack(warm.patches), torch.stack(cold.patches)) < 1e-4


def test_a_prefill_with_one_position_left_is_a_decode_row(golden):
    cold = cold_run(golden, "zero_shot")
    shared = new_runner(golden.loaded.model, NUM_FLOW_STEPS)
    step(shared, [stream_of(golden, "zero_shot", list(range(20)))])
    warm = stream_of(golden, "zero_shot", list(range(20)), num_computed=cold.input.num_positions - 1)
    run(shared, [warm])
    assert relative_error(torch.stack(warm.patches), torch.stack(cold.patches)) < 1e-4


def test_a_reference_is_refused_where_the_generation_has_no_tokens_for_it(golden):
    config = golden.loaded.config
    patches = torch.zeros(2, config.patch_size, config.latent_dim).numpy()
    if config.supports_reference:
        assert build_sequence(config, TEXT, reference=patches).token_ids[:4] == [103, 0, 0, 104]
    else:
        with pytest.raises(InvalidRequest):
            build_sequence(config, TEXT, reference=patches)

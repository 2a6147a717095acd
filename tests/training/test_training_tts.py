"""TTS training at toy size: rows as served, the training forward is the serving forward, the loss falls."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from realtime_tts.contract.location import STARTER_VOICE, local_directory
from realtime_tts.model.checkpoint import LoadedModel, load_model
from realtime_tts.model.generate import OfflineRunner, Stream
from realtime_tts.model.sequence import build_sequence
from realtime_tts.model.voxcpm import VoxCPM
from training.export import export, note_text_head, serving_map
from training.generation import Line, decode, generate
from training.latents import LatentCorpus
from training.run_state import Ema, Run, adam_w, cosine_rate, restore_optimizer, set_rate
from training.starter_config import LETTER_IDS, VOICE_IDS, config_map, starter_config, toy_config_map
from training.tts_batches import Batch, BatchShape, Conditioning, RowMaker, collate, pack
from training.tts_losses import Guided, LossSettings, hidden_states, losses, quantise
from training.tts_training import TrainingData, TtsSettings, TtsTrainer, initialise

NEVER = Conditioning(voice_token=0, reference=0, pseudo_reference=0, prompt=0, open_text=0)


@pytest.fixture
def corpus() -> LatentCorpus:
    """Twelve utterances of five speakers (four named) whose patches spell their text: value = letter / 10."""
    texts = ["abc", "badge.", "face", "a bed", "dab!", "cab", "fade", "bag?", "decaf", "ace", "gab", "fed"] * 2
    patches = [
        torch.tensor([LETTER_IDS[c] / 10 - 1 for c in text]).view(-1, 1, 1).expand(-1, 4, 8).half() for text in texts
    ]
    return LatentCorpus.build(patches, [n % 5 for n in range(len(texts))], texts)


@pytest.fixture
def model() -> VoxCPM:
    torch.manual_seed(0)
    model = VoxCPM(starter_config(toy=True))
    initialise(model)
    return model


def maker(corpus: LatentCorpus, conditioning: Conditioning) -> RowMaker:
    return RowMaker(corpus, conditioning, np.random.default_rng(0))


def test_an_unconditioned_row_is_text_then_audio(corpus: LatentCorpus) -> None:
    row = maker(corpus, NEVER).row(0)
    assert row.tokens == [3, 4, 5, 101, 0, 0, 0]
    assert row.patches.tolist() == [-1, -1, -1, -1, 0, 1, 2]
    assert row.first_target == 4


def test_a_named_voice_is_its_token(corpus: LatentCorpus) -> None:
    row = maker(corpus, dataclasses.replace(NEVER, voice_token=1)).row(1)
    assert row.tokens[0] == VOICE_IDS["<michael>"]
    assert row.patches[0] == -1


def test_a_reference_comes_from_another_utterance_of_the_speaker(corpus: LatentCorpus) -> None:
    always = dataclasses.replace(NEVER, pseudo_reference=1, min_reference_patches=2, max_reference_patches=3)
    rows = maker(corpus, always)
    for _ in range(20):
        row = rows.row(4)
        end = row.tokens.index(104)
        assert row.tokens[0] == 103
        reference = row.patches[1:end]
        owner = int(np.searchsorted(corpus.starts, reference[0], side="right")) - 1
        assert corpus.speakers[owner] == 4
        assert owner != 4
        assert 2 <= len(reference) <= 3


def test_references_are_seldom_single_words_however_many_there_are() -> None:
    lengths = [4] * 30 + [40] * 3
    corpus = LatentCorpus.build([torch.zeros(n, 4, 8) for n in lengths], [5] * len(lengths), ["a"] * len(lengths))
    rows = maker(corpus, NEVER)
    drawn = [corpus.counts[rows._other(5, 0)] for _ in range(400)]
    assert np.mean(np.array(drawn) == 40) == pytest.approx(0.5, abs=0.1), "by patches, not by utterances"


def test_a_prompt_joins_its_text_and_its_audio(corpus: LatentCorpus) -> None:
    row = maker(corpus, dataclasses.replace(NEVER, prompt=1)).row(0)
    start = row.tokens.index(101)
    assert row.tokens[start - 4 : start] == [LETTER_IDS[" "], 3, 4, 5]
    assert (
        len(row.tokens) - start - 1 == start - 1
    )  # in this corpus a character is a patch; the joining space is neither
    assert row.patches[-3:].tolist() == [0, 1, 2]


SHAPE = BatchShape(positions=64, rows=8, audio=40, targets=40)


def test_a_batch_predicts_each_patch_from_the_position_before_it(corpus: LatentCorpus) -> None:
    rows = maker(corpus, NEVER)
    batch = collate([rows.row(0), rows.row(1)], SHAPE)
    count = int(batch.weight.sum())
    assert batch.target_index[:count].tolist() == [3, 4, 5, *range(13, 19)]
    assert batch.target_patches[:count].tolist() == list(range(9))
    assert batch.prefix_patches[:count].tolist() == [-1, 0, 1, -1, 3, 4, 5, 6, 7]
    assert batch.is_last[:count].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 1]


def test_padding_is_a_row_of_its_own_without_weight(corpus: LatentCorpus) -> None:
    rows = maker(corpus, NEVER)
    batch = collate([rows.row(0), rows.row(1)], SHAPE)
    assert batch.row_starts.tolist() == [0, 7, 20, *[64] * 6]
    assert batch.positions.tolist() == [*range(7), *range(13), *range(44)]
    assert batch.row_index.unique_consecutive().tolist() == [0, 1, 2]
    assert batch.weight.tolist() == [1.0] * 9 + [0.0] * 31
    assert batch.audio_index[9:].unique().tolist() == [63]
    assert batch.is_last[9:].sum() == 0


def test_no_row_of_padding_is_longer_than_a_row_may_be(corpus: LatentCorpus) -> None:
    batch = collate([maker(corpus, NEVER).row(0)], BatchShape(positions=1000, rows=8, audio=20, targets=20))
    assert batch.row_starts.diff().tolist() == [7, 448, 448, 97, 0, 0, 0, 0]


def test_rows_that_do_not_fit_are_refused(corpus: LatentCorpus) -> None:
    row = maker(corpus, NEVER).row(1)
    for shape in (
        dataclasses.replace(SHAPE, positions=13),
        dataclasses.replace(SHAPE, audio=5),
        dataclasses.replace(SHAPE, targets=5),
        dataclasses.replace(SHAPE, rows=1),
    ):
        with pytest.raises(ValueError, match="fit into"):
            collate([row], shape)


def test_packing_keeps_every_row_in_order_and_leaves_out_what_is_too_long(corpus: LatentCorpus) -> None:
    rows = maker(corpus, Conditioning())
    made = [rows.row(n % len(corpus)) for n in range(100)]
    long = dataclasses.replace(made[0], tokens=[3] * 449, patches=np.full(449, -1))
    batches = list(pack([*made[:50], long, *made[50:]], SHAPE))
    assert len(batches) > 10
    packed = [
        batch.tokens[batch.row_starts[n] : batch.row_starts[n + 1]].tolist()
        for batch in batches
        for n in range(int(batch.is_last.sum()))
    ]
    assert packed == [row.tokens for row in made]


def test_a_packed_row_does_not_see_the_others(corpus: LatentCorpus, model: VoxCPM) -> None:
    rows = maker(corpus, NEVER)
    row = rows.row(1)
    alone, among = collate([row], SHAPE), collate([rows.row(0), row], SHAPE)
    with torch.inference_mode():
        for a, b in zip(
            hidden_states(model, alone, corpus.patches[alone.audio_patches].float()),
            hidden_states(model, among, corpus.patches[among.audio_patches].float()),
            strict=True,
        ):
            torch.testing.assert_close(a[:13], b[7:20], atol=1e-6, rtol=1e-5)


def test_quantising_has_the_gradient_of_no_rounding(model: VoxCPM) -> None:
    hidden = torch.randn(5, 32, requires_grad=True)
    out = quantise(model.fsq_layer, hidden)
    torch.testing.assert_close(out, model.fsq_layer(hidden))
    out.sum().backward()
    assert hidden.grad.abs().sum() > 0


def test_the_training_forward_is_the_serving_forward(corpus: LatentCorpus, model: VoxCPM) -> None:
    rows = maker(corpus, NEVER)
    chosen = [rows.row(0), rows.row(1)]
    batch = collate(chosen, SHAPE)
    features = corpus.patches[batch.audio_patches].float()
    silence = torch.zeros(model.config.patch_size, model.config.latent_dim)
    with torch.inference_mode():
        ours = hidden_states(model, batch, features)
        for number, utterance in enumerate((0, 1)):
            text = corpus.text(utterance).tolist()
            start, count = corpus.starts[utterance], corpus.counts[utterance]
            prompt = corpus.patches[start : start + count].float().numpy()
            sequence = build_sequence(model.config, text, prompt=prompt)
            assert sequence.token_ids == chosen[number].tokens
            stream = Stream(sequence, lambda _: silence, blocks=[0, 1, 2], cfg=2.0)
            made = OfflineRunner(model, 3, flow_steps=2).step([stream])
            for training, serving in zip(ours, (made.lm_hidden, made.residual_hidden), strict=True):
                torch.testing.assert_close(training[batch.row_starts[number + 1] - 1], serving[0], atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_training_lowers_flow_and_stop_losses(corpus: LatentCorpus, model: VoxCPM) -> None:
    del model.vae
    data = TrainingData(corpus, positions_per_step=256, seed=0, workers=1)
    try:
        trainer = TtsTrainer(model, data, TtsSettings(), compiled=False, device="cpu")
        before = trainer.validate()
        for step in range(40):
            trainer.step(4e-3)
            trainer.ema.update(step)
        after = trainer.validate()
    finally:
        data.batches.close()
    # It comes to 0.22 and 0.60. Far from both: processors round differently, and 40 steps make much of little.
    assert after["val_flow"] < 0.5 * before["val_flow"]
    assert after["val_stop"] < 0.85 * before["val_stop"]


@pytest.fixture
def conditioned(model: VoxCPM) -> VoxCPM:
    """Model of which the flow depends much on its condition."""
    torch.manual_seed(1)
    for parameter in (*model.feat_decoder.parameters(), *model.lm_to_dit_proj.parameters()):
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_folded_guidance_of_one_is_what_the_flow_does_already(conditioned: VoxCPM) -> None:
    model, estimator = conditioned, conditioned.feat_decoder.estimator
    mu = torch.randn(6, 2, estimator.time_mlp.linear_1.in_features)
    prefix, target = torch.randn(2, 6, model.config.patch_size, model.config.latent_dim)

    def errors(cfg: float) -> torch.Tensor:
        torch.manual_seed(0)
        return Guided(copy.deepcopy(estimator), cfg).errors(model, mu, prefix, target, LossSettings(guidance_drop=0))

    torch.testing.assert_close(errors(1.0), torch.zeros(6), atol=1e-6, rtol=0)
    assert errors(3.0).min() > 1e-5
    torch.manual_seed(0)
    without = Guided(copy.deepcopy(estimator), 3.0).errors(model, mu, prefix, target, LossSettings(guidance_drop=1.0))
    torch.testing.assert_close(without, torch.zeros(6), atol=1e-6, rtol=0)


def test_folding_guidance_trains_the_flow_and_nothing_else(corpus: LatentCorpus, conditioned: VoxCPM) -> None:
    model = conditioned
    del model.vae
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = TrainingData(corpus, positions_per_step=256, seed=0, workers=1)
    try:
        trainer = TtsTrainer(model, data, TtsSettings(), compiled=False, device="cpu", fold_guidance=3.0)
        first = trainer.validate()["val_flow"]
        for step in range(12):
            trainer.step(2e-3)
            trainer.ema.update(step)
        assert trainer.validate()["val_flow"] < 0.9 * first
    finally:
        data.batches.close()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all(name.startswith("feat_decoder.") for name in changed)


def test_losses_are_finite_with_every_condition(corpus: LatentCorpus, model: VoxCPM) -> None:
    rows = maker(corpus, Conditioning(voice_token=0.4, reference=0.4, prompt=0.5, min_reference_patches=1))
    made = [rows.row(n % len(corpus)) for n in range(64)]
    batch = next(pack(made, BatchShape.fit(made, 2048)))
    result = losses(model, batch, corpus.patches, LossSettings())
    result["total"].backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None and not name.startswith("vae.")}
    assert not unused
    assert all(torch.isfinite(value) for value in result.values())


@pytest.fixture
def loaded(model: VoxCPM, tmp_path: Path) -> LoadedModel:
    state = model.state_dict()
    vae = {name.removeprefix("vae."): tensor for name, tensor in state.items() if name.startswith("vae.")}
    tts = {name: tensor for name, tensor in state.items() if not name.startswith("vae.")}
    export(vae, tts, toy_config_map(), tmp_path / "voice")
    return load_model(tmp_path / "voice")


def test_an_exported_voice_loads_strictly_and_keeps_its_weights(loaded: LoadedModel, model: VoxCPM) -> None:
    torch.testing.assert_close(loaded.model.stop_proj.weight, model.stop_proj.weight, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(
        loaded.model.vae.encoder.fc_mu.weight, model.vae.encoder.fc_mu.weight, atol=1e-3, rtol=1e-3
    )
    assert loaded.policy.to_map()["voices"].keys() == serving_map()["voices"].keys()
    assert loaded.tokenizer.encode("Ab <michael>?")[:3] == [3, 4, LETTER_IDS[" "]]
    assert loaded.tokenizer.encode_trusted("<michael>") == [VOICE_IDS["<michael>"]]


@pytest.mark.slow
def test_an_export_notes_the_head_that_follows_the_text(tmp_path: Path, loaded: LoadedModel) -> None:
    """As of the starter voice, which was exported without; a voice of a few steps of training has none."""
    starter = load_model(str(local_directory(STARTER_VOICE)))
    for file in starter.path.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "serving.json").unlink()
    without = json.loads((starter.path / "serving.json").read_text())
    del without["text_head"]
    (tmp_path / "serving.json").write_text(json.dumps(without))
    own, found = starter.policy.text_head, note_text_head(tmp_path)
    assert own is not None
    assert found is not None
    assert (found.layer, found.head) == (own.layer, own.head)
    assert found.lag_ms == pytest.approx(own.lag_ms, abs=15)
    assert load_model(tmp_path).policy == dataclasses.replace(starter.policy, text_head=found)
    assert note_text_head(loaded.path) is None


def test_the_voice_is_small_enough_to_ship() -> None:
    with torch.device("meta"):
        model = VoxCPM(starter_config())
    assert sum(parameter.numel() for parameter in model.parameters()) * 2 <= 64e6
    assert config_map()["architecture"] == "voxcpm2"


def test_batched_generation_speaks_as_alone(loaded: LoadedModel) -> None:
    reference = np.random.default_rng(0).normal(size=(3, 4, 8)).astype(np.float32)
    lines = [
        Line("abc.", "heart"),
        Line("a longer text, to see.", reference=reference),
        Line("def", prompt=reference, prompt_text="abc"),
    ]
    together = generate(loaded, lines, [0, 1, 2], steps=3, cfg=2.0)
    assert all(4 <= len(patches) <= len(line.text) + 10 for patches, line in zip(together, lines, strict=True))
    first = generate(loaded, lines[:1], [0], steps=3, cfg=2.0)[0]
    np.testing.assert_allclose(together[0][0], first[0], atol=1e-4)
    assert len(decode(loaded, together[1])) == len(together[1]) * 3840


def test_an_average_forgets_the_start_and_swaps_back() -> None:
    layer = torch.nn.Linear(2, 1, bias=False)
    ema = Ema(layer, 0.9)
    start = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.fill_(5.0)
    for step in range(200):
        ema.update(step)
    ema.swap()
    torch.testing.assert_close(layer.weight.detach(), torch.full((1, 2), 5.0))
    ema.swap()
    assert not torch.equal(layer.weight.detach(), start)


def test_the_rate_warms_up_and_then_falls() -> None:
    rates = [cosine_rate(step, step / 1000, 1e-3, warmup=100) for step in range(0, 1001, 50)]
    assert rates[0] < rates[1] < rates[2]
    assert rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] == pytest.approx(3e-5)


def test_preparations_count_in_a_runs_seconds_but_not_in_its_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("training.run_state.time.monotonic", lambda: now[0])
    run = Run(tmp_path, num_steps=None, seconds=60)
    now[0] += 20
    run.start_clock()
    assert run.progress == 0
    now[0] += 20
    assert run.progress == pytest.approx(0.5)
    now[0] += 20
    assert not run.goes_on


def test_more_seconds_begin_where_an_earlier_process_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("training.run_state.time.monotonic", lambda: now[0])
    first = Run(tmp_path, num_steps=None, seconds=None, more_seconds=90, session_seconds=30)
    now[0] += 31
    assert first.is_paused
    assert first.progress == pytest.approx(31 / 90)
    first.save()
    now[0] += 1000  # whatever happened in between
    second = Run(tmp_path, num_steps=None, seconds=None, more_seconds=31)
    second.load("cpu")
    assert second.progress == pytest.approx(0.5)
    now[0] += 31
    assert not second.goes_on


def predicted(batches: list[Batch]) -> set[int]:
    return {int(patch) for batch in batches for patch in batch.target_patches[batch.weight > 0]}


def test_validation_is_the_same_when_the_corpus_has_grown(
    corpus: LatentCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.tts_training.NUM_VALIDATION", 2)
    monkeypatch.setattr("training.tts_training.VALIDATION_POOL", len(corpus))
    inputs = []
    for part in (corpus, LatentCorpus.together([corpus, corpus, corpus])):
        data = TrainingData(part, positions_per_step=512, seed=0, workers=1)
        data.batches.close()
        (batch,) = data.validation
        inputs.append((batch.tokens.tolist(), batch.audio_patches[batch.audio_patches > 0].tolist()))
        assert predicted(data.validation) == set(range(int(part.counts[:2].sum())))
    assert inputs[0] == inputs[1]


def test_what_is_held_for_validation_is_no_prompt_or_reference_in_training(corpus: LatentCorpus) -> None:
    often = Conditioning(prompt=1)
    held, trained = np.split(np.arange(len(corpus)), [6])
    rows = RowMaker(corpus, often, np.random.default_rng(0), trained)
    seen = {int(patch) for _ in range(20) for u in trained for patch in rows.row(int(u)).patches}
    assert seen == {-1, *range(int(corpus.counts[held].sum()), int(corpus.counts.sum()))}
    data = TrainingData(corpus, positions_per_step=512, seed=0, workers=1)
    batches = list(itertools.islice(data.batches, 30))
    data.batches.close()
    assert predicted(data.validation)
    assert not predicted(data.validation) & predicted(batches)


def test_a_restored_optimiser_takes_its_rate_and_another() -> None:
    layer = torch.nn.Linear(2, 1)
    optimizer = adam_w(layer.parameters(), torch.device("cpu"), (0.9, 0.98))
    set_rate(optimizer, 0.25)
    other = adam_w(layer.parameters(), torch.device("cpu"), (0.9, 0.98))
    restore_optimizer(other, optimizer.state_dict(), torch.device("cpu"))
    assert other.param_groups[0]["lr"] == 0.25
    set_rate(other, 0.5)
    assert other.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_a_run_ends_by_steps_and_counts_on_after_a_restart(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs an end"):
        Run(tmp_path, num_steps=None, seconds=None)
    run = Run(tmp_path, num_steps=10, seconds=None)
    assert run.load("cpu") is None
    run.step = 4
    run.log(loss=1.5)
    run.save(weights=torch.ones(2))
    resumed = Run(tmp_path, num_steps=10, seconds=None, session_seconds=0)
    state = resumed.load("cpu")
    assert state is not None
    assert torch.equal(state["weights"], torch.ones(2))
    assert (resumed.step, resumed.progress) == (4, 0.4)
    assert not resumed.goes_on  # its session's share is nothing
    assert json.loads((tmp_path / "log.jsonl").read_text())["loss"] == 1.5

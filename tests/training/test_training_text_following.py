"""The head that follows the text: word times in the corpus, targets in batches, its loss, the exported head."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from realtime_tts.contract.policy import TextHead
from realtime_tts.engine.head_choice import HeadScore
from realtime_tts.model.generate import OfflineRunner, Stream
from realtime_tts.model.sequence import build_sequence
from realtime_tts.model.text_head import HeadProbe, TextSpans
from realtime_tts.model.voxcpm import VoxCPM
from training.export import choose
from training.latents import LatentCorpus
from training.starter_config import LETTER_IDS, starter_config, taught_head
from training.text_following import TAUGHT_LAG_MS, following
from training.tts_batches import Batch, BatchShape, Conditioning, RowMaker, collate, pack
from training.tts_losses import LossSettings, losses
from training.tts_training import initialise

NEVER = Conditioning(voice_token=0, reference=0, pseudo_reference=0, prompt=0, open_text=0)
SHAPE = BatchShape(positions=128, rows=8, audio=60, targets=50)


def corpus(texts: list[str], counts: list[int], words: list[list[float]], speakers: list[int]) -> LatentCorpus:
    patches = [torch.zeros(n, 4, 8).half() for n in counts]
    return LatentCorpus.build(patches, speakers, texts, np.array(words, np.float32))


@pytest.fixture
def small() -> LatentCorpus:
    """Two utterances of one pseudo-speaker: 9 and 4 patches."""
    words = [[1, 3], [4, 6], [7, 8], [0, 4]]
    return corpus(["ab, cd ef", "abcd"], [9, 4], words, [5, 5])


def spelt(count: int) -> LatentCorpus:
    """Random texts of one or more words, a patch for each letter, whose value is the letter's."""
    rng = np.random.default_rng(0)
    texts, patches, words = [], [], []
    for _ in range(count):
        lengths = rng.integers(2, 6, rng.integers(1, 4))
        text = " ".join("".join(rng.choice(list("abcdefgh"), n)) for n in lengths)
        letters = text.replace(" ", "")
        ends = np.cumsum(lengths)
        words += [[end - n, end] for n, end in zip(lengths, ends, strict=True)]
        values = torch.tensor([(LETTER_IDS[c] - 6.5) / 3 for c in letters])
        patches.append(values.view(-1, 1, 1).expand(-1, 4, 8).half())
        texts.append(text)
    return LatentCorpus.build(patches, [n % 5 for n in range(count)], texts, np.array(words, np.float32))


def test_the_character_of_a_patch_is_the_one_in_its_middle(small: LatentCorpus) -> None:
    # before the first word; "ab"; the comma while it pauses; "cd"; the space; "ef"; the last character; then "abcd"
    assert small.spoken_characters().tolist() == [0, 0, 1, 2, 4, 5, 6, 8, 8, 0, 1, 2, 3]
    assert small.spoken_characters(moment=0.25).tolist() == [0, 0, 1, 2, 4, 5, 6, 7, 8, 0, 1, 2, 3]


def test_words_that_follow_each_other_at_once_have_no_space_between_them() -> None:
    both = corpus(["ab cd."], [5], [[0, 2], [2, 4]], [0])
    assert both.spoken_characters().tolist() == [0, 1, 3, 4, 5]


def test_utterances_without_word_times_have_no_characters(small: LatentCorpus) -> None:
    unknown = LatentCorpus.build([torch.zeros(3, 4, 8).half()], [5], ["a bed"])
    both = LatentCorpus.together([unknown, small, unknown])
    assert both.spoken_characters().tolist() == [-1, -1, -1, *small.spoken_characters(), -1, -1, -1]


def test_there_is_one_row_of_times_for_each_word() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 2\), got \(1, 2\)"):
        corpus(["a b"], [2], [[0, 1]], [0])


def test_word_times_survive_saving_loading_and_joining(small: LatentCorpus, tmp_path: Path) -> None:
    LatentCorpus.together([small, small]).save(tmp_path / "latents.pt")
    loaded = LatentCorpus.load(tmp_path / "latents.pt")
    assert loaded.words.dtype == np.float32
    assert loaded.words_of(0).tolist() == loaded.words_of(2).tolist() == [[1, 3], [4, 6], [7, 8]]
    assert loaded.words_of(1).tolist() == loaded.words_of(3).tolist() == [[0, 4]]
    assert loaded.spoken_characters().tolist() == 2 * small.spoken_characters().tolist()


def test_a_corpus_of_before_loads_with_unknown_times(small: LatentCorpus, tmp_path: Path) -> None:
    small.save(tmp_path / "latents.pt")
    content = torch.load(tmp_path / "latents.pt", weights_only=True)
    del content["words"]
    torch.save(content, tmp_path / "latents.pt")
    loaded = LatentCorpus.load(tmp_path / "latents.pt")
    assert loaded.words_of(0).tolist() == [[-1, -1]] * 3
    assert set(loaded.spoken_characters().tolist()) == {-1}


def test_a_row_with_reference_and_prompt_points_at_both_texts(small: LatentCorpus) -> None:
    """103 reference 104, then the prompt's text, a space and the own text, 101, the prompt's audio and the own."""
    rows = RowMaker(
        small,
        dataclasses.replace(NEVER, pseudo_reference=1, prompt=1, min_reference_patches=2, max_reference_patches=2),
        np.random.default_rng(0),
    )
    row = rows.row(1)
    while len(row.spoken) != 13:  # the other utterance is drawn as the prompt nearly always
        row = rows.row(1)
    assert row.tokens.index(104) == 3
    prompt, own = 4 + np.array([0, 0, 1, 2, 4, 5, 6, 8, 8]), 4 + 9 + 1 + np.array([0, 1, 2, 3])
    assert row.spoken.tolist() == [*prompt, *own]
    first = RowMaker(small, NEVER, np.random.default_rng(0)).row(1)
    batch = collate([first, row], SHAPE)
    start = len(first.tokens)
    assert batch.spoken_index[:4].tolist() == [0, 1, 2, 3]
    assert batch.spoken_index[4:17].tolist() == [start + n for n in row.spoken]
    assert batch.spoken_index[17:].unique().tolist() == [-1]
    spoken = batch.tokens[batch.spoken_index[4:17]].tolist()
    assert spoken == [LETTER_IDS[c] for c in "aab,cd ff" + "abcd"]


def test_an_open_row_knows_the_first_words_and_speaks_only_what_serving_would() -> None:
    """Its last patch is not the end of speech, its text ends with a word, and the patches look ahead."""
    text = "one fact, two facts, and then some more."
    times = [[4 * n, 4 * n + 3] for n in range(text.count(" ") + 1)]
    data = corpus([text], [40], times, [0])
    rows = RowMaker(data, dataclasses.replace(NEVER, open_text=1), np.random.default_rng(0))
    drawn = {(tuple(row.tokens), len(row.spoken), row.is_open) for row in (rows.row(0) for _ in range(100))}
    letters = {number: char for char, number in LETTER_IDS.items()}
    lengths = {}
    for tokens, num_patches, is_open in drawn:
        end = tokens.index(101)
        assert tokens[end + 1 :] == (0,) * num_patches
        assert is_open
        lengths["".join(letters[token] for token in tokens[:end])] = num_patches
    assert min(map(len, lengths)) == len("one fact")
    assert {known.split()[-1] for known in lengths} == {"fact", "two", "facts", "and", "then", "some"}
    spoken = data.spoken_characters()
    for known, num_patches in lengths.items():
        assert text.startswith(known)
        assert num_patches == 1 or spoken[num_patches - 2] + 10 <= len(known)
        assert num_patches == len(spoken) or spoken[num_patches - 1] + 10 > len(known)


def test_an_open_row_after_a_prompt_points_at_its_own_text() -> None:
    text = "one fact, two facts."
    times = [[4 * n, 4 * n + 3] for n in range(4)]
    data = corpus([text, text], [16, 16], times * 2, [0, 0])
    rows = RowMaker(data, dataclasses.replace(NEVER, open_text=1, prompt=1), np.random.default_rng(0))
    row = next(row for row in (rows.row(1) for _ in range(100)) if len(row.spoken) > 16)
    own = len(text) + 1 + data.spoken_characters()[: len(row.spoken) - 16]
    assert row.spoken[16:].tolist() == own.tolist()
    batch = collate([row], SHAPE)
    assert batch.is_last.sum() == 0


def test_a_text_of_two_words_or_without_word_times_stays_whole() -> None:
    always = dataclasses.replace(NEVER, open_text=1)
    short = corpus(["one fact."], [8], [[0, 3], [4, 7]], [0])
    unknown = LatentCorpus.build([torch.zeros(9, 4, 8).half()], [5], ["one fact, two facts."])
    for data in (short, unknown):
        row = RowMaker(data, always, np.random.default_rng(0)).row(0)
        assert not row.is_open
        assert collate([row], SHAPE).is_last.sum() == 1


def plain(q: torch.Tensor, k: torch.Tensor, batch: Batch) -> tuple[float, float]:
    """`following` by one row after another."""
    errors, distances = [], []
    is_text = (batch.tokens >= 3) & (batch.tokens < 40)
    for target, spoken in zip(batch.target_index.tolist(), batch.spoken_index.tolist(), strict=True):
        if spoken < 0:
            continue
        start = int(batch.row_starts[batch.row_index[target]])
        scores = k[start : target + 1] @ q[target] / q.shape[1] ** 0.5
        errors.append(-scores.log_softmax(0)[spoken - start])
        text = is_text[start : target + 1]
        read = (scores[text].softmax(0) * torch.arange(start, target + 1)[text]).sum()
        distances.append((read - spoken).abs())
    return torch.stack(errors).mean().item(), torch.stack(distances).mean().item()


def test_the_windowed_loss_is_that_of_each_row_by_itself() -> None:
    """Rows that begin and end anywhere in the blocks, one of them as long as a row may be."""
    made = spelt(60)
    long = corpus(["ab " * 65 + "ab"], [250], [[3 * n, 3 * n + 2] for n in range(66)], [0])
    rows = RowMaker(
        LatentCorpus.together([made, long]), Conditioning(prompt=0.5, open_text=0), np.random.default_rng(0)
    )
    chosen = [rows.row(n) for n in (0, 1, 60, 2, 3)]
    assert max(len(row.tokens) for row in chosen) > 440
    batch = collate(chosen, BatchShape(positions=777, rows=16, audio=500, targets=400))
    torch.manual_seed(0)
    q, k = 3 * torch.randn(2, 777, 16)
    ours = [value.item() for value in following(q, k, batch)]
    assert ours == pytest.approx(plain(q, k, batch), rel=1e-4)


def test_without_word_times_the_loss_is_nothing() -> None:
    unknown = LatentCorpus.build([torch.zeros(3, 4, 8).half()], [5], ["a bed"])
    batch = collate([RowMaker(unknown, NEVER, np.random.default_rng(0)).row(0)], SHAPE)
    q, k = torch.randn(2, 128, 16)
    assert [value.item() for value in following(q, k, batch)] == [0, 0]


def readings(model: VoxCPM, data: LatentCorpus, utterance: int) -> list[float]:
    """The index in the text that serving reads for each patch, after the true patches before it."""
    ids, start = data.text(utterance).tolist(), data.starts[utterance]
    silence = torch.zeros(model.config.patch_size, model.config.latent_dim)
    found = []
    for count in range(data.counts[utterance]):
        prompt = data.patches[start : start + count].float().numpy()
        sequence = build_sequence(model.config, ids, spoken_chars=range(len(ids)), prompt=prompt if count else None)
        places = (sequence.num_positions - 1, sequence.spoken_start, len(ids))
        probe = HeadProbe(*taught_head(model.config), TextSpans(*(torch.tensor([place]) for place in places)))
        OfflineRunner(model, 4, flow_steps=2).step(
            [Stream(sequence, lambda _: silence, blocks=[0, 1, 2, 3], cfg=2.0)], probe
        )
        found.append(probe.readings[0, 0].item())
    return found


@pytest.mark.slow
def test_the_head_learns_to_follow_the_text_and_serving_reads_it() -> None:
    torch.manual_seed(0)
    model = VoxCPM(starter_config(toy=True))
    initialise(model)
    data = spelt(400)
    rows = RowMaker(data, NEVER, np.random.default_rng(0))
    shape = BatchShape.fit([rows.row(n) for n in range(400)], 256)
    held = next(pack((rows.row(n) for n in range(8)), shape))
    trained = list(pack((rows.row(n) for n in range(8, 400)), shape))
    settings = dataclasses.replace(LossSettings(), text_weight=1.0, max_noise=0)
    optimizer = torch.optim.AdamW(model.parameters(), 4e-3, weight_decay=0)
    before = losses(model, held, data.patches, settings)
    for step in range(180):
        optimizer.zero_grad()
        losses(model, trained[step % len(trained)], data.patches, settings)["total"].backward()
        optimizer.step()
    after = losses(model, held, data.patches, settings)
    assert after["text"] < 0.5 * before["text"]
    assert after["text_error"] < 1.0 < before["text_error"]

    with torch.inference_mode():
        read = [np.array(readings(model, data, n)) for n in range(8)]
    spoken = np.split(data.spoken_characters(), data.starts[1:])
    errors = np.concatenate([np.abs(r - s) for r, s in zip(read, spoken, strict=False)])
    assert errors.mean() == pytest.approx(after["text_error"].item(), abs=1e-3), "serving reads what training measures"
    assert np.mean(errors < 1) > 0.7


SCORE = HeadScore(4, 0, 0.6, 0.02, 0.01, 0.01, 0.99, 0.957, agreement=0.5, lag_ms=97.0)


def test_the_taught_head_is_exported_if_it_follows_the_text() -> None:
    better = dataclasses.replace(SCORE, layer=2, head=1, agreement=0.9, lag_ms=20.0)
    assert choose([better, SCORE], (4, 0)) == TextHead(4, 0, TAUGHT_LAG_MS, 0.95)
    lost = dataclasses.replace(SCORE, last=0.4)
    assert choose([better, lost], (4, 0)) == TextHead(2, 1, 20.0, 0.95)
    assert choose([lost], (4, 0)) is None

"""VAE training at toy size: the loss falls, normalising changes nothing audible, fast layers compute the same."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from realtime_tts.model.audio_vae import AudioVAE
from training import latents as latents_command
from training.audio_pool import AudioPool
from training.fast_layers import use_fast_layers
from training.latent_space import normalise_latents, revive_latents
from training.latents import LatentCorpus, encode_utterances
from training.run_state import Run
from training.speakers import SAMPLE_RATE_HZ
from training.starter_config import starter_config
from training.teacher import AudioChunk
from training.vae_training import (
    VaeSettings,
    VaeTrainer,
    load_vae,
    train,
)

SETTINGS = VaeSettings(batch=2, crop_frames=6, peak_rate=2e-3)


def tone(seconds: float, pitch_hz: float, seed: int) -> np.ndarray:
    """A buzz with a slow tremolo and a little noise, int16."""
    t = np.arange(int(seconds * SAMPLE_RATE_HZ)) / SAMPLE_RATE_HZ
    wave = sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 6)) * (0.6 + 0.4 * np.sin(9 * t))
    noise = np.random.default_rng(seed).normal(0, 0.02, len(t))
    return (6000 * (wave + noise)).astype(np.int16)


def _no_words(count: int) -> NDArray[np.int32]:
    """Word times of `count` texts of one word each, which these tests do not read."""
    return np.zeros((count, 2), np.int32)


@pytest.fixture
def pool(tmp_path: Path) -> AudioPool:
    audio = [tone(2.0, pitch, seed) for seed, pitch in enumerate((110, 160, 220))]
    ends = np.cumsum([len(part) for part in audio])
    AudioChunk(np.concatenate(audio), ends, np.zeros(3, np.int32), ["a", "b", "c"], _no_words(3)).save(
        tmp_path / "0000.npz"
    )
    pool = AudioPool(tmp_path, "cpu")
    pool.wait(1, timeout_s=1)
    return pool


@pytest.fixture
def vae() -> AudioVAE:
    torch.manual_seed(0)
    return AudioVAE(starter_config(toy=True).vae)


def test_chunks_survive_saving(tmp_path: Path) -> None:
    parts = [tone(0.1, 100, 0), tone(0.2, 100, 1)]
    ends = np.cumsum([len(part) for part in parts])
    AudioChunk(np.concatenate(parts), ends, np.array([4, 5], np.int32), ["one", "two."], _no_words(2)).save(
        tmp_path / "x.npz"
    )
    loaded = AudioChunk.load(tmp_path / "x.npz")
    assert loaded.texts == ["one", "two."]
    assert [len(part) for part in loaded.utterances()] == [2400, 4800]
    assert np.array_equal(loaded.utterances()[1], parts[1])


def test_the_pool_takes_in_chunks_that_appear_later(pool: AudioPool) -> None:
    assert pool.refresh() == 0
    AudioChunk(tone(1.0, 90, 9), np.array([SAMPLE_RATE_HZ]), np.zeros(1, np.int32), ["d"], _no_words(1)).save(
        pool.folder / "0001.npz"
    )
    assert pool.refresh() == 1
    assert pool.seconds() == pytest.approx(7.0)
    with pytest.raises(TimeoutError):
        pool.wait(3, timeout_s=0)


def test_crops_come_from_everywhere_in_every_chunk_that_is_long_enough(tmp_path: Path) -> None:
    for number, length in enumerate((3, 100, 4)):
        audio = np.arange(length, dtype=np.int16) + 1000 * number
        AudioChunk(audio, np.array([length]), np.zeros(1, np.int32), ["a"], _no_words(1)).save(
            tmp_path / f"{number}.npz"
        )
    pool = AudioPool(tmp_path, "cpu")
    pool.wait(3, timeout_s=1)
    torch.manual_seed(0)
    crops = (pool.crops(2000, 3) * 32768).int().numpy()
    assert (np.diff(crops) == 1).all()
    assert set(crops[:, 0].tolist()) == {*range(1000, 1097), 2000}


def test_fast_layers_compute_the_same(vae: AudioVAE) -> None:
    fast = copy.deepcopy(vae)
    use_fast_layers(fast)
    assert sum(type(a) is not type(b) for a, b in zip(vae.modules(), fast.modules(), strict=True)) > 20
    pcm = torch.randn(2, 640 * 5)
    torch.testing.assert_close(fast.decode(fast.encode(pcm)), vae.decode(vae.encode(pcm)), atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_joint_training_lowers_the_spectral_loss(pool: AudioPool, vae: AudioVAE) -> None:
    trainer = VaeTrainer(vae, pool, SETTINGS, adversarial=False)
    losses = [trainer.step(1.0, use_critics=False)["mel"].item() for _ in range(40)]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


def test_training_reaches_every_tap_of_every_convolution() -> None:
    """At full size: a tap that looks back beyond a crop's start gets no gradient, and stays random."""
    torch.manual_seed(0)
    vae = AudioVAE(starter_config().vae)
    samples = VaeSettings().crop_frames * vae.config.encode_hop
    vae.decode(vae.encode(0.1 * torch.randn(1, samples))).square().mean().backward()
    convolutions = [m for m in vae.modules() if isinstance(m, torch.nn.Conv1d) and m.weight.grad is not None]
    assert len(convolutions) > 60
    for convolution in convolutions:
        assert convolution.weight.grad.abs().sum((0, 1)).gt(0).all()


@pytest.mark.slow
def test_the_decoder_stage_leaves_the_encoder_alone(pool: AudioPool, vae: AudioVAE) -> None:
    before = copy.deepcopy(vae.state_dict())
    trainer = VaeTrainer(vae, pool, SETTINGS, adversarial=True)
    plain = trainer.step(0.5, use_critics=False)
    critical = trainer.step(0.5, use_critics=True)
    assert "critics" not in plain
    assert {"critics", "adversarial", "matching"} <= critical.keys()
    after = vae.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before if name.startswith("encoder."))
    assert any(not torch.equal(after[name], before[name]) for name in before if name.startswith("decoder."))


@pytest.mark.slow
@pytest.mark.parametrize("adversarial", [False, True])
def test_preparing_changes_no_weight(pool: AudioPool, vae: AudioVAE, adversarial: bool) -> None:
    trainer = VaeTrainer(vae, pool, SETTINGS, adversarial=adversarial)
    parts = [part for part in (vae, trainer.critics) if part is not None]
    before = [copy.deepcopy(part.state_dict()) for part in parts]
    trainer.prepare()
    for part, kept in zip(parts, before, strict=True):
        assert all(torch.equal(tensor, kept[name]) for name, tensor in part.state_dict().items())


def test_normalised_latents_are_standard_and_decode_as_before(pool: AudioPool, vae: AudioVAE) -> None:
    with torch.no_grad():
        vae.encoder.fc_mu.weight.mul_(30)
        pcm = pool.crops(4, 960 * 110)
        before = vae.decode(vae.encode(pcm))
        _, deviation = normalise_latents(vae, pcm)
        latents = vae.encode(pcm)
        after = vae.decode(latents)
    assert (deviation > 0.1).all()
    torch.testing.assert_close(latents.std((0, 1)), torch.ones(8), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(latents.mean((0, 1)), torch.zeros(8), atol=1e-3, rtol=1e-3)
    # further back than the decoder looks: left of the first frame is zero, which means something else now
    settled = 80 * 960
    torch.testing.assert_close(after[:, settled:], before[:, settled:], atol=2e-3, rtol=1e-2)


def test_chunks_that_come_later_are_added_behind_the_others(
    tmp_path: Path, pool: AudioPool, vae: AudioVAE, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    encode = latents_command._encode

    def counted(vae: AudioVAE, path: Path) -> LatentCorpus:
        encoded.append(path.name)
        return encode(vae, path)

    monkeypatch.setattr(latents_command, "load_vae", lambda *_, **__: vae)
    monkeypatch.setattr(latents_command, "_encode", counted)
    out = tmp_path / "latents.pt"
    arguments = ["latents", "--audio", str(tmp_path), "--out", str(out), "--device", "cpu"]
    monkeypatch.setattr("sys.argv", arguments)
    latents_command.main()
    first = LatentCorpus.load(out)
    audio = tone(1.0, 140, 4)
    AudioChunk(audio, np.array([len(audio)]), np.array([7], np.int32), ["later."], _no_words(1)).save(
        tmp_path / "0001.npz"
    )
    for _ in range(2):  # the second time there is nothing new
        latents_command.main()
    both = LatentCorpus.load(out)
    assert encoded == both.chunks == ["0000.npz", "0001.npz"]
    assert both.speakers.tolist() == [*first.speakers.tolist(), 7]
    assert torch.equal(both.patches[: len(first.patches)], first.patches)
    assert len(both.text(3)) == len("later.")


def test_a_part_that_a_cut_off_process_left_is_not_taken_in(tmp_path: Path, pool: AudioPool, vae: AudioVAE) -> None:
    second = SimpleNamespace(rank=1, count=2, is_first=False, wait=lambda: None)
    stale = tmp_path / "latents.pt.1"
    stale.touch()
    # fewer chunks than processes: the second has nothing to write over it
    latents_command._add(tmp_path / "latents.pt", [], vae, second)  # type: ignore[arg-type]
    assert not stale.exists()


def test_unused_latents_stay_small_when_normalised(pool: AudioPool, vae: AudioVAE) -> None:
    with torch.no_grad():
        vae.encoder.fc_mu.weight.mul_(30)
        vae.encoder.fc_mu.weight[:3] = 0
        pcm = pool.crops(4, 640 * 20)
        normalise_latents(vae, pcm)
        assert vae.encode(pcm)[..., :3].std() < 0.1


def test_unused_latents_are_revived_and_the_others_keep_their_meaning(pool: AudioPool, vae: AudioVAE) -> None:
    with torch.no_grad():
        vae.encoder.fc_mu.weight.mul_(30)
        vae.encoder.fc_mu.weight[:3] = 0
        pcm = pool.crops(4, 640 * 20)
        before = vae.encode(pcm)
        assert revive_latents(vae, pcm) == 3
        after = vae.encode(pcm)
        assert revive_latents(vae, pcm) == 0
    assert (after.std((0, 1))[:3] > 0.1).all()
    torch.testing.assert_close(after[..., 3:], before[..., 3:])


def test_free_nats_cost_nothing_and_the_log_counts_unused_latents(pool: AudioPool, vae: AudioVAE) -> None:
    with torch.no_grad():
        vae.encoder.fc_mu.weight.zero_()
        vae.encoder.fc_mu.bias.zero_()
        vae.encoder.fc_logvar.weight.zero_()
        vae.encoder.fc_logvar.bias.zero_()
        vae.encoder.fc_logvar.bias[0] = -8  # 3.5 nats: the one latent that pays
    settings = dataclasses.replace(SETTINGS, kl_weight=1000.0, free_nats=1.0)
    trainer = VaeTrainer(vae, pool, settings, adversarial=False)
    losses = trainer.step(0.0, use_critics=False)
    assert losses["unused"] == 7
    gradient = vae.encoder.fc_logvar.bias.grad
    assert gradient[0].abs() > 1e2 * gradient[1:].abs().max()


def test_padding_a_batch_on_the_right_changes_no_latent(vae: AudioVAE) -> None:
    audio = [tone(0.5, 120, 0), tone(1.3, 150, 1), tone(0.9, 90, 2)]
    together = encode_utterances(vae, audio, patch_size=4)
    assert [len(part) for part in together] == [4, 9, 6]
    for part, samples in zip(together, audio, strict=True):
        alone = encode_utterances(vae, [samples], patch_size=4)[0]
        torch.testing.assert_close(part, alone, atol=2e-3, rtol=1e-2)


@pytest.mark.slow
def test_a_run_cut_short_goes_on_where_it_stopped(pool: AudioPool, tmp_path: Path) -> None:
    def session(num_steps: int) -> VaeTrainer:
        torch.manual_seed(0)
        vae = AudioVAE(starter_config(toy=True).vae)
        trainer = VaeTrainer(vae, pool, SETTINGS, adversarial=False)
        train(trainer, Run(tmp_path / "run", num_steps=num_steps, seconds=None), adversarial=False, log_every=1)
        return trainer

    session(2)
    resumed = session(5)
    steps = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert len(steps) == 5
    exported = load_vae(tmp_path / "run" / "vae.pt", "cpu", toy=True)
    resumed.ema.swap()
    assert torch.equal(exported.encoder.fc_mu.weight, resumed.vae.encoder.fc_mu.weight)


def test_chunks_that_the_teacher_is_still_to_make_are_followed_to_its_last(tmp_path: Path) -> None:
    (tmp_path / "b.npz").touch()
    (tmp_path / "a.npz").touch()
    chunks = latents_command.new_chunks(tmp_path, {"a.npz"}, follow=True, poll_s=0)
    assert next(chunks).name == "b.npz"
    (tmp_path / "c.npz").touch()
    assert next(chunks).name == "c.npz"
    (tmp_path / "d.npz").touch()
    (tmp_path / "complete").touch()
    assert [path.name for path in chunks] == ["d.npz"]


def test_without_following_only_chunks_that_are_there_are_encoded(tmp_path: Path) -> None:
    (tmp_path / "a.npz").touch()
    chunks = latents_command.new_chunks(tmp_path, set(), follow=False)
    assert next(chunks).name == "a.npz"
    (tmp_path / "b.npz").touch()
    assert not list(chunks)

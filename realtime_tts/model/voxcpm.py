"""VoxCPM: text and audio positions → hidden states → patches of latents. One class for three generations.

A step is `embed` → `base_forward` → `residual_forward` → `stop_flags`, `condition` → `flow` → `vae.decode_stream`.
Sequences are flat and ragged; no state is kept between calls.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from realtime_tts.model.attention import PagedAttention
from realtime_tts.model.audio_vae import AudioVAE
from realtime_tts.model.config import ModelConfig
from realtime_tts.model.flow_matching import FlowMatching, FlowSchedule
from realtime_tts.model.local_transformers import LocDiT, LocEnc
from realtime_tts.model.minicpm import MiniCPM


class ScalarQuantizer(nn.Module):
    """Finite scalar quantisation: a bounded projection rounded to 2 * scale + 1 levels."""

    def __init__(self, hidden_size: int, latent_dim: int, scale: int) -> None:
        super().__init__()
        self.scale = scale
        self.in_proj = nn.Linear(hidden_size, latent_dim)
        self.out_proj = nn.Linear(latent_dim, hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return [..., hidden] quantised. The rounding has no gradient; training inserts its own."""
        return self.out_proj(torch.round(torch.tanh(self.in_proj(x)) * self.scale) / self.scale)


class VoxCPM(nn.Module):
    """The model with its VAE; parameters are named as in the reference."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        hidden, dit_hidden = config.base.hidden_size, config.dit.hidden_size
        self.base_lm = MiniCPM(config.base, config.vocab_size)
        self.residual_lm = MiniCPM(config.residual)
        self.feat_encoder = LocEnc(config.encoder, config.latent_dim)
        dit = LocDiT(config.dit, config.latent_dim, separate_time=config.concat_conditions)
        self.feat_decoder = FlowMatching(dit, mean_mode=config.dit_mean_mode)
        self.fsq_layer = ScalarQuantizer(hidden, config.fsq_dim, config.fsq_scale)
        self.enc_to_lm_proj = nn.Linear(config.encoder.hidden_size, hidden)
        self.lm_to_dit_proj = nn.Linear(hidden, dit_hidden)
        self.res_to_dit_proj = nn.Linear(hidden, dit_hidden)
        self.fusion_concat_proj = nn.Linear(2 * hidden, hidden) if config.concat_conditions else None
        self.stop_proj = nn.Linear(hidden, hidden)
        self.stop_head = nn.Linear(hidden, 2, bias=False)
        self.vae = AudioVAE(config.vae)

    def unfuse(self) -> None:
        """Remove all fused replacements, so that the plain modules run."""
        for module in self.modules():
            if getattr(module, "fused", None) is not None:
                module.fused = None  # type: ignore[assignment]

    @property
    def dtype(self) -> torch.dtype:
        return self.stop_proj.weight.dtype

    def embed_patches(self, patches: Tensor) -> Tensor:
        """Return embeddings of patches [N, patch_size, latent_dim] → [N, hidden]."""
        return self.enc_to_lm_proj(self.feat_encoder(patches.to(self.dtype)))

    def embed_text(self, token_ids: Tensor) -> Tensor:
        """Return embeddings of token_ids [...] int64 → [..., hidden]."""
        assert self.base_lm.embed_tokens is not None, "the base LM has a vocabulary"
        embedded = self.base_lm.embed_tokens(token_ids)
        scale = self.config.embedding_scale
        return embedded if scale == 1.0 else embedded * scale

    def embed(self, token_ids: Tensor, features: Tensor, audio_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return embeddings of T positions of which A hold audio; LocEnc encodes only those.

        token_ids [T] (any valid id at audio positions), features [A, patch_size, latent_dim], audio_index [A] int64 →
        embeddings [T, hidden] and is_audio [T, 1] bool.
        """
        embeddings = self.embed_text(token_ids)
        is_audio = torch.zeros(token_ids.shape[0], 1, dtype=torch.bool, device=token_ids.device)
        if audio_index.shape[0]:
            embeddings = embeddings.index_copy(0, audio_index, self.embed_patches(features))
            is_audio = is_audio.index_fill(0, audio_index, True)
        return embeddings, is_audio

    def quantize(self, hidden: Tensor, is_audio: Tensor | None) -> Tensor:
        """Quantise (FSQ) audio positions; text positions pass through. is_audio None: all are audio."""
        quantized = self.fsq_layer(hidden)
        return quantized if is_audio is None else torch.where(is_audio, quantized, hidden)

    def residual_inputs(self, lm_hidden: Tensor, embeddings: Tensor, is_audio: Tensor | None) -> Tensor:
        """Return the residual LM's input: the quantised hidden state fused with the patch embedding (0 for text)."""
        audio = embeddings if is_audio is None else embeddings * is_audio
        if self.fusion_concat_proj is None:
            return lm_hidden + audio
        return self.fusion_concat_proj(torch.cat((lm_hidden, audio), dim=-1))

    def lm_forward(self, embeddings: Tensor, is_audio: Tensor | None, attend: PagedAttention) -> tuple[Tensor, Tensor]:
        """Run both LMs over T new positions of S sequences.

        embeddings [T, hidden], is_audio [T, 1] bool or None (all audio) → lm_hidden, residual_hidden [S, hidden], each
        sequence's last position. Writes T slots of the cache. `attend.probe` observes the base LM's attention.
        """
        hidden = self.base_forward(embeddings, is_audio, attend)
        residual = self.residual_forward(hidden, embeddings, is_audio, attend)
        return attend.meta.last_rows(hidden), attend.meta.last_rows(residual)

    def base_forward(self, embeddings: Tensor, is_audio: Tensor | None, attend: PagedAttention) -> Tensor:
        """Run the first half of `lm_forward` → [T, hidden], quantised at audio positions."""
        rope = self.base_lm.rotary(attend.meta.positions)
        return self.quantize(self.base_lm(embeddings, rope, attend), is_audio)

    def residual_forward(
        self, hidden: Tensor, embeddings: Tensor, is_audio: Tensor | None, attend: PagedAttention
    ) -> Tensor:
        """Run the second half on `base_forward`'s result → [T, hidden], in the cache's layers behind the base LM's."""
        attend = PagedAttention(attend.backend, attend.kv, attend.meta, first_layer=self.config.base.num_layers)
        inputs = self.residual_inputs(hidden, embeddings, is_audio)
        return self.residual_lm(inputs, self.residual_lm.rotary(attend.meta.positions), attend)

    def stop_logits(self, lm_hidden: Tensor) -> Tensor:
        """Return [S, hidden] → [S, 2]; index 1 means that the patch made from this hidden state is the last."""
        return self.stop_head(F.silu(self.stop_proj(lm_hidden)))

    def stop_flags(self, lm_hidden: Tensor) -> Tensor:
        """Return [S, hidden] → [S] bool. The caller ignores them up to the step index `config.min_patches`."""
        logits = self.stop_logits(lm_hidden)
        return logits[:, 1] > logits[:, 0]

    def condition(self, lm_hidden: Tensor, residual_hidden: Tensor) -> Tensor:
        """Return mu [..., num_mu, dit_hidden] from [..., hidden] twice: two tokens, or their sum before VoxCPM2."""
        semantic, acoustic = self.lm_to_dit_proj(lm_hidden), self.res_to_dit_proj(residual_hidden)
        if self.config.concat_conditions:
            return torch.stack((semantic, acoustic), dim=-2)
        return (semantic + acoustic).unsqueeze(-2)

    def flow_schedule(self, num_steps: int) -> FlowSchedule:
        """Return the step grid for `flow`, with its time embeddings. Call it once per number of steps."""
        return self.feat_decoder.schedule(num_steps)

    def flow(self, mu: Tensor, prefix_patch: Tensor, noise: Tensor, schedule: FlowSchedule, cfg: Tensor) -> Tensor:
        """Return the patch, float32: mu [S, num_mu, dit_hidden], prefix_patch and noise [S, patch_size, latent_dim],
        cfg [S]."""
        return self.feat_decoder(mu, prefix_patch, noise, schedule, cfg)

    def encode_recording(self, pcm: Tensor, pad: str = "right") -> Tensor:
        """Return patches [N, patch_size, latent_dim] float32 on the CPU, from pcm [samples] at `config.encode_rate_hz`.

        A reference is padded on the right; a prompt on the left ("left"), so that speech reaches to where it continues.
        """
        missing = -pcm.shape[-1] % self.config.patch_encode_samples
        pcm = F.pad(pcm, (missing, 0) if pad == "left" else (0, missing))
        weight = self.vae.encoder.fc_mu.weight
        latents = self.vae.encode(pcm[None].to(weight.device, weight.dtype))
        return latents.float().cpu().view(-1, self.config.patch_size, self.config.latent_dim)

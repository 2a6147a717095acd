"""Layout of a model input: tokens and patches of audio by position. Free of torch.

`[103 reference patches 104]? prefix? text 101 [prompt patches]?`, then generation. With a prompt, text means prompt
text and target text tokenised as one string.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence as AnySequence
from typing import Any

import numpy as np

from realtime_tts.errors import InvalidRequest
from realtime_tts.model.config import ModelConfig

AUDIO_START, AUDIO_END, REFERENCE_START, REFERENCE_END = 101, 102, 103, 104
Array = np.ndarray[Any, np.dtype[Any]]
Patches = np.ndarray[Any, np.dtype[np.float32]]  # [num_patches, patch_size, latent_dim]


@dataclasses.dataclass(frozen=True, slots=True)
class Sequence:
    """One model input.

    token_ids: one per position, 0 at audio positions. audio_index: positions of audio; features: their patches, in
    order.
    prefix_patch [patch_size, latent_dim]: the patch that the first flow continues: the prompt's last, or zeros.
    context [≤ num_context_patches, patch_size, latent_dim]: patches to decode first, without their audio, so that the
    VAE continues from the prompt. Empty without a prompt; with a shorter prompt, the reference's end comes before it.
    text_start: first position of the text, which includes a prompt's text and instructions; no text changes the
    positions before it.
    spoken_start: first position of the text to be spoken, after a prompt's text. spoken_chars: for each of its
    positions the index of its first character in that text. Empty if not requested.
    """

    token_ids: list[int]
    audio_index: list[int]
    features: Patches
    prefix_patch: Patches
    context: Patches
    text_start: int
    spoken_start: int = 0
    spoken_chars: tuple[int, ...] = ()

    @property
    def num_positions(self) -> int:
        return len(self.token_ids)

    @property
    def spoken_end(self) -> int:
        """The position after the text, where its audio begins."""
        return self.spoken_start + len(self.spoken_chars)


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """New positions of several sequences, one after another: the host's input of `VoxCPM.embed`.

    token_ids: one per row, 0 at audio rows. audio_index: rows of audio; first those whose patches are in `features`
    [n, patch_size, latent_dim], then those whose audio is fed back: the last patch of their stream.
    """

    token_ids: list[int]
    audio_index: list[int]
    features: Patches

    @classmethod
    def of(cls, spans: AnySequence[tuple[Sequence, int, int]]) -> Rows:
        """Return positions [start, stop) of each sequence. After a sequence's end, a span is one fed-back position.
        Without spans there are no rows."""
        token_ids: list[int] = []
        audio_index: list[int] = []
        fed_back: list[int] = []
        features: list[Patches] = []
        for sequence, start, stop in spans:
            first_row = len(token_ids)
            if start >= sequence.num_positions:
                token_ids.append(0)
                fed_back.append(first_row)
                continue
            token_ids += sequence.token_ids[start:stop]
            low, high = (bisect.bisect_left(sequence.audio_index, position) for position in (start, stop))
            audio_index += [first_row + position - start for position in sequence.audio_index[low:high]]
            features.append(sequence.features[low:high])
        patches = np.concatenate(features) if features else np.zeros((0, 1, 1), np.float32)
        return cls(token_ids, audio_index + fed_back, patches)


def num_positions(num_ids: int, num_reference: int, num_prompt: int) -> int:
    """Return the length of an input in positions, for numbers of ids (prefix and text) and of patches."""
    return num_ids + 1 + num_prompt + (num_reference + 2 if num_reference else 0)


def build_sequence(
    config: ModelConfig,
    text_ids: AnySequence[int],
    *,
    prefix_ids: AnySequence[int] = (),
    spoken_chars: AnySequence[int] = (),
    reference: Patches | None = None,
    prompt: Patches | None = None,
) -> Sequence:
    """Lay out one input. reference, prompt: [n, patch_size, latent_dim].

    Raises:
        InvalidRequest: a reference for a generation without reference tokens.
    """
    if reference is not None and not config.supports_reference:
        raise InvalidRequest("this model supports a prompt to continue, not an isolated reference", field="reference")
    nothing = np.zeros((0, config.patch_size, config.latent_dim), np.float32)
    given = (nothing if patches is None else patches for patches in (reference, prompt))
    reference, prompt = (np.asarray(patches, dtype=np.float32) for patches in given)
    token_ids: list[int] = []
    audio_index: list[int] = []

    def add_audio(patches: Patches) -> None:
        audio_index.extend(range(len(token_ids), len(token_ids) + len(patches)))
        token_ids.extend([0] * len(patches))

    if len(reference):
        token_ids.append(REFERENCE_START)
        add_audio(reference)
        token_ids.append(REFERENCE_END)
    token_ids += prefix_ids
    text_start = len(token_ids)
    token_ids += text_ids
    spoken_start = len(token_ids) - len(spoken_chars)
    token_ids.append(AUDIO_START)
    add_audio(prompt)
    features = np.concatenate((reference, prompt))
    return Sequence(
        token_ids=token_ids,
        audio_index=audio_index,
        features=features,
        prefix_patch=prompt[-1] if len(prompt) else np.zeros((config.patch_size, config.latent_dim), np.float32),
        context=features[-config.num_context_patches :] if len(prompt) else prompt,
        text_start=text_start,
        spoken_start=spoken_start,
        spoken_chars=tuple(spoken_chars),
    )


def length_guard(num_text_tokens: int, num_chars: int, max_patches_per_char: float | None, limit: int) -> int:
    """Return the maximum number of patches for a text; longer speech is babble.

    The minimum of upstream's guard (6 × tokens + 10), the checkpoint's by characters, and `limit`; at least 1.
    """
    guards = [6 * num_text_tokens + 10, limit]
    if max_patches_per_char is not None:
        guards.append(int(max_patches_per_char * num_chars) + 10)
    return max(1, min(guards))

"""Conditioning of a segment on the previous ones, so that the segments of a context sound like one speaker without a
break; and the layout of inputs.

A checkpoint chooses the method (`ServingPolicy.continuity`). "continuation" uses the last segment's text and audio as a
prompt. "reference" repeats a named voice's prefix; a random (zero-shot) voice becomes an isolated reference made from
its first patches.
"""

from __future__ import annotations

import collections
import dataclasses

import numpy as np

from realtime_tts.engine.voices import Conditioning, EngineVoice
from realtime_tts.model.checkpoint import LoadedModel
from realtime_tts.model.sequence import Patches, Sequence, build_sequence, num_positions

MAX_CONTEXTS = 4096  # whose last segments are stored
REFERENCE_PATCHES = 10  # patches of a zero-shot segment that become the reference for the rest of its context


class Continuity:
    """Lays out inputs and stores, for a limited number of contexts, what the next segment continues from."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        # Reference: the voice of a context's first segment. Prompt: its last segment's speech.
        self._memories: collections.OrderedDict[str, Conditioning] = collections.OrderedDict()
        continues = loaded.policy.continuity == "continuation" or not loaded.config.supports_reference
        self._continues = continues and loaded.policy.max_prompt_patches > 0

    def next(self, text: str, alone: Conditioning, context_id: str, max_positions: int) -> Conditioning:
        """Return a segment's surroundings in its context; without continuity if `text` leaves no room for it.

        alone: its surroundings without what was spoken before.
        """
        memory = self._memories.get(context_id)
        if memory is None:
            return alone
        reference = memory.reference if alone.reference is None else alone.reference
        whole = dataclasses.replace(alone, instructions="", reference=reference)
        if memory.prompt is not None:
            whole = dataclasses.replace(whole, prompt=memory.prompt, prompt_text=memory.prompt_text)
        fits = self.num_positions(whole, text) <= max_positions
        return whole if fits else alone

    def num_positions(self, conditioning: Conditioning, text: str) -> int:
        """Return the length of a text's input in positions, before any of it is spoken."""
        num_text = len(self._loaded.tokenizer.encode_located(_read(conditioning, text)))
        return num_positions(
            len(conditioning.prefix_ids) + num_text, _num(conditioning.reference), _num(conditioning.prompt)
        )

    def lay_out(self, conditioning: Conditioning, text: str, patches: list[Patches] | None = None) -> Sequence:
        """Return the input of a text of which `patches` have been spoken: they follow the prompt's patches."""
        whole = _read(conditioning, text)
        tokens = self._loaded.tokenizer.encode_located(whole)
        before = len(whole) - len(text)
        prompt = conditioning.prompt
        if patches:
            prompt = np.stack(patches) if prompt is None else np.concatenate((prompt, np.stack(patches)))
        return build_sequence(
            self._loaded.config,
            [token.id for token in tokens],
            prefix_ids=conditioning.prefix_ids,
            spoken_chars=[max(0, token.start - before) for token in tokens if token.end > before],
            reference=conditioning.reference,
            prompt=prompt,
        )

    def spoken(self, context_id: str, text: str, voice: EngineVoice, patches: list[Patches]) -> None:
        """Store a segment that was spoken to its end."""
        if not patches:
            return
        memory, own = self._memories.pop(context_id, Conditioning()), voice.conditioning
        speech = np.stack(patches)
        if self._continues:
            prompt_text, prompt = self._prompt(text, speech)
            memory = Conditioning(prompt=prompt, prompt_text=prompt_text)
        elif memory.reference is None and not own.prefix_ids and own.reference is None and own.prompt is None:
            memory = Conditioning(reference=speech[:REFERENCE_PATCHES])
        self._memories[context_id] = memory
        while len(self._memories) > MAX_CONTEXTS:
            self._memories.popitem(last=False)

    def forget(self, context_id: str) -> None:
        """Remove the state of a closed context."""
        self._memories.pop(context_id, None)

    def _prompt(self, text: str, speech: Patches) -> tuple[str, Patches]:
        """Return a segment as prompt; of a longer one the end, with text and audio cut in the same proportion."""
        limit = self._loaded.policy.max_prompt_patches
        if len(speech) <= limit:
            return text, speech
        start = text.find(" ", round(len(text) * (1 - limit / len(speech))))
        if start < 0:
            return text, speech[-limit:]
        kept = round(len(speech) * (len(text) - start) / len(text))
        return text[start + 1 :], speech[-max(1, kept) :]


def _read(conditioning: Conditioning, text: str) -> str:
    """Return all text that is read: prompt text, instructions and text."""
    read = conditioning.instructions + text
    return read if conditioning.prompt is None else join_text(conditioning.prompt_text, read)


def _num(patches: Patches | None) -> int:
    return 0 if patches is None else len(patches)


def join_text(before: str, after: str) -> str:
    """Join two pieces of one text, with a space between them where the script uses spaces."""
    if not before or not after or before[-1].isspace() or after[0].isspace():
        return before + after
    return f"{before} {after}" if _writes_spaces(before[-1]) and _writes_spaces(after[0]) else before + after


def _writes_spaces(character: str) -> bool:
    """Return whether the character's script separates words by spaces: Chinese and Japanese do not, Korean does."""
    return character < "\u2e80" or "가" <= character <= "힣"

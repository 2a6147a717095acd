"""Text → token ids, from a checkpoint's tokenizer.json."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from realtime_tts.errors import CheckpointError

_WORD_MARK = "▁"
_NUM_KEPT = 1024  # texts: a segment's is encoded twice on arrival, and twice with its surroundings at its turn


class TextToken(NamedTuple):
    """An id and the characters [start, end) of the text that it represents, without leading white space."""

    id: int
    start: int
    end: int


class TextTokenizer:
    """Tokenizer for untrusted text: "<|audio_start|>" typed by a client becomes characters, not the token.

    Its encodings raise CheckpointError for a text with a token that a model of `vocab_size` tokens does not have.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._unknown_id = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "")
        self._splits = _chinese_splits(tokenizer)
        self._encode = functools.lru_cache(_NUM_KEPT)(self._encode_anew)

    @classmethod
    def from_file(cls, path: str | Path, vocab_size: int) -> TextTokenizer:
        """Load tokenizer.json. Raises CheckpointError if the file cannot be read or parsed."""
        try:
            return cls(Tokenizer.from_file(str(path)), vocab_size)
        except Exception as error:  # the library raises bare Exception
            raise CheckpointError(f"tokenizer.json cannot be loaded: {error}") from error

    def encode(self, text: str) -> list[int]:
        """Return token ids of untrusted text: special tokens are spelt out, unknown characters are dropped."""
        return [token.id for token in self.encode_located(text)]

    def encode_located(self, text: str) -> list[TextToken]:
        """Return `encode`'s tokens with their places in the text. Tokens for bytes of one character share its place."""
        return list(self._encode(text, True))

    def encode_trusted(self, text: str) -> list[int]:
        """Return token ids of trusted text, e.g. a voice's prefix "<heart>": special tokens keep their meaning."""
        return [token.id for token in self._encode(text, False)]

    def _encode_anew(self, text: str, specials_as_text: bool) -> tuple[TextToken, ...]:
        # The flag is a property of the shared object, so it is set before each call; each worker encodes in one thread.
        self._tokenizer.encode_special_tokens = specials_as_text
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        if encoding.ids and (largest := max(encoding.ids)) >= self._vocab_size:  # in a step it would end the worker
            raise CheckpointError(f"tokenizer.json has a token {largest}, but the model has {self._vocab_size}")
        tokens: list[TextToken] = []
        for token_id, (first, end) in zip(encoding.ids, encoding.offsets, strict=True):
            start = first
            while start < end and text[start].isspace():
                start += 1
            if start == end:  # only white space
                start = first
            if token_id in self._splits:
                parts = self._splits[token_id]
                start = max(start, end - len(parts))
                tokens += [TextToken(i, start + n, start + n + 1) for n, part in enumerate(parts) for i in part]
            elif token_id != self._unknown_id:
                tokens.append(TextToken(token_id, start, end))
        return tuple(tokens)


def _chinese_splits(tokenizer: Tokenizer) -> dict[int, list[list[int]]]:
    """Return, for each token of several Chinese characters, the ids of each of its characters.

    The model was trained on single characters, while the vocabulary also holds words, some with a word mark in front.
    """
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    words = {token for token in vocab if len(token) >= 2 and all("一" <= c <= "\u9fff" for c in token)}
    splits = {}
    for token, token_id in vocab.items():
        word = token.replace(_WORD_MARK, "")
        if word in words:
            splits[token_id] = [_character_ids(c, vocab) for c in word]
    return splits


def _character_ids(character: str, vocab: dict[str, int]) -> list[int]:
    if character in vocab:
        return [vocab[character]]
    names = [f"<0x{byte:02X}>" for byte in character.encode()]
    return [vocab[name] for name in names] if all(name in vocab for name in names) else []

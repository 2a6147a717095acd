"""What is spoken through the engine on our side and through `generate_with_prompt_cache` on the reference's."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from random_checkpoints import CONFIGS

ALWAYS = 1000  # as a minimum of patches: nothing stops the speech before its limit
PROMPT_TEXT, TEXT = "the hen then ", "he then hid in the den"  # ends in the space that we would add
CHINESE = "你好 the 世界,你好世界。"
WORDS = ["▁the", "▁then", "▁he", "你好", "▁你好", "世界", "火星", "▁火星"]
PIECES = ["▁", ",", ".", "。", "th", "he", "en", "the", "then", *"你好世界火星"]
# What the wrapper around the reference's tokenizer must split, keep, or leave to bytes.
TOKENIZED = [
    *(TEXT, PROMPT_TEXT, PROMPT_TEXT + TEXT, CHINESE, "", " ", "  two  spaces ", "a\nb\tc", "Upper CASE 12,3"),
    *(
        "你好",
        "你 好",
        "a你好世界a",
        "你好好你",
        "火星",
        "火星人",
        "星火",
        "人",
        "世界。世界",
        "\u3400世\u9fff",
        "é€😀",
    ),
]


@dataclasses.dataclass(frozen=True)
class SpeechCase:
    """One text, and how it is spoken. recordings: "", "prompt", "reference" or "both". The seed lies in the golden."""

    text: str = TEXT
    steps: int = 10
    cfg: float = 2.0
    max_patches: int = 4
    min_patches: int = ALWAYS
    recordings: str = ""


_SHORT = {
    "two_steps": SpeechCase(steps=2),
    "five_steps": SpeechCase(steps=5),
    "many_steps": SpeechCase(steps=25),
    "skip_two_steps": SpeechCase(steps=49),  # the first number of which two steps are not evaluated
    "most_steps": SpeechCase(steps=100),
    "no_guidance": SpeechCase(cfg=1.0),
    "unconditional": SpeechCase(cfg=0.0),
    "strong_guidance": SpeechCase(cfg=3.7),
}
_LONG = {
    "stops": SpeechCase(max_patches=60, min_patches=2),
    "long": SpeechCase(text=" ".join([TEXT] * 4), max_patches=130),
    "prompt": SpeechCase(max_patches=10, recordings="prompt"),
    "chinese": SpeechCase(text=CHINESE, max_patches=10),
}
_SECOND = {
    "reference": SpeechCase(max_patches=10, recordings="reference"),
    "both": SpeechCase(max_patches=10, recordings="both"),
}


def cases_of(config: str) -> dict[str, SpeechCase]:
    """By name. The older small configs have no room for long speech."""
    has_room, is_second = CONFIGS[config]["max_length"] >= 256, CONFIGS[config]["architecture"] == "voxcpm2"
    return {**_SHORT, **(_LONG if has_room else {}), **(_SECOND if has_room and is_second else {})}


def recording(kind: str) -> np.ndarray[Any, np.dtype[np.int16]]:
    """ "prompt" or "reference": a tenth of a second of noise at 16 kHz, no whole number of frames or patches."""
    seed, num_samples = {"prompt": (1, 1613), "reference": (2, 1741)}[kind]
    return (np.random.RandomState(seed).uniform(-0.9, 0.9, num_samples) * 32767).astype(np.int16)


def write_word_tokenizer(directory: Path) -> None:
    """tokenizer.json in the manner of MiniCPM's: word marks, words of one and more characters, bytes for the rest."""
    special = {"<unk>": 0, "<s>": 1, "</s>": 2, "<|audio_start|>": 101, "<|audio_end|>": 102}
    vocab = {**special, **{chr(ord("a") + i): 3 + i for i in range(26)}}
    vocab |= {piece: 30 + i for i, piece in enumerate([*PIECES, *WORDS])}
    vocab |= {f"<0x{byte:02X}>": 200 + byte for byte in range(256)}
    merges = [["t", "h"], ["h", "e"], ["e", "n"], ["th", "e"], ["th", "en"], ["▁", "the"], ["▁", "then"], ["▁", "he"]]
    merges += [["你", "好"], ["▁", "你好"], ["世", "界"], ["火", "星"], ["▁", "火星"]]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    content = {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": token, **flags} for token, index in special.items()],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]},
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "fuse_unk": True,
            "byte_fallback": True,
            "vocab": vocab,
            "merges": merges,
        },
    }
    (directory / "tokenizer.json").write_text(json.dumps(content))

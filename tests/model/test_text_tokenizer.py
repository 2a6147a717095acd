from __future__ import annotations

import json
from pathlib import Path

import pytest
from voices import DEFAULT_VOICE, STARTER_DIRECTORY

from realtime_tts.errors import CheckpointError
from realtime_tts.model.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def starter() -> TextTokenizer:
    return TextTokenizer.from_file(STARTER_DIRECTORY / "tokenizer.json", 1000)


def chinese_tokenizer(tmp_path: Path, *, byte_fallback: bool) -> TextTokenizer:
    """Words of several characters with and without a word mark, the way MiniCPM's vocabulary has them."""
    tokens = ["<unk>", "▁", "你", "好", "世", "▁你", "你好", "▁你好", "世界", "a", "▁a"]
    vocab = {token: i for i, token in enumerate(tokens)}
    if byte_fallback:
        vocab |= {f"<0x{byte:02X}>": 100 + byte for byte in range(256)}
    merges = [["你", "好"], ["▁", "你好"], ["▁", "a"]]
    model = {
        "type": "BPE",
        "unk_token": "<unk>",
        "byte_fallback": byte_fallback,
        "vocab": vocab | {"界": 50} if not byte_fallback else vocab,
        "merges": merges + ([["世", "界"]] if not byte_fallback else []),
    }
    normalizer = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "normalizer": normalizer, "model": model}))
    return TextTokenizer.from_file(path, 1000)


def test_characters_are_lower_cased_and_unknown_ones_dropped(starter):
    assert starter.encode("aZ é漢!") == [*starter.encode("a"), *starter.encode("z"), *starter.encode(" !")]
    assert len(starter.encode("aZ é漢!")) == 4
    assert starter.encode("") == []


def test_special_tokens_in_user_text_are_spelt_out(starter):
    letters = starter.encode(DEFAULT_VOICE)
    assert len(letters) == len(DEFAULT_VOICE)
    assert starter.encode(f"<{DEFAULT_VOICE}>") == letters
    assert 101 not in starter.encode("<|audio_start|>")


def test_a_trusted_prefix_keeps_its_special_token(starter):
    letters = starter.encode(DEFAULT_VOICE)
    (token,) = starter.encode_trusted(f"<{DEFAULT_VOICE}>")
    assert token not in letters
    # and asking for it changes nothing for the next user text
    assert starter.encode(f"<{DEFAULT_VOICE}>") == letters


def test_words_of_several_chinese_characters_are_split(tmp_path):
    tokenizer = chinese_tokenizer(tmp_path, byte_fallback=False)
    # "▁你好" loses its word mark with the split, as upstream's wrapper does it; "▁a" is no Chinese word and stays.
    assert tokenizer.encode("你好世界") == [2, 3, 4, 50]
    assert tokenizer.encode("a") == [10]


def test_a_single_character_keeps_the_word_mark_before_it(tmp_path):
    assert chinese_tokenizer(tmp_path, byte_fallback=False).encode("a 你") == [10, 1, 2]


def test_characters_outside_the_vocabulary_become_bytes_where_it_has_them(tmp_path):
    tokenizer = chinese_tokenizer(tmp_path, byte_fallback=True)
    assert tokenizer.encode("a界")[1:] == [100 + byte for byte in "界".encode()]


def test_a_split_into_a_character_without_a_token_of_its_own_falls_back_to_bytes(tmp_path):
    """The vocabulary holds a word whose second character exists only as bytes."""
    tokenizer = chinese_tokenizer(tmp_path, byte_fallback=True)
    assert tokenizer._splits[8] == [[4], [100 + byte for byte in "界".encode()]]


def test_a_token_is_where_its_characters_are(starter):
    assert [(token.start, token.end) for token in starter.encode_located("Ab é c")] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (4, 5),
        (5, 6),
    ]


def test_white_space_before_a_word_is_not_counted(tmp_path):
    tokens = chinese_tokenizer(tmp_path, byte_fallback=False).encode_located(" a a")
    assert [(token.start, token.end) for token in tokens if token.id == 10] == [(1, 2), (3, 4)]


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_the_characters_of_a_split_word_are_where_they_stand(tmp_path, byte_fallback):
    tokens = chinese_tokenizer(tmp_path, byte_fallback=byte_fallback).encode_located("你好 你好")
    assert [(token.start, token.end) for token in tokens if token.id in (2, 3)] == [(0, 1), (1, 2), (3, 4), (4, 5)]


def test_the_bytes_of_a_character_share_its_place(tmp_path):
    tokens = chinese_tokenizer(tmp_path, byte_fallback=True).encode_located("a界")
    assert [(token.start, token.end) for token in tokens] == [(0, 1), (1, 2), (1, 2), (1, 2)]


@pytest.mark.parametrize("content", [None, "{}", "no json"])
def test_damaged_files_are_checkpoint_errors(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        TextTokenizer.from_file(path, 1000)

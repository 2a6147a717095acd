from __future__ import annotations

import numpy as np
import pytest
from random_checkpoints import CONFIGS

from realtime_tts.model.config_file import parse_config
from realtime_tts.model.sequence import Rows, build_sequence, length_guard

CONFIG = parse_config(CONFIGS["voxcpm2"])


def patches(count: int, first: float = 1.0) -> np.ndarray:
    values = np.arange(count, dtype=np.float32) + np.float32(first)
    return np.broadcast_to(values[:, None, None], (count, CONFIG.patch_size, CONFIG.latent_dim))


def test_text_alone_ends_with_audio_start_and_begins_from_silence():
    sequence = build_sequence(CONFIG, [7, 8, 9])
    assert sequence.token_ids == [7, 8, 9, 101]
    assert sequence.audio_index == []
    assert sequence.features.shape == (0, 4, 8)
    assert not sequence.prefix_patch.any()
    assert len(sequence.context) == 0


def test_a_prompt_follows_the_text_and_is_continued():
    sequence = build_sequence(CONFIG, [7], prompt=patches(5))
    assert sequence.token_ids == [7, 101, 0, 0, 0, 0, 0]
    assert sequence.audio_index == [2, 3, 4, 5, 6]
    assert sequence.prefix_patch[0, 0] == 5
    assert sequence.context[:, 0, 0].tolist() == [3, 4, 5]


def test_a_prompt_shorter_than_the_context_is_used_whole():
    assert len(build_sequence(CONFIG, [7], prompt=patches(1)).context) == 1


def test_a_reference_goes_first_between_its_own_marks_and_is_not_continued():
    sequence = build_sequence(CONFIG, [7], reference=patches(2))
    assert sequence.token_ids == [103, 0, 0, 104, 7, 101]
    assert sequence.audio_index == [1, 2]
    assert not sequence.prefix_patch.any()
    assert len(sequence.context) == 0


def test_reference_prefix_and_prompt_together():
    sequence = build_sequence(CONFIG, [7], prefix_ids=[40], reference=patches(1), prompt=patches(2, first=10))
    assert sequence.token_ids == [103, 0, 104, 40, 7, 101, 0, 0]
    assert sequence.audio_index == [1, 6, 7]
    assert sequence.features[:, 0, 0].tolist() == [1, 10, 11]
    assert sequence.num_positions == 8


def test_a_prompt_shorter_than_the_context_leaves_room_for_the_references_end():
    """The reference implementation takes the last audio patches of the whole input."""
    sequence = build_sequence(CONFIG, [7], reference=patches(4), prompt=patches(1, first=10))
    assert sequence.context[:, 0, 0].tolist() == [3, 4, 10]
    assert sequence.prefix_patch[0, 0] == 10


@pytest.mark.parametrize(
    ("tokens", "chars", "per_char", "limit", "expected"),
    [(10, 40, None, 999, 70), (10, 40, 1.0, 999, 50), (10, 40, 1.0, 5, 5), (0, 0, 1.0, 999, 10), (5, 5, None, 0, 1)],
)
def test_the_length_guard_is_the_tightest_of_three(
    tokens: int, chars: int, per_char: float | None, limit: int, expected: int
) -> None:
    assert length_guard(tokens, chars, per_char, limit) == expected


def test_rows_hold_parts_of_inputs_and_what_is_fed_back():
    spoken = build_sequence(CONFIG, [7, 8], reference=patches(2, first=1))  # 103 a a 104 7 8 101
    silent = build_sequence(CONFIG, [9])
    rows = Rows.of([(spoken, 1, 5), (silent, 2, 3), (silent, 0, 2), (spoken, 2, 3), (spoken, 9, 10)])
    assert rows.token_ids == [0, 0, 104, 7, 0, 9, 101, 0, 0]
    assert rows.audio_index == [0, 1, 7, 4, 8]
    assert rows.features[:, 0, 0].tolist() == [1, 2, 2]
    fed_back = Rows.of([(silent, 2, 3), (spoken, 7, 8)])
    assert (fed_back.token_ids, fed_back.audio_index, len(fed_back.features)) == ([0, 0], [0, 1], 0)

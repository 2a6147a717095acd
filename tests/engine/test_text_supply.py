"""How much text a request has in front of its speech, and when the model must read more of it."""

from __future__ import annotations

import pytest

from realtime_tts.engine.core.scheduler_config import SchedulerConfig
from realtime_tts.engine.core.text_supply import TextSupply

CONFIG = SchedulerConfig(num_blocks=16, max_streams=2, max_positions=64, patch_s=0.16)
FAR = CONFIG.text_bound(1) + CONFIG.chars_per_patch + 0.01


@pytest.mark.parametrize("position", [None, CONFIG.chars_per_patch])
def test_an_open_text_runs_out_where_too_little_lies_in_front(position: float | None) -> None:
    """Without a measured position, the number of patches counts."""
    assert not TextSupply(FAR, is_final=False, position=position).runs_out(1, CONFIG)
    assert TextSupply(FAR - 0.1, is_final=False, position=position).runs_out(1, CONFIG)
    assert not TextSupply(0.0, is_final=True, position=position).runs_out(1, CONFIG)


def test_more_is_read_when_what_was_read_runs_short_or_the_end_is_known() -> None:
    def must_be_read(known: float, read: float, is_final: bool) -> bool:
        return TextSupply(known, is_final, read).must_be_read(1, CONFIG)

    assert not must_be_read(FAR + 1, FAR, is_final=False)
    assert must_be_read(FAR + 1, FAR - 0.1, is_final=False)
    assert must_be_read(FAR + 1, FAR, is_final=True)
    assert not must_be_read(0.0, 0.0, is_final=False), "there is nothing that it has not read"
    assert not must_be_read(FAR, FAR, is_final=True)


@pytest.mark.parametrize(("is_final", "read", "may_stop"), [(True, 5.0, True), (True, 4.0, False), (False, 5.0, False)])
def test_an_end_counts_when_all_was_read(is_final: bool, read: float, may_stop: bool) -> None:
    assert TextSupply(5.0, is_final, read).may_stop is may_stop

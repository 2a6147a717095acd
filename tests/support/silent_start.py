"""Speech as it is streamed against speech as it was made."""

from __future__ import annotations

from typing import Any

import numpy as np

_FADE_S = 0.01
_HALF_A_PATCH_S = 0.08


def assert_sent_from_its_onset(streamed: np.ndarray[Any, Any], made: np.ndarray[Any, Any], rate_hz: int) -> None:
    """`streamed` is `made` without silence at its beginning, faded in, sample for sample."""
    num_left_out, fade = len(made) - len(streamed), round(_FADE_S * rate_hz)
    assert 0 <= num_left_out <= _HALF_A_PATCH_S * rate_hz
    assert np.abs(made[:num_left_out]).max(initial=0.0) < 0.02
    np.testing.assert_allclose(streamed[fade:], made[num_left_out + fade :], atol=2e-3)

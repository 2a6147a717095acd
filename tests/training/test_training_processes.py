"""The evaluation's processes: order, failures, and that it does not matter which of them speaks, or with whom."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from realtime_tts.contract.location import STARTER_VOICE, local_directory
from training.evaluation_measures import measure_length, measure_pitch
from training.evaluation_pool import Setup, Workers, speak, speak_jobs
from training.generation import Line


def tone(pitch_hz: float) -> np.ndarray:
    return (3000 * np.sin(2 * np.pi * pitch_hz * np.arange(8000) / 16000)).astype(np.int16)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    checkpoint = local_directory(STARTER_VOICE)
    assert checkpoint is not None
    with Workers(Setup(checkpoint, "cpu"), 2) as workers:
        yield workers


@pytest.mark.slow
def test_processes_answer_in_the_order_of_the_jobs(workers: Workers) -> None:
    heights = [120.0, 240.0, 90.0, 180.0, 300.0, 150.0]
    measured = workers.map(measure_pitch, [tone(hz) for hz in heights], "pitch")
    assert measured == pytest.approx(heights, rel=0.03)


@pytest.mark.slow
def test_a_failing_job_is_reported_and_the_next_ones_are_done(workers: Workers) -> None:
    speech, silence = tone(120), np.zeros(8000, np.int16)
    with pytest.raises(ZeroDivisionError):
        workers.map(measure_length, [(speech, speech), (speech, silence)], "lengths")
    assert workers.map(measure_length, [(speech, speech)], "lengths")[0].ratio == 1.0


@pytest.mark.slow
def test_a_line_sounds_alike_from_any_process_and_batch(workers: Workers) -> None:
    lines = [Line("yes.", "slt"), Line("good morning.", "rms")]
    alone, order = speak_jobs(lines, steps=2, cfg=2.0, batch=1)
    together, same_order = speak_jobs(lines, steps=2, cfg=2.0, batch=2)
    assert order == same_order == [1, 0]
    singly = [samples for batch in workers.map(speak, alone, "alone") for samples in batch]
    jointly = [samples for batch in workers.map(speak, together, "together") for samples in batch]
    for one, other in zip(singly, jointly, strict=True):
        assert len(one) == len(other)
        assert np.abs(one.astype(int) - other).max() < 40  # of 32768: sums in another order

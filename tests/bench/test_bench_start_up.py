"""The bench of a worker's start: its requests of random shapes, and what it holds against what was held before."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from benchmarks.start_up import Held, Shapes, Start, _missed
from realtime_tts.bench.subject import Subject
from realtime_tts.contract import frames
from realtime_tts.engine.setup import EngineOptions


def test_every_request_of_a_random_shape_ends(tiny_directory: Path) -> None:
    subject = Subject.load(EngineOptions(model=str(tiny_directory), device="cpu", max_streams=8))
    engine = subject.engine(lambda message: None)
    asked: list[frames.Message] = []
    shapes = Shapes(engine, 3, other_steps=True)
    post = engine.post
    engine.post = lambda message: (asked.append(message), post(message))[1]  # type: ignore[method-assign]
    before = Held.of(engine)
    shapes.run(12)
    assert shapes.num_done == 12
    assert engine.is_idle
    assert Held.of(engine) == before
    texts = {message.text for message in asked if isinstance(message, frames.Generate)}
    assert len(texts) == 12
    assert {frames.Generate, frames.Extend, frames.CloseContext} <= {type(message) for message in asked}
    assert len({message.steps for message in asked if isinstance(message, frames.Generate)}) > 1


def test_what_was_missed_is_named() -> None:
    held = Held(10, 20, 30, 4, 5)
    fine = Start(ready_s=59.0, asked_ms=[15.0, 14.0, 13.0, 10.0, 10.0, 30.0])
    assert _missed(fine, (held, held)) == []
    assert _missed(dataclasses.replace(fine, asked_ms=[15.0, 14.0, 15.1, 10.0, 10.0, 30.0]), None) == [
        "first requests within 1.5 × of the steady ones"
    ]
    late = dataclasses.replace(fine, ready_s=61.0, asked_ms=[15.1, *fine.asked_ms[1:]])
    grown = dataclasses.replace(held, reserved=21, kernels=6)
    assert _missed(late, (held, grown)) == [
        "ready within 60 s",
        "first requests within 1.5 × of the steady ones",
        "reserved as before",
        "kernels as before",
    ]


def test_each_gateway_has_first_requests_of_its_own() -> None:
    start = Start(ready_s=1.0, asked_ms=[30.0, 40.0, 11.0, 12.0, 10.0, 10.0, 20.0, 20.0, 90.0], num_gateways=2)
    assert [start.nth_ms(number) for number in (1, 2, 3)] == [40.0, 12.0, 10.0]
    assert start.steady_ms == [20.0, 20.0, 90.0]
    assert start.ratio == 2.0

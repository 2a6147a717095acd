"""A step plan as rows: which sequence is computed where, and what the device must be told of it. Free of torch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from realtime_tts.engine.core.request import DecodeItem, PrefillItem, StepPlan
from realtime_tts.engine.runtime.noise import noise_key
from realtime_tts.engine.utterance import Utterance
from realtime_tts.model.sequence import Patches, Rows

Item = PrefillItem | DecodeItem
Values = dict[str, list[int] | list[float]]


@dataclasses.dataclass(frozen=True, slots=True)
class StepLayout:
    """One step. Sequences with several new positions come first (the attention's rule); the streams that speak are
    grouped by their number of flow steps, the usual number first.

    names, last_rows: of each sequence, the row of its last new position. query_lens, context_lens: likewise.
    tables: slot and blocks of each.
    speaking: names; speech: where each is among the rows of flow and VAE, which may have gaps between the groups.
    flow_groups: (steps, first row, number of rows).
    num_rows, num_audio, num_speech: of what is computed, without padding at the end.
    starting: how many streams begin. context_groups: (context patches, number of streams) of those.
    values: of the fields of `StepInputs`. patches: for `StepInputs.send`; the first `num_features` are LocEnc's.
    """

    names: tuple[str, ...]
    last_rows: tuple[int, ...]
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    tables: tuple[tuple[int, tuple[int, ...]], ...]
    speaking: tuple[str, ...]
    speech: tuple[int, ...]
    flow_groups: tuple[tuple[int, int, int], ...]
    num_rows: int
    num_audio: int
    num_speech: int
    num_features: int
    starting: int
    context_groups: tuple[tuple[int, int], ...]
    values: Values
    patches: tuple[Patches, ...]


def lay_out(
    plan: StepPlan,
    utterances: Mapping[str, Utterance],
    scratch_slot: int,
    usual_steps: int,
    padded: Callable[[int], int],
) -> StepLayout:
    """`utterances` holds every request of the plan. padded: how many rows the flow computes for so many streams with
    the usual number of steps."""
    items = _ordered(plan)
    lens = [_num_positions(item) for item in items]
    ends = [_start(item) + num for item, num in zip(items, lens, strict=True)]
    inputs = [utterances[item.request_id].input for item in items]
    starts = [end - num for end, num in zip(ends, lens, strict=True)]
    rows = Rows.of(list(zip(inputs, starts, ends, strict=True)))
    last_rows = [last - 1 for last in itertools.accumulate(lens)]

    speakers = [row for row, item in enumerate(items) if isinstance(item, DecodeItem) or item.is_last]
    steps = {row: utterances[items[row].request_id].steps for row in speakers}
    speakers.sort(key=lambda row: (steps[row] != usual_steps, steps[row]))
    flow_groups, speech = _flow_groups([steps[row] for row in speakers], usual_steps, padded)
    speaking = [items[row] for row in speakers]
    starting = [item for item in speaking if isinstance(item, PrefillItem) and item.patch_index == 0]
    starting.sort(key=lambda item: len(utterances[item.request_id].input.context))
    beginnings = [utterances[item.request_id].input for item in starting]

    num_features = len(rows.features)
    fed_back = [item.slot for item in plan.decode]
    values: Values = {
        "token_ids": rows.token_ids,
        "positions": [position for start, end in zip(starts, ends, strict=True) for position in range(start, end)],
        "slots": [item.slot for item, num in zip(items, lens, strict=True) for _ in range(num)],
        "audio_index": _inverse(rows.audio_index, len(rows.token_ids)),
        "patch_slots": [scratch_slot] * num_features + fed_back,
        "starting_slots": [item.slot for item in starting],
    }
    values |= _spoken(speaking, [last_rows[row] for row in speakers], utterances)
    values |= _speech(speaking, speech, [last_rows[row] for row in speakers], utterances, scratch_slot)
    return StepLayout(
        names=tuple(item.request_id for item in items),
        last_rows=tuple(last_rows),
        query_lens=tuple(lens),
        context_lens=tuple(ends),
        tables=tuple((item.slot, item.blocks) for item in items),
        speaking=tuple(item.request_id for item in speaking),
        speech=tuple(speech),
        flow_groups=flow_groups,
        num_rows=len(rows.token_ids),
        num_audio=num_features + len(fed_back),
        num_speech=speech[-1] + 1 if speech else 0,
        num_features=num_features,
        starting=len(starting),
        context_groups=_runs([len(source.context) for source in beginnings]),
        values=values,
        patches=(
            rows.features,
            *(source.prefix_patch[None] for source in beginnings),
            *(source.context for source in beginnings),
        ),
    )


def _spoken(speaking: Sequence[Item], rows: list[int], utterances: Mapping[str, Utterance]) -> Values:
    """Per stream that speaks: where its text lies."""
    inputs = [utterances[item.request_id].input for item in speaking]
    return {
        "spoken_rows": rows,
        "spoken_starts": [source.spoken_start for source in inputs],
        "spoken_lens": [len(source.spoken_chars) for source in inputs],
    }


def _speech(
    speaking: Sequence[Item], places: list[int], rows: list[int], utterances: Mapping[str, Utterance], scratch_slot: int
) -> Values:
    """Per row of flow and VAE: its hidden state, slot, noise and guidance."""
    spoken = [utterances[item.request_id] for item in speaking]

    def spread(values: Sequence[Any], padding: Any = 0) -> list[Any]:
        spread_out = [padding] * (places[-1] + 1 if places else 0)
        for place, value in zip(places, values, strict=True):
            spread_out[place] = value
        return spread_out

    return {
        "speech_rows": spread(rows),
        "speech_slots": spread([item.slot for item in speaking], scratch_slot),
        "noise_keys": spread([noise_key(u.message.seed, u.message.segment) for u in spoken]),
        "patch_index": spread([item.patch_index for item in speaking]),
        "cfg": spread([u.cfg for u in spoken]),
    }


def _flow_groups(
    steps: Sequence[int], usual_steps: int, padded: Callable[[int], int]
) -> tuple[tuple[tuple[int, int, int], ...], list[int]]:
    """Sorted numbers of steps → their groups, and the row of each stream."""
    groups: list[tuple[int, int, int]] = []
    places: list[int] = []
    first = 0
    for value, count in _runs(steps):
        groups.append((value, first, count))
        places += range(first, first + count)
        first += padded(count) if value == usual_steps else count
    return tuple(groups), places


def _inverse(rows: Sequence[int], num_rows: int) -> list[int]:
    """Of each row its place in `rows`; −1: it is not there."""
    places = [-1] * num_rows
    for place, row in enumerate(rows):
        places[row] = place
    return places


def _ordered(plan: StepPlan) -> list[Item]:
    several = [item for item in plan.prefill if item.num_positions > 1]
    single = [item for item in plan.prefill if item.num_positions == 1]
    return [*several, *single, *plan.decode]


def _num_positions(item: Item) -> int:
    return 1 if isinstance(item, DecodeItem) else item.num_positions


def _start(item: Item) -> int:
    return item.position if isinstance(item, DecodeItem) else item.start


def _runs(values: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """(value, how many times in a row) of a sorted sequence."""
    return tuple((value, values.count(value)) for value in dict.fromkeys(values))

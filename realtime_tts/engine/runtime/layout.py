"""A step plan as rows: the row of each sequence and the values of the device's inputs. Free of torch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from realtime_tts.engine.core.request import DecodeItem, PrefillItem, StepPlan
from realtime_tts.engine.utterance import Utterance
from realtime_tts.model.adapted import NO_ADAPTER
from realtime_tts.model.sequence import Patches, Rows

Item = PrefillItem | DecodeItem
_NO_ROWS = Rows([], [], np.zeros((0, 1, 1), np.float32))
Values = dict[str, list[int] | list[float]]


@dataclasses.dataclass(frozen=True, slots=True)
class StepLayout:
    """Layout of one step. Only sequences with new positions have rows; those with several come first, as the attention
    requires. The streams that speak are grouped by their number of flow steps, the usual number first.

    last_rows: by request id, the row of the sequence's last new position. query_lens, context_lens: lengths of the
    same sequences. tables: slot and blocks of every request in the step.
    speaking: request ids; wants_float: for each, whether its audio is float32; speech: for each, its row in flow and
    VAE, where gaps may lie between the groups. flow_groups: (steps, first row, number of rows).
    following: for each request that speaks, its slot and its next position; None: its blocks have no room for one.
    advances: that position is computed in this step already, if the device allows it.
    num_rows, num_audio, num_speech: sizes of what is computed, without padding at the end.
    has_adapters: whether a request in the step has an adapter.
    starting: number of streams that begin. context_groups: their (context patches, number of streams).
    values: values of the fields of `StepInputs`. patches: for `StepInputs.send`; LocEnc encodes the first
    `num_features`.
    """

    last_rows: dict[str, int]
    query_lens: tuple[int, ...]
    context_lens: tuple[int, ...]
    tables: tuple[tuple[int, tuple[int, ...]], ...]
    speaking: tuple[str, ...]
    wants_float: tuple[bool, ...]
    speech: tuple[int, ...]
    flow_groups: tuple[tuple[int, int, int], ...]
    following: tuple[tuple[int, int | None], ...]
    advances: bool
    num_rows: int
    num_audio: int
    num_speech: int
    num_features: int
    has_adapters: bool
    starting: int
    context_groups: tuple[tuple[int, int], ...]
    values: Values
    patches: tuple[Patches, ...]


class LayoutRules(NamedTuple):
    """padded: returns the rows that the flow computes for a number of streams with the usual number of steps."""

    scratch_slot: int
    block_size: int
    usual_steps: int
    padded: Callable[[int], int]


def lay_out(
    plan: StepPlan,
    utterances: Mapping[str, Utterance],
    rules: LayoutRules,
    ahead: Mapping[int, tuple[str, int]],
    *,
    advances: bool = True,
) -> StepLayout:
    """Return the layout of a step. `utterances` holds every request of the plan. ahead: by slot, the request and the
    position that the LMs have computed already. advances: whether this step computes the next positions, too."""
    items = _ordered(plan)
    computed = [item for item in items if not _is_ahead(item, ahead)]
    ends = [_end(item) for item in computed]
    lens = [_num_positions(item) for item in computed]
    starts = [end - num for end, num in zip(ends, lens, strict=True)]
    inputs = [utterances[item.request_id].input for item in computed]
    rows = (
        Rows.of(list(zip(inputs, starts, ends, strict=True)))
        if computed
        else Rows([], [], np.zeros((0, 1, 1), np.float32))
    )
    last_rows = {item.request_id: last - 1 for item, last in zip(computed, itertools.accumulate(lens), strict=True)}

    speaking = [item for item in items if isinstance(item, DecodeItem) or item.is_last]
    steps = {item.request_id: utterances[item.request_id].steps for item in speaking}
    if any(value != rules.usual_steps for value in steps.values()):
        speaking.sort(key=lambda item: (steps[item.request_id] != rules.usual_steps, steps[item.request_id]))
    flow_groups, speech = _flow_groups([steps[item.request_id] for item in speaking], rules)
    starting = [item for item in speaking if isinstance(item, PrefillItem) and item.patch_index == 0]
    starting.sort(key=lambda item: len(utterances[item.request_id].input.context))
    beginnings = [utterances[item.request_id].input for item in starting]

    num_features = len(rows.features)
    fed_back = [item.slot for item in computed if isinstance(item, DecodeItem)]
    values: Values = {
        "token_ids": rows.token_ids,
        "positions": [position for start, end in zip(starts, ends, strict=True) for position in range(start, end)],
        "slots": [item.slot for item, num in zip(computed, lens, strict=True) for _ in range(num)],
        "audio_index": _inverse(rows.audio_index, len(rows.token_ids)),
        "patch_slots": [rules.scratch_slot] * num_features + fed_back,
        "starting_slots": [item.slot for item in starting],
    }
    values |= _spoken([item for item in speaking if item.request_id in last_rows], last_rows, utterances, rules)
    following = [_following(item, rules.block_size) for item in speaking]
    values |= _speech(speaking, speech, following, utterances, rules.scratch_slot)
    if has_adapters := any(utterances[item.request_id].adapter is not None for item in items):
        by_row = [
            index for item, num in zip(computed, lens, strict=True) for index in [_adapter(item, utterances)] * num
        ]
        values["row_adapters"] = by_row
        values["patch_adapters"] = [by_row[row] for row in rows.audio_index]
        values["speech_adapters"] = _spread([_adapter(item, utterances) for item in speaking], speech, NO_ADAPTER)
    return StepLayout(
        last_rows=last_rows,
        query_lens=tuple(lens),
        context_lens=tuple(ends),
        tables=tuple((item.slot, item.blocks) for item in items),
        speaking=tuple(item.request_id for item in speaking),
        wants_float=tuple(utterances[item.request_id].message.encoding == "f32le" for item in speaking),
        speech=tuple(speech),
        flow_groups=flow_groups,
        following=tuple((item.slot, position) for item, position in zip(speaking, following, strict=True)),
        advances=advances,
        num_rows=len(rows.token_ids),
        num_audio=num_features + len(fed_back),
        num_speech=speech[-1] + 1 if speech else 0,
        num_features=num_features,
        has_adapters=has_adapters,
        starting=len(starting),
        context_groups=_runs([len(source.context) for source in beginnings]),
        values=values,
        patches=(
            rows.features,
            *(source.prefix_patch[None] for source in beginnings),
            *(source.context for source in beginnings),
        ),
    )


def _spoken(
    speaking: Sequence[Item], last_rows: Mapping[str, int], utterances: Mapping[str, Utterance], rules: LayoutRules
) -> Values:
    """Return, for each stream that speaks and is computed, its row, its slot, and the range of its text."""
    inputs = [utterances[item.request_id].input for item in speaking]
    hidden_slots = [rules.scratch_slot] * (max(last_rows.values(), default=-1) + 1)
    for item in speaking:
        hidden_slots[last_rows[item.request_id]] = item.slot
    return {
        "hidden_slots": hidden_slots,
        "spoken_rows": [last_rows[item.request_id] for item in speaking],
        "spoken_slots": [item.slot for item in speaking],
        "spoken_starts": [source.spoken_start for source in inputs],
        "spoken_lens": [len(source.spoken_chars) for source in inputs],
    }


def _speech(
    speaking: Sequence[Item],
    places: list[int],
    following: Sequence[int | None],
    utterances: Mapping[str, Utterance],
    scratch_slot: int,
) -> Values:
    """Return, for each row of flow and VAE, its slot, noise, guidance and following position."""
    spoken = [utterances[item.request_id] for item in speaking]
    spread = partial(_spread, places=places)
    slots = [item.slot for item in speaking]
    has_next = [position is not None for position in following]
    return {
        "speech_slots": spread(slots, padding=scratch_slot),
        "noise_keys": spread([u.noise_key for u in spoken]),
        "patch_index": spread([item.patch_index for item in speaking]),
        "cfg": spread([u.cfg for u in spoken]),
        "next_positions": spread([position or 0 for position in following]),
        "next_slots": spread(
            [slot if room else scratch_slot for slot, room in zip(slots, has_next, strict=True)], padding=scratch_slot
        ),
        "next_starts": spread([u.input.spoken_start for u in spoken]),
        "next_lens": spread([len(u.input.spoken_chars) for u in spoken]),
    }


def _spread(values: Sequence[Any], places: Sequence[int], padding: Any = 0) -> list[Any]:
    """Return each value at its place, with `padding` in the gaps."""
    if not places or len(places) == places[-1] + 1:
        return list(values)
    spread_out = [padding] * (places[-1] + 1)
    for place, value in zip(places, values, strict=True):
        spread_out[place] = value
    return spread_out


def _adapter(item: Item, utterances: Mapping[str, Utterance]) -> int:
    """Return the adapter index for an item's rows."""
    adapter = utterances[item.request_id].adapter
    return NO_ADAPTER if adapter is None else adapter.index


def _is_ahead(item: Item, ahead: Mapping[int, tuple[str, int]]) -> bool:
    return isinstance(item, DecodeItem) and ahead.get(item.slot) == (item.request_id, item.position)


def _following(item: Item, block_size: int) -> int | None:
    """Return the position after an item's; None if its blocks end there, in which case its stream ends, too."""
    position = _end(item)
    return position if position < len(item.blocks) * block_size else None


def _flow_groups(steps: Sequence[int], rules: LayoutRules) -> tuple[tuple[tuple[int, int, int], ...], list[int]]:
    """Return the groups of sorted numbers of steps, and the row of each stream."""
    groups: list[tuple[int, int, int]] = []
    places: list[int] = []
    first = 0
    for value, count in _runs(steps):
        groups.append((value, first, count))
        places += range(first, first + count)
        first += rules.padded(count) if value == rules.usual_steps else count
    return tuple(groups), places


def _inverse(rows: Sequence[int], num_rows: int) -> list[int]:
    """Return, for each row, its index in `rows`; −1 if it is not in there."""
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


def _end(item: Item) -> int:
    return item.position + 1 if isinstance(item, DecodeItem) else item.start + item.num_positions


def _runs(values: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return (value, number of occurrences) for a sorted sequence."""
    return tuple((value, values.count(value)) for value in dict.fromkeys(values))

"""A step plan as rows: the row of each sequence, and the values of the device's inputs.

- request: a segment as the scheduler sees it; item (`StepItem`): its part in one step.
- segment (`EngineSegment`): the same for the engine, with its text, its model input and its patches.
- sequence: all positions of a request: the model input (`Sequence`), then the patches that are fed back.
- stream: a request that has a slot of the device; it speaks in a step that makes a patch for it.
- row: one new position of a sequence; a row of flow and VAE is one stream that speaks.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as AnySequence
from typing import NamedTuple

from realtime_tts.engine.core.request import StepItem, StepPlan
from realtime_tts.engine.runtime.columns import ROW, SPEECH, STREAM, StepColumns, columns_per, paddings
from realtime_tts.engine.segment import EngineSegment
from realtime_tts.model.sequence import Patches, Rows, Sequence

HostColumns = StepColumns[list[float]]  # only `cfg` has values other than integers


class SpeakingStream(NamedTuple):
    """A stream that gets a patch from a step.

    row: its row in flow and VAE. wants_float: whether its audio is float32.
    """

    request_id: str
    row: int
    wants_float: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StepLayout:
    """Layout of one step. Only sequences with new positions have rows; those with several come first, as the attention
    requires. The streams that speak are grouped by their number of flow steps, the usual number first.

    last_rows: by request id, the row of the sequence's last new position. query_lens, sequence_lens: numbers of new
    positions and of all positions up to the last new one, in the same order. tables: slot and blocks of every request
    in the step.
    streams: those that speak, by row. Padding rows may lie between the groups: the graph for the usual number of flow
    steps has a fixed number of rows, which may be more than its streams. flow_groups: (flow steps, first row, number of
    rows). has_adapters: whether a request in the step has an adapter.
    vae_groups: (patches to decode first, whether they were made in this stream, number of streams) of those that begin.
    columns: values of the fields of `StepInputs`. patches: for `StepInputs.send`; LocEnc encodes the first entry.
    """

    last_rows: dict[str, int]
    query_lens: tuple[int, ...]
    sequence_lens: tuple[int, ...]
    tables: tuple[tuple[int, tuple[int, ...]], ...]
    streams: tuple[SpeakingStream, ...]
    flow_groups: tuple[tuple[int, int, int], ...]
    has_adapters: bool
    vae_groups: tuple[tuple[int, bool, int], ...]
    columns: HostColumns
    patches: tuple[Patches, ...]

    @property
    def num_rows(self) -> int:
        """Number of new positions."""
        return len(self.columns.token_ids)

    @property
    def num_speech(self) -> int:
        """Number of rows of flow and VAE, with the padding rows between groups."""
        return len(self.columns.speech_slots)

    @property
    def num_starting(self) -> int:
        """Number of streams that begin."""
        return len(self.columns.starting_slots)


class LayoutRules:
    """Constants of a device's layouts. padded: returns the rows that the flow computes for a number of streams with the
    usual number of flow steps."""

    def __init__(self, scratch_slot: int, default_flow_steps: int, padded: Callable[[int], int]) -> None:
        self.scratch_slot, self.default_flow_steps, self.padded = scratch_slot, default_flow_steps, padded
        paddings_by_name = paddings(scratch_slot)
        self.speech_paddings = {name: paddings_by_name[name] for name in columns_per(SPEECH)}


def lay_out(plan: StepPlan, segments: Mapping[str, EngineSegment], rules: LayoutRules) -> StepLayout:
    """Return the layout of a step. `segments` holds every request of the plan."""
    columns: HostColumns = StepColumns(*([] for _ in columns_per(ROW, STREAM, SPEECH)))
    prefill = sorted(plan.prefill, key=lambda item: item.num_positions == 1)
    last_rows = _add_prefill(columns, prefill, segments, rules.scratch_slot)
    rows = Rows.of([(segments[item.request_id].input, item.start, item.end) for item in prefill])
    _add_audio(columns, rows, rules.scratch_slot)
    last_rows |= _add_decode(columns, plan.decode, segments)
    items = [*prefill, *plan.decode]
    groups: dict[int, list[tuple[StepItem, EngineSegment]]] = {}  # streams that speak, by their number of flow steps
    starting: list[tuple[int, bool, Sequence]] = []  # slot, whether it goes on from memory, input
    for item in items:
        if item.is_last:
            segment = segments[item.request_id]
            groups.setdefault(segment.flow_steps, []).append((item, segment))
            if item.begins:
                starting.append((item.slot, item.first_patch > 0, segment.input))
    streams: list[SpeakingStream] = []
    flow_groups: list[tuple[int, int, int]] = []
    first = 0
    for flow_steps, group in sorted(groups.items(), key=lambda pair: (pair[0] != rules.default_flow_steps, pair[0])):
        flow_groups.append((flow_steps, first, len(group)))
        for name, padding in rules.speech_paddings.items():
            column: list[float] = getattr(columns, name)
            column += [padding] * (first - len(column))
        streams += _add_group(columns, group)
        first += rules.padded(len(group)) if flow_steps == rules.default_flow_steps else len(group)
    starting.sort(key=lambda begun: (len(begun[2].context), begun[1]))
    columns.starting_slots += [slot for slot, _, _ in starting]
    contexts = Counter((len(source.context), goes_on) for _, goes_on, source in starting)  # in this order
    return StepLayout(
        last_rows=last_rows,
        query_lens=tuple(item.num_positions for item in items),
        sequence_lens=tuple(item.end for item in items),
        tables=tuple((item.slot, item.blocks) for item in items),
        streams=tuple(streams),
        flow_groups=tuple(flow_groups),
        has_adapters=any(segments[item.request_id].adapter is not None for item in items),
        vae_groups=tuple((*context, num_streams) for context, num_streams in contexts.items()),
        columns=columns,
        patches=(
            rows.features,
            *(source.prefix_patch[None] for _, _, source in starting),
            *(source.context for _, _, source in starting),
        ),
    )


def _add_prefill(
    columns: HostColumns, items: list[StepItem], segments: Mapping[str, EngineSegment], scratch_slot: int
) -> dict[str, int]:
    """Add the rows of inputs that are not all computed, without their tokens and patches. Return the last rows."""
    last_rows: dict[str, int] = {}
    for item in items:
        segment, num = segments[item.request_id], item.num_positions
        columns.positions += range(item.start, item.end)
        columns.slots += [item.slot] * num
        columns.row_adapters += [segment.adapter_index] * num
        columns.hidden_slots += [scratch_slot] * num
        last_rows[item.request_id] = last = len(columns.slots) - 1
        if item.is_last:
            columns.hidden_slots[last] = item.slot
            _add_spoken(columns, [last], [item.slot], [segment.input])
    return last_rows


def _add_audio(columns: HostColumns, rows: Rows, scratch_slot: int) -> None:
    """Add the tokens of inputs that are not all computed, and their patches: first those that the host sends, then
    those that are fed back."""
    num_features = len(rows.features)
    columns.token_ids += rows.token_ids
    columns.audio_index += [-1] * len(rows.token_ids)
    for index, row in enumerate(rows.audio_index):
        columns.audio_index[row] = index
        columns.patch_slots.append(scratch_slot if index < num_features else columns.slots[row])
        columns.patch_adapters.append(columns.row_adapters[row])


def _add_decode(
    columns: HostColumns, items: tuple[StepItem, ...], segments: Mapping[str, EngineSegment]
) -> dict[str, int]:
    """Add one row for each stream whose last patch is fed back. Return these rows."""
    first_row, first_patch = len(columns.slots), len(columns.patch_slots)
    rows, slots = range(first_row, first_row + len(items)), [item.slot for item in items]
    spoken = [segments[item.request_id] for item in items]
    adapters = [segment.adapter_index for segment in spoken]
    columns.token_ids += [0] * len(items)
    columns.positions += [item.start for item in items]
    columns.slots += slots
    columns.hidden_slots += slots
    columns.row_adapters += adapters
    columns.audio_index += range(first_patch, first_patch + len(items))
    columns.patch_slots += slots
    columns.patch_adapters += adapters
    _add_spoken(columns, rows, slots, [segment.input for segment in spoken])
    return {item.request_id: row for item, row in zip(items, rows, strict=True)}


def _add_spoken(columns: HostColumns, last_rows: AnySequence[int], slots: list[int], inputs: list[Sequence]) -> None:
    """Add streams that speak, whose places in the text are read at their last rows."""
    columns.spoken_rows += last_rows
    columns.spoken_slots += slots
    columns.spoken_starts += [source.spoken_start for source in inputs]
    columns.spoken_lens += [len(source.spoken_chars) for source in inputs]


def _add_group(columns: HostColumns, group: list[tuple[StepItem, EngineSegment]]) -> list[SpeakingStream]:
    """Add the rows of flow and VAE of streams with the same number of flow steps."""
    first = len(columns.speech_slots)
    items, segments = [item for item, _ in group], [segment for _, segment in group]
    columns.speech_slots += [item.slot for item in items]
    columns.noise_keys += [segment.noise_key for segment in segments]
    columns.patch_index += [item.patch_index for item in items]
    columns.cfg += [segment.cfg for segment in segments]
    columns.speech_adapters += [segment.adapter_index for segment in segments]
    return [
        SpeakingStream(item.request_id, row, segment.message.encoding == "f32le")
        for row, (item, segment) in enumerate(group, first)
    ]

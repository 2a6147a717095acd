"""The fields of a step's inputs, declared once for the host's lists and for the device's tensors."""

# ruff: noqa: RUF009 (`_per` returns a field, not a value)

from __future__ import annotations

import dataclasses
from typing import Any, Final, Generic, TypeVar

from realtime_tts.model.adapted import NO_ADAPTER

Column = TypeVar("Column")

# What a column has a value for: each row (new position of a sequence), some streams, or each row of flow and VAE.
ROW: Final = "row"
STREAM: Final = "stream"
SPEECH: Final = "speech"
_SCRATCH_SLOT: Final = None  # as padding: its number is that of the other slots


def _per(unit: str, padding: int | None = 0) -> Any:
    return dataclasses.field(metadata={"unit": unit, "padding": padding})


@dataclasses.dataclass
class StepColumns(Generic[Column]):
    """Values for T rows, A patches that LocEnc encodes (at most T), and S streams that speak.

    A step's values may be followed by padding, which is harmless: token 0 at position 0 of the scratch slot.

    token_ids, positions, slots [T]: for each row. audio_index [T]: index of its patch among A; −1: the row is text.
    hidden_slots [T]: slot that stores the row's hidden states for the flow; the scratch slot: not a last row.
    patch_slots [A]: slot whose last patch is encoded; the scratch slot: the patch is given by the host.
    row_adapters [T], patch_adapters [A], speech_adapters [S]: index of the adapter; −1: none.
    spoken_rows, spoken_starts, spoken_lens [S]: as in `TextSpans`, for the rows; spoken_slots: their streams' slots.
    starting_slots [S]: slots of the streams that begin.
    speech_slots, noise_keys, patch_index [S], cfg [S]: for each stream that speaks.
    """

    token_ids: Column = _per(ROW)
    positions: Column = _per(ROW)
    slots: Column = _per(ROW, _SCRATCH_SLOT)
    audio_index: Column = _per(ROW, -1)
    hidden_slots: Column = _per(ROW, _SCRATCH_SLOT)
    patch_slots: Column = _per(ROW, _SCRATCH_SLOT)
    row_adapters: Column = _per(ROW, NO_ADAPTER)
    patch_adapters: Column = _per(ROW, NO_ADAPTER)
    spoken_rows: Column = _per(STREAM)
    spoken_slots: Column = _per(STREAM, _SCRATCH_SLOT)
    spoken_starts: Column = _per(STREAM)
    spoken_lens: Column = _per(STREAM)
    starting_slots: Column = _per(STREAM, _SCRATCH_SLOT)
    speech_slots: Column = _per(SPEECH, _SCRATCH_SLOT)
    noise_keys: Column = _per(SPEECH)
    patch_index: Column = _per(SPEECH)
    cfg: Column = _per(SPEECH)
    speech_adapters: Column = _per(SPEECH, NO_ADAPTER)


def columns_per(*units: str) -> list[str]:
    """Return the names of the columns with one value for each of these units."""
    return [field.name for field in dataclasses.fields(StepColumns) if field.metadata["unit"] in units]


def paddings(scratch_slot: int) -> dict[str, int]:
    """Return the value of padded rows by column."""
    values = {field.name: field.metadata["padding"] for field in dataclasses.fields(StepColumns)}
    return {name: scratch_slot if value is _SCRATCH_SLOT else value for name, value in values.items()}

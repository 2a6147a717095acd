"""Provenance tags of a file: a statement that the speech is synthetic, and its source."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provenance:
    """Provenance of one synthetic speech. `voice`: the voice's id on the server that made it; "": unknown."""

    software: str
    model: str = ""
    voice: str = ""

    @property
    def statement(self) -> str:
        model = f" with the model {self.model}" if self.model else ""
        voice = f" in the voice {self.voice}" if self.voice else ""
        return f"Synthetic speech made by {self.software}{model}{voice}"

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags, as used for Ogg and FLAC comments and for ID3."""
        return {"comment": self.statement}

    @property
    def wav_chunk(self) -> bytes:
        """Return a ``LIST`` chunk of type ``INFO``. It goes before the samples, so that listeners of a stream receive
        it too."""
        entries = b"INFO" + _entry(b"ICMT", self.statement) + _entry(b"ISFT", self.software)
        return b"LIST" + struct.pack("<I", len(entries)) + entries


def _entry(name: bytes, text: str) -> bytes:
    value = text.encode("utf-8", "replace") + b"\0"
    return name + struct.pack("<I", len(value)) + value + b"\0" * (len(value) % 2)

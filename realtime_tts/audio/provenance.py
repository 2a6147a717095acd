"""What a file says of itself: that nobody has spoken it, and what has."""

from __future__ import annotations

import struct
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Provenance:
    """Of one synthetic speech. `voice`: its id, which means something to the server that made it; "": not known."""

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
        """As comments of Ogg and FLAC and as ID3 tags."""
        return {"comment": self.statement}

    @property
    def wav_chunk(self) -> bytes:
        """``LIST`` of the kind ``INFO``, to stand before the samples: also a stream's listener sees it."""
        entries = b"INFO" + _entry(b"ICMT", self.statement) + _entry(b"ISFT", self.software)
        return b"LIST" + struct.pack("<I", len(entries)) + entries


def _entry(name: bytes, text: str) -> bytes:
    value = text.encode("utf-8", "replace") + b"\0"
    return name + struct.pack("<I", len(value)) + value + b"\0" * (len(value) % 2)

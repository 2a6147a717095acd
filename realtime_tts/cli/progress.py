"""What `say` tells at the terminal while it speaks."""

from __future__ import annotations

import time

import click


class Progress:
    """One line at the terminal while it speaks, and a summary at the end; nothing else ever goes to stderr."""

    def __init__(self, shown: bool, summary: bool) -> None:
        self._shown, self._summary = shown, summary
        self._begun = time.monotonic()
        self._first_s: float | None = None
        self._audio_s = 0.0

    def note(self, text: str) -> None:
        if self._shown:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)

    def start(self) -> None:
        """Count from here."""
        self._begun = time.monotonic()

    def audio(self, duration_s: float) -> None:
        if self._first_s is None:
            self._first_s = time.monotonic() - self._begun
        self._audio_s += duration_s
        self.note(f"{self._audio_s:6.1f} s of speech")

    def done(self, output: str | None) -> None:
        if not self._summary:
            return
        self.note("")
        if self._first_s is None:
            click.echo("There was nothing to say in this text.", err=True)
            return
        took_s = time.monotonic() - self._begun
        target = f" → {output}" if output not in (None, "-") else ""
        click.echo(
            f"{self._audio_s:.1f} s of speech in {took_s:.1f} s, the first after {1000 * self._first_s:.0f} ms{target}",
            err=True,
        )

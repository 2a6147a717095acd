"""Limits of the silence in a text, and durations of named pauses."""

from __future__ import annotations

MAX_PAUSE_MS = 10_000.0
MAX_SILENCE_MS = 60_000.0  # of one context: a text full of pauses must not hold its place for hours
MAX_SENTENCE_SILENCE_MS = 600_000.0  # of one context, between its sentences
DEFAULT_PAUSE_MS = 500.0
# Clients of other services take an answer without audio for a failure: this much of it makes a frame in every format.
EMPTY_SPEECH_MS = 160.0
STRENGTHS_MS = {"none": 0.0, "x-weak": 100.0, "weak": 250.0, "medium": 500.0, "strong": 750.0, "x-strong": 1000.0}

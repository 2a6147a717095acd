"""Loading of what is needed to read a text, ahead of the first request, which would have to wait for it."""

from __future__ import annotations

import importlib

from realtime_tts.text.rules.table import compile_rules


def load_reader() -> None:
    """Load number words and compile the rules. Takes 80 ms of processor time: run it in a thread while the model is
    loaded."""
    importlib.import_module("num2words")  # for numbers
    compile_rules()

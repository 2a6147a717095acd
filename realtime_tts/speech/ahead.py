"""What is needed to read a text, made before there is one: the first caller would wait for it, and on a server all."""

from __future__ import annotations

import importlib

from realtime_tts.text.rules.table import compile_rules


def load_reader() -> None:
    """Takes 80 ms of a processor: in a thread, while the model is loaded."""
    importlib.import_module("num2words")  # for numbers
    compile_rules()

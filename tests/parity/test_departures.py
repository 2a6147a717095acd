"""docs/internals/model.md lists every departure from the reference with the test that holds it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_departure_names_a_test_that_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/internals/model.md").read_text(encoding="utf-8")))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)", source, re.MULTILINE)}
    assert len(named) > 20
    assert named <= defined

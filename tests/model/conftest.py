from __future__ import annotations

import sys
from pathlib import Path

# The small random checkpoints of the parity tests serve here too, and small adapters.
TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "parity"), str(TESTS / "support")]

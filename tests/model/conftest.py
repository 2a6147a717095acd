from __future__ import annotations

import sys
from pathlib import Path

# The small random checkpoints of the parity tests serve here too.
sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))

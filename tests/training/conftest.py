from __future__ import annotations

import pytest

from training.flite import Flite


@pytest.fixture(scope="session")
def flite() -> Flite:
    """The teacher, where Debian's libflite1 is installed (continuous integration installs it)."""
    try:
        return Flite()
    except OSError:
        pytest.skip("Flite's libraries are not installed")

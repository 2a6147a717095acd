"""Sessions under test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from session_config import session_config
from session_driver import Driver


@pytest.fixture
def make_driver() -> Callable[..., Driver]:
    def make(stall_s: float | None = None, **settings: Any) -> Driver:
        return Driver(session_config(model="starter", **settings), stall_s)

    return make


@pytest.fixture
def driver(make_driver: Callable[..., Driver]) -> Driver:
    return make_driver()

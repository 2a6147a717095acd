"""Sessions under test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from session_driver import Driver

from realtime_tts.session.settings import SessionConfig


@pytest.fixture
def make_driver() -> Callable[..., Driver]:
    def make(stall_s: float | None = None, **settings: Any) -> Driver:
        return Driver(SessionConfig(model="starter", **settings), stall_s)

    return make


@pytest.fixture
def driver(make_driver: Callable[..., Driver]) -> Driver:
    return make_driver()

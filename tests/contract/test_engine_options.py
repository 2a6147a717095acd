"""Options of an engine are checked where they are made, before a worker is started."""

from __future__ import annotations

import pytest

from realtime_tts.contract.engine_options import EngineOptions
from realtime_tts.errors import ConfigError


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:one", "mps", "CPU"])
def test_an_unknown_device_is_refused_with_the_choices(device: str) -> None:
    for good in ("auto", "cpu", "cuda", "cuda:7"):
        assert EngineOptions(device=good)
    with pytest.raises(ConfigError, match="give auto, cpu, cuda or cuda:N") as caught:
        EngineOptions(device=device)
    assert caught.value.field == "devices"


def test_a_number_of_flow_steps_out_of_bounds_is_refused() -> None:
    for steps in (0, 2, 64):
        assert EngineOptions(flow_steps=steps)
    for steps in (1, 65):
        with pytest.raises(ConfigError, match="2 to 64") as caught:
            EngineOptions(flow_steps=steps)
        assert caught.value.field == "flow_steps"

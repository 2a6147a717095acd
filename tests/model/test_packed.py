"""Linear layers with packed weights compute the same, and hold the weights once."""

from __future__ import annotations

import pytest
import torch
from random_checkpoints import CONFIGS
from torch import nn

from realtime_tts.model.config_file import parse_config
from realtime_tts.model.packed import PackedLinear, pack
from realtime_tts.model.voxcpm import VoxCPM

pytestmark = pytest.mark.skipif(
    not torch.backends.cpu.get_cpu_capability().startswith("AVX"), reason="needs a processor with AVX"
)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(0,), (1,), (2,), (37,), (2, 11), (2, 3, 4)])
def test_a_layer_computes_the_same(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(48, 80, bias)
    x = torch.randn(*shape, 96)[..., ::2]  # not contiguous
    with torch.inference_mode():
        torch.testing.assert_close(PackedLinear(linear)(x), linear(x), rtol=1e-5, atol=1e-5)


def test_a_model_keeps_its_weights_once() -> None:
    model = VoxCPM(parse_config(CONFIGS["voxcpm2"])).eval()
    linear = sum(isinstance(module, nn.Linear) for module in model.modules())
    before = sum(parameter.numel() for parameter in model.parameters())
    packed_values = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear))
    pack(model)
    pack(model)  # a second time changes nothing
    assert sum(isinstance(module, PackedLinear) for module in model.modules()) == linear
    assert sum(parameter.numel() for parameter in model.parameters()) == before - packed_values
    assert (model.dtype, model.stop_proj.weight.device.type) == (torch.float32, "cpu")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_stay_as_they_are(dtype: torch.dtype) -> None:
    layer = nn.Sequential(nn.Linear(4, 4)).to(dtype)
    pack(layer)
    assert type(layer[0]) is nn.Linear

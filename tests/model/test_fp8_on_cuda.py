"""The kernels and products of fp8 against float64, at odd shapes, twice for the same bits; then a flow with them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from realtime_tts.model.config import RopeConfig, TransformerConfig
from realtime_tts.model.flow_matching import FlowMatching
from realtime_tts.model.fp8 import Rows8, in_eight_bits
from realtime_tts.model.local_transformers import LocDiT

pytest.importorskip("triton", reason="needs triton")
if not torch.cuda.is_available():
    pytest.skip("needs CUDA", allow_module_level=True)

from realtime_tts.model.fused import FusedFlow, FusedStack
from realtime_tts.model.kernels.fp8_products import Fp8Product, missing_on
from realtime_tts.model.kernels.fp8_rows import rms_norm_fp8, rows_fp8, swiglu_fp8
from realtime_tts.model.kernels.gated_fp8 import GatedFp8Product, has_gated_fp8_product
from realtime_tts.model.kernels.products import choosing

MISSING = missing_on(torch.device("cuda", torch.cuda.current_device()))
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("cuda_context"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]
with warnings.catch_warnings():  # of what it imports
    warnings.simplefilter("ignore")
    HAS_GATED = has_gated_fp8_product(torch.empty(512, 128, dtype=torch.bfloat16, device="cuda"))
ROUNDING = 0.04  # of rows in eight bits, relative; half a unit of three bits at most


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


def draw(*shape: int, scale: float = 1.0) -> Tensor:
    """Fresh values in every run; a failure says which."""
    return (torch.randn(*shape, device="cuda") * scale).bfloat16()


def distance(ours: Tensor, expected: Tensor) -> float:
    return float((ours.double() - expected).norm() / expected.norm())


def check_rows(run: Callable[[], Rows8], expected: Tensor) -> None:
    first, again = run(), run()
    assert torch.equal(first.values.view(torch.uint8), again.values.view(torch.uint8))
    assert torch.equal(first.scales, again.scales)
    assert torch.allclose(first.scales.double() * 448, expected.abs().amax(dim=1), rtol=1e-3)
    assert distance(first.exact, expected) < ROUNDING, torch.initial_seed()


@pytest.mark.parametrize(("rows", "size"), [(1, 64), (7, 320), (301, 1024), (13, 2048)])
def test_rms_norm(rows: int, size: int) -> None:
    x, weight = draw(rows, size, scale=3.0), draw(size)
    exact = x.double()
    expected = exact * (exact.square().mean(1, keepdim=True) + 1e-5).rsqrt() * weight.double()
    check_rows(lambda: rms_norm_fp8(x, weight, 1e-5), expected)


@pytest.mark.parametrize(("rows", "size"), [(1, 80), (22, 4096), (301, 640)])
def test_swiglu(rows: int, size: int) -> None:
    x = draw(rows, 2 * size, scale=4.0)
    gate, up = x.double().chunk(2, dim=1)
    check_rows(lambda: swiglu_fp8(x), F.silu(gate) * up)


@pytest.mark.parametrize(("rows", "size"), [(1, 64), (7, 320), (301, 4096)])
def test_rows(rows: int, size: int) -> None:
    x = draw(rows, size, scale=4.0)
    check_rows(lambda: rows_fp8(x), x.double())


@pytest.mark.skipif(not HAS_GATED, reason="needs quack-kernels")
@pytest.mark.parametrize(("rows", "hidden", "size"), [(1409, 1024, 4096), (2817, 1024, 4096), (259, 320, 640)])
def test_the_gated_product(rows: int, hidden: int, size: int) -> None:
    x = in_eight_bits(draw(rows, hidden))
    x = x._replace(scales=x.scales * torch.rand_like(x.scales))
    weight = draw(2 * size, hidden, scale=hidden**-0.5) * (1 + torch.rand(2 * size, 1, device="cuda").bfloat16())
    gate, up = (x.exact.double() @ in_eight_bits(weight).exact.double().t()).chunk(2, dim=1)
    product = GatedFp8Product(weight)
    first, again = product(x), product(x)
    assert first.dtype == torch.bfloat16
    assert torch.equal(first, again)
    assert distance(first, F.silu(gate) * up) < 1e-2, torch.initial_seed()


def test_what_is_no_number_does_not_become_one() -> None:
    x, weight = draw(33, 2048), draw(2048)
    x[3, 7], x[5, 9], x[6] = float("nan"), float("inf"), 0.0
    for found in (rms_norm_fp8(x, weight, 1e-5).exact, swiglu_fp8(x).exact, rows_fp8(x).exact):
        assert found.isfinite().all(dim=1).logical_not().nonzero().view(-1).tolist() == [3, 5]
        assert not found[6].any()


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize(
    ("rows", "depth", "size"), [(1, 320, 640), (176, 4096, 1024), (1409, 64, 48), (705, 1024, 2560)]
)
def test_products(rows: int, depth: int, size: int, timed: bool) -> None:
    x, onto = in_eight_bits(draw(rows, depth)), draw(rows, size)
    x = x._replace(scales=x.scales * torch.rand_like(x.scales))
    weights = [draw(size, depth, scale=depth**-0.5) * (layer + 1) for layer in range(3)]
    product, before = Fp8Product(weights), onto.clone()
    with choosing() if timed else contextlib.nullcontext():
        product.of(x, 0)
        product.of(x, 0, onto)
    expected = x.exact.double() @ in_eight_bits(weights[2]).exact.double().t()
    for run, wanted in (
        (lambda: product.of(x, 2), expected),
        (lambda: product.of(x, 2, onto, 0.3), onto.double() + 0.3 * expected),
    ):
        first, again = run(), run()
        assert first.dtype == torch.bfloat16
        assert torch.equal(first, again)
        assert distance(first, wanted) < 1e-2, torch.initial_seed()
    assert torch.equal(onto, before)


def test_a_flow_with_products_of_eight_bits() -> None:
    """As far from float64 as such rounding leaves it, and for few streams as without."""
    config = TransformerConfig(3, 256, 512, 4, 2, 64, 1e-5, 1.0, RopeConfig(10000.0, (1.0,) * 32, 1.0, 64))
    dit = LocDiT(config, 32, separate_time=True).cuda().bfloat16().requires_grad_(False)
    flow = FlowMatching(dit, mean_mode=False)
    exact = copy.deepcopy(flow).double()
    streams = 100
    mu, prefix, noise = draw(streams, 2, 256), draw(streams, 4, 32).float(), draw(streams, 4, 32).float()
    cfg = 1 + 2 * torch.rand(streams, device="cuda")
    schedule = flow.schedule(6)

    def moved(solver: FlowMatching | FusedFlow, count: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        typed = dataclasses.replace(schedule, embeddings=schedule.embeddings.to(dtype))
        return solver.forward(mu[:count].to(dtype), prefix[:count], noise[:count], typed, cfg[:count]) - noise[:count]

    eight = FusedFlow(flow, FusedStack(dit.decoder, fp8=True))
    sixteen = FusedFlow(flow, FusedStack(dit.decoder))
    assert torch.equal(moved(eight, 5), moved(sixteen, 5))
    ours, expected = moved(eight, streams), moved(exact, streams, torch.float64).double()
    assert torch.equal(ours, moved(eight, streams))
    assert not torch.equal(ours, moved(sixteen, streams))
    assert distance(moved(sixteen, streams), expected) < 0.02
    assert distance(ours, expected) < 0.1

"""The model on a GPU: it agrees with the CPU, and a whole decode step is captured into one CUDA graph."""

from __future__ import annotations

import pytest
import torch
from voices import STARTER_DIRECTORY

from realtime_tts.model.attention import AttentionMetadata, KVCache, PagedAttention, SDPABackend
from realtime_tts.model.checkpoint import load_model
from realtime_tts.model.text_head import HeadProbe, TextSpans

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
    pytest.mark.usefixtures("cuda_context"),
]

NUM_STREAMS, NUM_STEPS, BLOCK_SIZE = 3, 6, 16


class DecodeStep:
    """Three streams of different ages; `run` advances each by one patch, all state on the device."""

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self.model = load_model(STARTER_DIRECTORY, device, dtype).model
        config = self.model.config
        self.kv = KVCache.allocate(config, 16, BLOCK_SIZE, device, dtype)
        context_lens, tables = [5, 20, 33], [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
        self.meta = AttentionMetadata.build([1] * NUM_STREAMS, context_lens, tables, BLOCK_SIZE, device)
        self.state = self.model.vae.new_state(4, device)
        self.slots = torch.tensor([2, 0, 3], device=device)
        self.cfg = torch.tensor([2.0, 1.5, 3.0], device=device)
        self.schedule = self.model.flow_schedule(6)
        generator = torch.Generator().manual_seed(0)
        shape = (NUM_STEPS, NUM_STREAMS, config.patch_size, config.latent_dim)
        self.noises = torch.randn(shape, generator=generator).to(device)
        self.noise = self.noises[0].clone()
        self.patch = torch.zeros_like(self.noise)
        spoken = ([0, 2, 1], [1, 4, 2], [3, 20, 9])
        self.spoken = TextSpans(*(torch.tensor(values, device=device) for values in spoken))
        self.kv.pool.copy_(torch.randn(self.kv.pool.shape, generator=torch.Generator().manual_seed(1)))
        self.readings = torch.zeros(NUM_STREAMS, 2, device=device)

    def run(self) -> torch.Tensor:
        model = self.model
        embeddings = model.embed_patches(self.patch)
        probe = HeadProbe(4, 4, self.spoken)
        hidden, residual = model.lm_forward(
            embeddings, None, PagedAttention(SDPABackend(), self.kv, self.meta, probe=probe)
        )
        self.readings.copy_(probe.readings)
        patch = model.flow(model.condition(hidden, residual), self.patch, self.noise, self.schedule, self.cfg)
        self.patch.copy_(patch)
        self.meta.positions.add_(1)
        return model.vae.decode_stream(patch, self.state, self.slots)

    def steps(self, run) -> torch.Tensor:
        """Audio of several steps [NUM_STEPS, streams, samples]; one slot only is written, which is enough here."""
        audio = []
        for noise in self.noises:
            self.noise.copy_(noise)
            audio.append(run().clone())
        return torch.stack(audio).float().cpu()

    def capture(self):
        """`run` as a graph replay, with the state it had before."""
        saved = [tensor.clone() for tensor in (*self.state.tensors, self.patch, self.meta.positions, self.kv.pool)]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self.run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            audio = self.run()
        for tensor, value in zip(
            (*self.state.tensors, self.patch, self.meta.positions, self.kv.pool), saved, strict=True
        ):
            tensor.copy_(value)

        def replay() -> torch.Tensor:
            graph.replay()
            return audio

        return replay


@pytest.fixture(autouse=True)
def exact_inference():
    allowed = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    with torch.inference_mode():
        yield
    torch.backends.cudnn.allow_tf32 = allowed


def test_the_gpu_computes_what_the_cpu_computes():
    cpu, gpu = DecodeStep(torch.float32, "cpu"), DecodeStep(torch.float32, "cuda")
    expected = cpu.steps(cpu.run)
    assert (gpu.steps(gpu.run) - expected).norm() / expected.norm() < 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_whole_step_replays_from_one_graph(dtype):
    eager, captured = DecodeStep(dtype, "cuda"), DecodeStep(dtype, "cuda")
    replay = captured.capture()
    expected = eager.steps(eager.run)
    assert expected.abs().max() > 0.01
    assert (captured.steps(replay) - expected).norm() / expected.norm() < 1e-3
    torch.testing.assert_close(captured.readings, eager.readings, atol=1e-2, rtol=1e-3)

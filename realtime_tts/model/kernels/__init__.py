"""Triton kernels of a step, each a function of tensors; the plain torch that they stand for is in `model` itself.

Only these modules import triton, and only `model.fused` imports them: without triton, or on a CPU, nothing needs them.
"""

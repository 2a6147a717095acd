"""Builds this package's CUDA sources with NVRTC for the current device, caches them on disk and launches the kernels.

NVRTC and these bindings come with torch's CUDA builds: neither nvcc nor a host compiler is necessary.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from realtime_tts.contract.files import cache_directory, write_whole

logger = logging.getLogger(__name__)

_DIRECTORY = Path(__file__).parent


def what_is_missing() -> str | None:
    """Return the reason why nothing can be built; None if no reason is known."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "the package cuda-bindings is not installed"
    return None


class CudaError(RuntimeError):
    """A source does not compile, or the driver does not accept the result."""


class Kernel:
    """One kernel, loaded on the device that was current at that time.

    Its source defines a block's requirements in `block_threads` and `shared_bytes`.
    """

    def __init__(self, binary: bytes, name: str) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._module = _checked(driver.cuModuleLoadData(binary))
        self._function = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
        self._threads, self._shared_bytes = self._constant("block_threads"), self._constant("shared_bytes")
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._function, limit, self._shared_bytes))

    def _constant(self, name: str) -> int:
        address, size = _checked(self._driver.cuModuleGetGlobal(self._module, name.encode()))
        value = ctypes.c_int(0)
        _checked(self._driver.cuMemcpyDtoH(ctypes.addressof(value), address, size))
        return value.value

    def launch(self, num_blocks: int, args: ctypes.Structure, *, together: bool = False) -> None:
        """Launch on torch's current stream.

        args: the kernel's only parameter, copied before this returns. together: all blocks are on the device at the
        same time, so that they may wait for each other.
        """
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(args))
        shape = num_blocks, 1, 1, self._threads, 1, 1, self._shared_bytes, torch.cuda.current_stream().cuda_stream
        if together:
            _checked(self._driver.cuLaunchCooperativeKernel(self._function, *shape, ctypes.addressof(pointers)))
        else:
            _checked(self._driver.cuLaunchKernel(self._function, *shape, ctypes.addressof(pointers), 0))


def load(source: str, name: str, defines: Mapping[str, int], device: torch.device) -> Kernel:
    """Return the kernel `name` of a source in this directory, built once per process, device and set of macros.

    Raises:
        CudaError: it does not compile, or the driver does not accept it.
    """
    major, minor = torch.cuda.get_device_capability(device)
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # the driver's calls below need torch's context
        return _load(source, name, tuple(sorted(defines.items())), f"sm_{major}{minor}a", torch.cuda.current_device())


@functools.cache
def _load(source: str, name: str, defines: tuple[tuple[str, int], ...], arch: str, device: int) -> Kernel:
    return Kernel(binary(source, dict(defines), arch), name)


def binary(source: str, defines: Mapping[str, int], arch: str) -> bytes:
    """Return a source compiled for an architecture ("sm_90a"), from the cache if it is there.

    Raises:
        CudaError: NVRTC cannot be used, or the source does not compile (with the compiler's messages).
    """
    try:
        from cuda.bindings import nvrtc

        version = _checked(nvrtc.nvrtcVersion())
    except (ImportError, OSError, RuntimeError) as error:  # the bindings exist, but not the library that they load
        raise CudaError(f"NVRTC cannot be used: {error}") from error
    text = (_DIRECTORY / source).read_bytes()
    options = [f"--gpu-architecture={arch}", "--std=c++17"]
    options += [f"--define-macro={name}={value}" for name, value in sorted(defines.items())]
    key = hashlib.sha256(repr((text, options, version)).encode()).hexdigest()[:32]
    path = cache_directory("kernels") / f"{Path(source).stem}-{arch}-{key}.cubin"
    if path.is_file():
        return path.read_bytes()
    built = _compile(nvrtc, text, source, options)
    _keep(path, built)
    return built


def _compile(nvrtc: Any, text: bytes, source: str, options: list[str]) -> bytes:
    program = _checked(nvrtc.nvrtcCreateProgram(text, source.encode(), 0, [], []))
    try:
        (failure,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if failure != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
            _checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise CudaError(f"{source} does not compile: {log.decode(errors='replace').strip(chr(0)).strip()}")
        made = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, made))
        return bytes(made)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _keep(path: Path, content: bytes) -> None:
    """Write a built kernel. Failures are logged and not raised."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        logger.warning("kernels are built anew at every start: %s", error)


def _checked(result: tuple[Any, ...]) -> Any:
    """Return a binding's results without its error code: (), one value, or several. Raises CudaError on an error."""
    error, *values = result
    if int(error) != 0:
        raise CudaError(f"CUDA: {error!r}")
    return values[0] if len(values) == 1 else tuple(values)

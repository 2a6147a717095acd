"""CUDA sources: built once, kept, built again when something of them changes. Without CUDA, unless NVRTC is there."""

from __future__ import annotations

import enum
import logging
import os
import sys
import types
from pathlib import Path

import pytest

from realtime_tts.contract.files import cache_directory
from realtime_tts.model.kernels.cuda import build
from realtime_tts.model.kernels.gated import keep_compiled


class Result(enum.IntEnum):
    NVRTC_SUCCESS = 0
    NVRTC_ERROR_COMPILATION = 6


class Compiler(types.ModuleType):
    """NVRTC as the bindings have it: what it makes of a source says with which options."""

    nvrtcResult = Result  # noqa: N815

    def __init__(self) -> None:
        super().__init__("nvrtc")
        self.num_built, self.num_open = 0, 0

    def nvrtcVersion(self):  # noqa: N802
        return Result.NVRTC_SUCCESS, 13, 0

    def nvrtcCreateProgram(self, text, name, num_headers, headers, names):  # noqa: N802
        self.num_open += 1
        return Result.NVRTC_SUCCESS, [text, b""]

    def nvrtcDestroyProgram(self, program):  # noqa: N802
        self.num_open -= 1
        return (Result.NVRTC_SUCCESS,)

    def nvrtcCompileProgram(self, program, count, options):  # noqa: N802
        self.num_built += 1
        assert count == len(options)
        if b"--define-macro=BROKEN=1" in options:
            program[1] = b"line 7: error\0"
            return (Result.NVRTC_ERROR_COMPILATION,)
        program[1] = b" ".join(options)
        return (Result.NVRTC_SUCCESS,)

    def nvrtcGetProgramLogSize(self, program):  # noqa: N802
        return Result.NVRTC_SUCCESS, len(program[1])

    nvrtcGetCUBINSize = nvrtcGetProgramLogSize  # noqa: N815

    def nvrtcGetCUBIN(self, program, buffer):  # noqa: N802
        buffer[:] = program[1]
        return (Result.NVRTC_SUCCESS,)

    nvrtcGetProgramLog = nvrtcGetCUBIN  # noqa: N815


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    made = Compiler()
    bindings = types.ModuleType("cuda.bindings")
    bindings.nvrtc = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return made


def test_what_was_built_is_kept(compiler: Compiler) -> None:
    first = build.binary("stack.cu", {"A": 1, "B": 2}, "sm_90a")
    assert b"--define-macro=A=1 --define-macro=B=2" in first
    assert b"sm_90a" in first
    assert build.binary("stack.cu", {"B": 2, "A": 1}, "sm_90a") == first
    assert (compiler.num_built, compiler.num_open) == (1, 0)


def test_other_macros_sources_and_devices_are_built_anew(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build.binary("stack.cu", {"A": 1}, "sm_90a")
    build.binary("stack.cu", {"A": 2}, "sm_90a")
    build.binary("stack.cu", {"A": 1}, "sm_100a")
    assert compiler.num_built == 3
    changed = (Path(build.__file__).parent / "stack.cu").read_text() + "\n"
    (tmp_path / "stack.cu").write_text(changed)
    monkeypatch.setattr(build, "_DIRECTORY", tmp_path)
    build.binary("stack.cu", {"A": 1}, "sm_90a")
    assert compiler.num_built == 4


def test_what_does_not_compile_says_why_and_is_not_kept(compiler: Compiler) -> None:
    for _ in range(2):
        with pytest.raises(build.CudaError, match=r"line 7: error$"):
            build.binary("stack.cu", {"BROKEN": 1}, "sm_90a")
    assert (compiler.num_built, compiler.num_open) == (2, 0)
    assert not list(cache_directory("kernels").glob("*"))


def test_without_a_place_to_keep_it_is_built_each_time(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert build.binary("stack.cu", {}, "sm_90a") == build.binary("stack.cu", {}, "sm_90a")
    assert compiler.num_built == 2
    assert "at every start" in caplog.text


def test_bindings_without_their_library_are_no_reason_to_stop(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unfound() -> None:
        raise RuntimeError("libnvrtc.so.13 is nowhere")

    monkeypatch.setattr(compiler, "nvrtcVersion", unfound)
    with pytest.raises(build.CudaError, match=r"NVRTC .* nowhere"):
        build.binary("stack.cu", {}, "sm_90a")


def test_an_error_of_the_driver_is_raised() -> None:
    with pytest.raises(build.CudaError, match="COMPILATION"):
        build._checked((Result.NVRTC_ERROR_COMPILATION, None))
    assert build._checked((Result.NVRTC_SUCCESS, 3)) == 3
    assert build._checked((Result.NVRTC_SUCCESS, 3, 4)) == (3, 4)


def test_the_stacks_source_compiles_for_hopper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shape = {"HIDDEN": 1024, "FFN": 1024, "HEADS": 8, "KV_HEADS": 1, "TOKENS": 1, "LATENT": 0}
    assert build.binary("stack.cu", {**shape, "LENGTH": 0}, "sm_90a")[:4] == b"\x7fELF"
    with pytest.raises(build.CudaError, match="shape"):
        build.binary("stack.cu", {**shape, "LENGTH": 17}, "sm_90a")


def test_the_patch_attentions_source_compiles_for_hopper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs NVRTC")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shape = {"HEADS": 8, "KV_HEADS": 2}
    assert build.binary("patch_attention.cu", {**shape, "LENGTH": 11}, "sm_90a")[:4] == b"\x7fELF"
    with pytest.raises(build.CudaError, match="shape"):
        build.binary("patch_attention.cu", {**shape, "LENGTH": 17}, "sm_90a")


def test_quack_keeps_what_it_compiles_beside_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a place that outlives the process's temporary files; not where there is none, nor against the environment."""
    names = ("QUACK_CACHE_DIR", "CUTE_DSL_CACHE_DIR")
    for name in names:
        monkeypatch.setenv(name, "")  # so that what is set here is taken back
        monkeypatch.delenv(name)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_compiled()
    assert not set(names) & set(os.environ)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(names[1], "elsewhere")
    keep_compiled()
    assert Path(os.environ[names[0]]).is_relative_to(cache_directory("kernels"))
    assert Path(os.environ[names[0]]).is_dir()
    assert os.environ[names[1]] == "elsewhere"

"""Files that other processes see whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from realtime_tts.contract.files import cache_directory, write_whole


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_and_is_its_users_alone(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")
    write_whole(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "no space left on device")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new", durable=True)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "file", b"new")


def test_the_cache_is_where_the_environment_says_or_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory("kernels") == tmp_path / "realtime-tts" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory("kernels") == tmp_path / ".cache" / "realtime-tts" / "kernels"

"""Previews on disk: bounded, gone with their voice, and no reason for anything to fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from realtime_tts.server.voices import previews as module
from realtime_tts.server.voices.previews import Previews


def test_a_preview_that_was_kept_is_there_for_the_next_process(tmp_path: Path) -> None:
    directory = tmp_path / "previews"
    first, second = Previews(directory), Previews(directory)
    assert first.load("voice-1") is None
    first.keep("voice-1", b"wav")
    assert [path.name for path in directory.iterdir()] == ["voice-1.wav"]
    assert oct((directory / "voice-1.wav").stat().st_mode)[-3:] == "600"
    assert (second.load("voice-1"), second.get("voice-1")) == (b"wav", None)
    second.put("voice-1", b"wav")
    second.forget("voice-1")
    assert (second.get("voice-1"), first.load("voice-1")) == (None, None)
    assert list(directory.iterdir()) == []
    second.forget("voice-1")


def test_the_least_recently_heard_previews_are_evicted_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("MAX_BYTES", "MAX_DISK_BYTES"):
        monkeypatch.setattr(module, limit, 20)
    previews = Previews(tmp_path)
    for age, name in ((30, "a"), (20, "b")):
        previews.keep(name, bytes(9))
        previews.put(name, bytes(9))
        os.utime(tmp_path / f"{name}.wav", (age, age))
    assert previews.load("a") == previews.get("a") == bytes(9)
    previews.keep("c", bytes(9))
    previews.put("c", bytes(9))
    assert {path.stem for path in tmp_path.iterdir()} == {"a", "c"}
    assert [name for name in "abc" if previews.get(name)] == ["a", "c"]


def test_previews_of_voices_that_are_gone_are_dropped_at_the_start(tmp_path: Path) -> None:
    previews = Previews(tmp_path)
    for name in ("voice-1", "voice-2"):
        previews.keep(name, b"wav")
    (tmp_path / ".voice-3.cut").write_bytes(b"half")
    previews.drop_others({"voice-2"})
    assert [path.name for path in tmp_path.iterdir()] == ["voice-2.wav"]


def test_a_disk_that_refuses_or_no_disk_at_all_is_no_fault(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    for previews in (Previews(blocked), Previews(None)):
        previews.keep("a", b"wav")
        previews.put("a", b"wav")
        previews.drop_others(())
        assert (previews.load("a"), previews.get("a")) == (None, b"wav")
        previews.forget("a")
        assert previews.get("a") is None

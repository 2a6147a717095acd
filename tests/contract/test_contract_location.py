"""Where the small files of a model lie, before anything is loaded."""

from __future__ import annotations

from pathlib import Path

from realtime_tts.contract.location import STARTER_VOICE, local_directory


def test_the_starter_voice_is_found_by_its_name_and_a_directory_by_its_path(tmp_path: Path) -> None:
    bundled = local_directory(STARTER_VOICE)
    assert bundled is not None
    assert (bundled / "config.json").exists()
    assert local_directory(str(tmp_path)) == tmp_path
    assert local_directory("owner/name") is None

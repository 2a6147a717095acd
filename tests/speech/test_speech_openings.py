"""The list of openings: its file, and the texts in which a live context sends one."""

from __future__ import annotations

from pathlib import Path

import pytest

from realtime_tts.contract import frames
from realtime_tts.errors import ConfigError
from realtime_tts.speech.defaults import SpeechDefaults
from realtime_tts.speech.openings import MAX_OPENINGS, plan_openings, read_openings

POLICY: dict[str, object] = {"default_voice": "slt", "voices": {"slt": {}}}
READY = frames.Ready("m", "cpu", "float32", "eager", 16_000, 2560, policy=POLICY)


def make_defaults(ready: frames.Ready = READY, mode: str = "live") -> SpeechDefaults:
    return SpeechDefaults(
        ready, voices=lambda tenant: ["slt"], language="en", mode=mode, stall_flush_s=1.0, draw_seed=lambda: 1,
        openings=True,
    )  # fmt: skip


def test_blank_lines_and_comments_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "openings.txt"
    path.write_text("# of our agents\n\nSure, let me check.\n  One moment.  \n", encoding="utf-8")
    assert read_openings(str(path)) == ["Sure, let me check.", "One moment."]


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"\xff", "cannot be read"), (b"Yes.\n" * (MAX_OPENINGS + 1), "at most"), (b"#" * (1 << 23), "more than")],
    ids=["not text", "too many", "too large"],
)
def test_a_file_that_is_no_list_is_an_error_of_the_setting(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "openings.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as caught:
        read_openings(str(path))
    assert caught.value.field == "openings"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_openings(str(tmp_path / "missing"))


def test_a_live_opening_is_what_a_context_sends_word_by_word() -> None:
    (opening,) = plan_openings(["Thank you, Dr. Smith. I will check that."], make_defaults())
    assert opening.texts[0] == "Thank you"
    assert opening.texts[-1] == "Thank you, Doctor Smith."
    for text, longer in zip(opening.texts, opening.texts[1:], strict=False):
        assert longer.startswith(text)
        assert len(longer) > len(text)
    assert (opening.voice, opening.seed, opening.cfg, opening.steps) == ("slt", 0, 2.0, 10)


def test_by_clauses_an_opening_is_one_text() -> None:
    (opening,) = plan_openings(["Sure, let me check that for you."], make_defaults(mode="clause"))
    assert opening.texts == ["Sure, let me check that for you."]


def test_a_line_that_cannot_be_spoken_has_no_texts() -> None:
    (opening,) = plan_openings(["[pause 300ms]"], make_defaults())
    assert opening.texts == []

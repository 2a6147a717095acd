"""What the pages point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from realtime_tts.config import settings_table

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("clients/*/README.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_to_one(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_the_settings_of_the_deploy_page_exist() -> None:
    page = (ROOT / "docs/operate/deploy.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \|", page)
    assert {"host", "api_key_file", "allowed_origins"} <= set(rows)
    assert set(rows) <= {row.name for row in settings_table("server")}


def test_the_deploy_page_names_every_shipped_file() -> None:
    page = (ROOT / "docs/operate/deploy.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted((ROOT / "deploy").iterdir()) if f"deploy/{path.name}" not in page] == []

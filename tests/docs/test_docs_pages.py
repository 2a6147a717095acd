"""Every page is in the site's navigation, and every link of a page leads to a file and a heading that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from settings_page import page

from realtime_tts.config import settings_table

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = ("clients/*/README.md", "agents/*/README.md", "training/README.md")
PAGES = sorted(page for part in ("*.md", "docs/**/*.md", *OUTSIDE) for page in ROOT.glob(part))
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def navigation(entries: list[object]) -> Iterator[str]:
    """Yield the paths of the navigation's pages, relative to `docs/`."""
    for entry in entries:
        for item in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(item, list):
                yield from navigation(item)
            else:
                yield str(item)


def sources_outside_docs() -> dict[str, str]:
    """Return the site's pages whose text is a file outside `docs/`, as its hook lists them."""
    hook = (ROOT / SITE["hooks"][0]).read_text(encoding="utf-8")
    listed = re.search(r"SOURCES = \{(.*?)\n\}", hook, re.DOTALL)
    assert listed is not None
    return dict(re.findall(r'"([^"]+)": "([^"]+)"', listed[1]))


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings and of its HTML elements with an id."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))
    titles = re.findall(r"(?m)^#+ +(.*?) *#*$", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
    anchors = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}
    return anchors | set(re.findall(r'id="([^"]+)"', text))


def test_the_navigation_has_every_page_once() -> None:
    outside = sources_outside_docs()
    named = list(navigation(SITE["nav"]))
    assert len(named) == len(set(named))
    assert set(named) == {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")} | set(
        outside
    )
    assert [source for source in outside.values() if not (ROOT / source).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    missing = []
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            missing.append(link)
    assert missing == []


def test_the_settings_of_the_deploy_page_exist() -> None:
    page = (ROOT / "docs/operate/deploy.md").read_text(encoding="utf-8")
    section = page[page.index("## Required settings") :]
    rows = re.findall(r"(?m)^\| `(\w+)` \|", section[: section.index("\n## ")])
    assert {"host", "api_key_file", "allowed_origins"} <= set(rows)
    assert set(rows) <= {row.name for row in settings_table()}


def test_the_page_of_settings_is_that_of_their_table() -> None:
    assert (ROOT / "docs/operate/settings.md").read_text(encoding="utf-8") == page(), (
        "run tests/support/settings_page.py"
    )


def test_the_deploy_page_names_every_shipped_file() -> None:
    page = (ROOT / "docs/operate/deploy.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted((ROOT / "deploy").iterdir()) if f"deploy/{path.name}" not in page] == []

"""MkDocs hook: pages from files outside `docs/`, and links from pages to such files."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    "index.md": "README.md",
    "guides/python-client.md": "clients/python/README.md",
    "guides/browser-client.md": "clients/browser/README.md",
    "guides/livekit.md": "agents/livekit-plugins-realtime-tts/README.md",
    "guides/pipecat.md": "agents/pipecat-realtime-tts/README.md",
    "internals/contributing.md": "CONTRIBUTING.md",
    "internals/training.md": "training/README.md",
    "changelog.md": "CHANGELOG.md",
}
PAGES = {source: page for page, source in SOURCES.items()}
LINK = re.compile(r"(?P<image>!?)\[(?P<label>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages whose source is outside `docs/`."""
    for page, source in SOURCES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page's text with each relative link resolved from its source file; other files' links become names."""
    uri = page.file.src_uri
    folder = os.path.dirname(SOURCES.get(uri, f"docs/{uri}"))

    def link(match: re.Match[str]) -> str:
        image, label, target, anchor = match["image"], match["label"], match["target"], match["anchor"] or ""
        path = os.path.normpath(os.path.join(folder, target))
        if "://" in target or not (ROOT / path).exists():
            return match[0]
        inside = PAGES.get(path) or (path[len("docs/") :] if path.startswith("docs/") else None)
        if inside is not None:
            return f"{image}[{label}]({os.path.relpath(inside, os.path.dirname(uri) or '.')}{anchor})"
        return label if path in label else f"{label} (`{path}`)"

    return LINK.sub(link, markdown)

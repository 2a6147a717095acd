"""The commands that pages show can be given: what they start is there and has the options that are named."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from realtime_tts.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/*/README.md")])
OUR_PACKAGES = ("realtime_tts", "realtime_tts_client")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*)")


def commands(page: Path) -> Iterator[str]:
    """Each line of a block with what its backslash joins, and each piece of code in a line, which may be wrapped."""
    text = page.read_text(encoding="utf-8")
    for block in re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```", text):
        yield from block.replace("\\\n", " ").splitlines()
    for piece in re.findall(r"`([^`]+)`", re.sub(r"(?ms)^ *```.*?^ *```", "", text)):
        yield " ".join(piece.split())


def options(command: str) -> set[str]:
    return set(OPTION.findall(re.split(r" #|[|;&]", command)[0]))


def source(module: str) -> str | None:
    """Return the code that may define options of what `python -m` starts: its own and its neighbours'; None: nothing
    can be started."""
    path = ROOT / module.replace(".", "/")
    entry = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    if not entry.exists():
        return None
    own = "".join(file.read_text(encoding="utf-8") for file in (path.glob("*.py") if path.is_dir() else [entry]))
    neighbours = {ROOT / f"{name.replace('.', '/')}.py" for name in re.findall(r"from (benchmarks[\w.]+) import", own)}
    return own + "".join(file.read_text(encoding="utf-8") for file in neighbours if file.exists())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_are_started_are_there_and_have_the_options(page: Path) -> None:
    wrong = []
    for command in commands(page):
        for module, rest in re.findall(r"python3? -m ((?:benchmarks|training)[\w.]*)(.*)", command):
            if (text := source(module)) is None:
                wrong.append(f"no {module}")
            else:
                wrong += [f"{module} has no {option}" for option in options(rest) if f'"{option}"' not in text]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_our_own_program_has_the_options(page: Path) -> None:
    wrong = []
    for command in commands(page):
        for words in re.findall(r"(?:^|[ /])realtime-tts ([a-z].*)", command):
            found: click.Command = cli
            names = iter(words.split())
            while isinstance(found, click.Group) and (name := next(names, None)) is not None:
                inner = found.get_command(click.Context(found), name)
                if inner is None:
                    break
                found = inner
            known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
            if found is not cli:
                wrong += [f"{found.name} has no {option}" for option in options(words) - known - {"--help"}]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_programs_import_names_that_exist(page: Path) -> None:
    missing = []
    for block in re.findall(r"(?ms)^ *```python\n(.*?)^ *```", page.read_text(encoding="utf-8")):
        for node in ast.walk(ast.parse(textwrap.dedent(block).replace("…", "..."))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OUR_PACKAGES:
                module = importlib.import_module(str(node.module))
                missing += [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)]
    assert missing == []

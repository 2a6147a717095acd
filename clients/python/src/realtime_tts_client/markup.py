"""SSML cut in the middle: the tags to open again before the rest. Pure."""

from __future__ import annotations

import re

_ROOTS = ("<speak", "<?xml")
_NO_ELEMENT = r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[?!][^>]*>"
_TAG = r"""<(?P<end>/?)(?P<name>[^\s<>/!?"'=]+)(?:"[^"]*"|'[^']*'|[^<>"'])*?(?P<empty>/?)>"""
_MARKUP = re.compile(f"{_NO_ELEMENT}|{_TAG}", re.DOTALL)


def is_ssml(text: str, text_type: str) -> bool:
    """Return whether the server treats the text as SSML. `text_type`: ``auto``, ``text`` or ``ssml``."""
    return text_type == "ssml" or (text_type == "auto" and text.lstrip().startswith(_ROOTS))


def open_tags(text: str) -> str:
    """Return the tags of the elements still open at the end of a truncated document, outermost first."""
    opened: list[tuple[str, str]] = []
    for found in _MARKUP.finditer(text):
        name = found["name"]
        if name is None or found["empty"]:
            continue
        if not found["end"]:
            opened.append((name, found[0]))
        elif opened and opened[-1][0] == name:
            opened.pop()
    return "".join(tag for _, tag in opened)

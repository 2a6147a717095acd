"""The page of all settings, made from their table.

`python tests/support/settings_page.py > docs/operate/settings.md`
"""

from __future__ import annotations

import itertools
import sys

from realtime_tts.config import Setting, settings_table

_BEGIN = """# Settings

Flags override the environment, which overrides the file that `--config` names. The environment variable of
`--max-queued` is `REALTIME_TTS_MAX_QUEUED`; its entry in the file is `max_queued` in the table `[server.limits]`.
"""


def page() -> str:
    """The text of the page."""
    parts = [_BEGIN]
    for section, rows in itertools.groupby(settings_table(), key=lambda row: row.section):
        parts.append(f"\n## [{section}]\n\n| flag | default | meaning |\n|---|---|---|\n")
        parts += [f"| `{row.flag}` | {_default(row)} | {row.help} |\n" for row in rows]
    return "".join(parts)


def _default(row: Setting) -> str:
    value = ",".join(row.default) if isinstance(row.default, tuple) else row.default
    return f"`{str(value).lower() if isinstance(value, bool) else value}`" if value != "" else ""


if __name__ == "__main__":
    sys.stdout.write(page())

"""Lexicons of a server: the common one and those of keys, read once from files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from realtime_tts.errors import BadLexicon, ConfigError
from realtime_tts.text.lexicon import Lexicon
from realtime_tts.text.lexicon_file import parse_lexicon

_MAX_BYTES = 4 * 1024 * 1024
_KEY_ID = re.compile("[0-9a-f]{12}")


def read_text(path: str | Path, field: str) -> str:
    """Return the text of a file that a setting names.

    Raises:
        ConfigError: the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"{path} has more than {_MAX_BYTES} bytes", field=field)
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", field=field) from error


def read_lexicon(path: str | Path) -> Lexicon:
    """Return the lexicon in a file. Raises ConfigError: as `read_text`; or the file holds no lexicon."""
    try:
        return parse_lexicon(read_text(path, "lexicon"))
    except BadLexicon as error:
        raise ConfigError(f"{path}: {error.message}", field="lexicon") from error


class Lexicons:
    """Lexicons by tenant; immutable.

    Args:
        common: lexicon for all tenants, as entries or the path of a file; empty for none.
        key_paths: path of a lexicon by key id; it comes before the common one.

    Raises:
        BadLexicon, ConfigError: an invalid entry; see `read_lexicon`; an invalid id.
    """

    def __init__(self, common: Mapping[str, str] | str | Path = "", key_paths: Iterable[tuple[str, str]] = ()) -> None:
        made = Lexicon(common.items()) if isinstance(common, Mapping) else read_lexicon(common) if common else None
        self._common = () if made is None else (made,)
        self._own: dict[str, Lexicon] = {}
        for key_id, key_path in key_paths:
            if not _KEY_ID.fullmatch(key_id):
                raise ConfigError(
                    "a key's lexicon is named by the first 12 digits of the key's hash", field="tenant_lexicons"
                )
            self._own[key_id] = read_lexicon(key_path)

    def of(self, tenant: str) -> tuple[Lexicon, ...]:
        """Return the lexicons of a tenant, in order of precedence."""
        own = self._own.get(tenant)
        return self._common if own is None else (own, *self._common)

"""The lexicons of a server: its own and those of keys, read once from files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from realtime_tts.errors import BadLexicon, ConfigError
from realtime_tts.text.lexicon import Entry, Lexicon
from realtime_tts.text.lexicon_file import parse_entries, parse_lexicon

_MAX_BYTES = 4 * 1024 * 1024
T = TypeVar("T")
_KEY_ID = re.compile("[0-9a-f]{12}")


def read_lexicon(path: str | Path) -> Lexicon:
    """Raises:
    ConfigError: the file cannot be read, is too large, or holds no lexicon.
    """
    return _read(path, parse_lexicon)


def read_entries(path: str | Path) -> list[Entry]:
    """What a client sends along of it; raises as `read_lexicon`."""
    return _read(path, parse_entries)


def _read(path: str | Path, parse: Callable[[str], T]) -> T:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"{path}: a lexicon has at most {_MAX_BYTES} bytes", field="lexicon")
        return parse(content.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8", field="lexicon") from error
    except OSError as error:
        raise ConfigError(f"the lexicon cannot be read: {error}", field="lexicon") from error
    except BadLexicon as error:
        raise ConfigError(f"{path}: {error.message}", field="lexicon") from error


class Lexicons:
    """By tenant; immutable.

    Args:
        common: everybody's, as entries or the path of a file; empty for none.
        key_paths: ids of keys, each with the path of its own, which comes before everybody's.

    Raises:
        BadLexicon, ConfigError: an entry that cannot be; see `read_lexicon`; an id that is none.
    """

    def __init__(self, common: Mapping[str, str] | str | Path = "", key_paths: Iterable[tuple[str, str]] = ()) -> None:
        made = Lexicon(common.items()) if isinstance(common, Mapping) else read_lexicon(common) if common else None
        self._common = () if made is None else (made,)
        self._own: dict[str, Lexicon] = {}
        for key_id, key_path in key_paths:
            if not _KEY_ID.fullmatch(key_id):
                raise ConfigError(
                    "a key's lexicon is named by the first 12 digits of the key's hash", field="key_lexicons"
                )
            self._own[key_id] = read_lexicon(key_path)

    def of(self, tenant: str) -> tuple[Lexicon, ...]:
        """Those that count for a tenant, the first before the next one."""
        own = self._own.get(tenant)
        return self._common if own is None else (own, *self._common)

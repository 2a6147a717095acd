"""Servers that keep their voices in one directory at the same time. Each one's voices are the others', too."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from realtime_tts.errors import ConfigError


class DirectoryUse:
    """Holds a directory of voices for servers that ask for the same consent, until it is closed or the process ends.

    Args:
        consent: the setting `voice_consent`. Without this check, a voice that one server takes without consent could be
            used through another server that requires it.

    Raises (at construction):
        ConfigError: a server with another setting uses the directory now.
    """

    def __init__(self, directory: Path, consent: str) -> None:
        self._file = os.open(directory / "in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no server uses it
                os.ftruncate(self._file, 0)
                os.pwrite(self._file, consent.encode(), 0)
            fcntl.flock(self._file, fcntl.LOCK_SH)
        except OSError:  # a file system without locks
            return
        found = os.pread(self._file, 64, 0).decode(errors="replace")
        if found != consent:
            self.close()
            raise ConfigError(
                f"a running server keeps its voices in {directory} with --voice-consent {found}, "
                f"this one has {consent}: give both the same, or this one another --voices-dir",
                field="voices_dir",
            )

    def close(self) -> None:
        os.close(self._file)

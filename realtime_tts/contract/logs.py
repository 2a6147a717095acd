"""Format of log records, the same in gateways and workers."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

Field = str | int | float | bool | None


class TextFormatter(logging.Formatter):
    """``12:30:01 info  session_opened session=s-1 key=…`` for people."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = "".join(f" {key}={_short(value)}" for key, value in getattr(record, "fields", {}).items())
        line = f"{time} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


class JSONFormatter(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_to_stderr(level: str, style: str) -> None:
    """Send all records of this process from `level` on to stderr, as text or JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _short(value: Field) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)

"""Log lines for people, or as JSON for machines; on stderr, one record each."""

import json
import logging
from datetime import UTC, datetime
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


def configure(level: str, form: str) -> None:
    """Send what Holdfast and the app log to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class TextLines(logging.Formatter):
    """`12:00:01.234 INFO 4711 job_end job=… status=succeeded`."""

    def __init__(self) -> None:
        super().__init__(
            "{asctime}.{msecs:03.0f} {levelname} {process} {message}", "%H:%M:%S", style="{"
        )


class JsonLines(logging.Formatter):
    """One JSON object per record; what `telling` attached is there under its own names."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)

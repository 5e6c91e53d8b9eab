"""Log lines for people, or as JSON for machines; on stderr, one record each."""

import json
import logging
import os
import queue
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


MOST_WAITING: Final = 10_000
LAST_LINES: Final = 1.0
"""How long the last lines may take to be written at the end, in seconds."""


def configure(level: str, form: str, *, unhurried: bool = False) -> None:
    """Send what Outlast and the app log to stderr; `unhurried`, without ever waiting for that."""
    handler: logging.Handler = logging.StreamHandler()
    if unhurried and sys.stderr is not None:
        handler = NonBlockingHandler(sys.stderr.fileno())
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # It says at every start where it found them, and nobody asked.
    logging.getLogger("botocore.credentials").setLevel(max(logging.WARNING, logging.root.level))


class NonBlockingHandler(logging.Handler):
    """Writes from a thread: leases must not lapse because nobody reads the log.

    While nobody does, so many lines wait; what comes then is left out, and how much is told.
    """

    def __init__(self, fd: int, *, most: int = MOST_WAITING) -> None:
        super().__init__()
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(most)
        self._left_out = 0
        self._thread = threading.Thread(target=self._write_all, name="outlast-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
            if self._left_out:
                line = f"{self._left_out} log lines were left out\n{line}"
            self._lines.put_nowait(line.encode(errors="backslashreplace"))
            self._left_out = 0
        except queue.Full:
            self._left_out += 1
        except Exception:  # noqa: BLE001 - as every handler of logging does
            self.handleError(record)

    def close(self) -> None:
        with suppress(queue.Full):
            self._lines.put(None, timeout=LAST_LINES)
            self._thread.join(LAST_LINES)
        super().close()

    def _write_all(self) -> None:
        while line := self._lines.get():
            with suppress(OSError):  # nobody will ever read it
                while line:
                    line = line[os.write(self._fd, line) :]


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

"""Logging setup: one record per line on stderr, as text or as JSON."""

import json
import logging
import os
import queue
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from outlast.core.printable import INDENT, printable_lines

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


MAX_QUEUED_LINES: Final = 10_000
"""How many lines may wait to be written before new ones are dropped."""

CLOSE_TIMEOUT_S: Final = 1.0
"""Seconds that `close` waits for queued lines to be written."""


def configure(level: str, form: str, *, non_blocking: bool = False) -> None:
    """Send the records of Outlast and of the app to stderr.

    Args:
        level: One of `LEVELS`.
        form: One of `FORMATS`.
        non_blocking: Write from a thread, so that a full pipe never blocks the caller.
    """
    handler: logging.Handler = logging.StreamHandler()
    if non_blocking and sys.stderr is not None:
        handler = NonBlockingHandler(sys.stderr.fileno())
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # botocore logs the requests, with the params of jobs, at DEBUG, and at INFO where it found its
    # credentials.
    logging.getLogger("botocore").setLevel(max(logging.WARNING, logging.root.level))


class NonBlockingHandler(logging.Handler):
    """Writes from a thread: a blocked log reader must not keep the worker from renewing leases.

    At most `most` lines wait to be written. Further lines are dropped and counted; the next
    line that is written reports their number.
    """

    def __init__(self, fd: int, *, most: int = MAX_QUEUED_LINES) -> None:
        super().__init__()
        self._fd = fd
        self._lines: queue.Queue[bytes | None] = queue.Queue(most)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="outlast-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; drop it if the queue is full."""
        try:
            line = self.format(record) + "\n"
            if self._dropped:
                line = f"log lines dropped count={self._dropped}\n{line}"
            self._lines.put_nowait(line.encode(errors="backslashreplace"))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1
        except Exception:  # noqa: BLE001 - the contract of logging.Handler.emit
            self.handleError(record)

    def close(self) -> None:
        """Write the queued lines, for at most `CLOSE_TIMEOUT_S`."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=CLOSE_TIMEOUT_S)
            self._thread.join(CLOSE_TIMEOUT_S)
        super().close()

    def _write_all(self) -> None:
        while line := self._lines.get():
            with suppress(OSError):  # the reader has closed the pipe
                while line:
                    line = line[os.write(self._fd, line) :]


class TextLines(logging.Formatter):
    """Formatter for text: `12:00:01.234 INFO 4711 job_end job=… status=succeeded`.

    The further lines of a record are indented, so a message cannot forge a record.
    """

    def __init__(self) -> None:
        super().__init__(
            "{asctime}.{msecs:03.0f} {levelname} {process} {message}", "%H:%M:%S", style="{"
        )

    def format(self, record: logging.LogRecord) -> str:
        """Return the record without control characters."""
        return printable_lines(super().format(record)).replace("\n", f"\n{INDENT}")


class JsonLines(logging.Formatter):
    """Formatter for JSON: one object per record; the fields of an event are keys of their own."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
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

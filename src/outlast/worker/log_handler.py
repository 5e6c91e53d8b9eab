"""The handler of `logging` that gives each record to the log of the run it was made in."""

import logging
from contextvars import ContextVar
from typing import Final

from outlast.core.run_log import Entry
from outlast.worker.run_log import RunLog

CURRENT_LOG: ContextVar[RunLog | None] = ContextVar("outlast_log", default=None)
"""The log of the run that this context belongs to."""

_TRACEBACKS: Final = logging.Formatter()
_MICROSECONDS: Final = 1_000_000


class RunLogHandler(logging.Handler):
    """Copies records to the log of their run. Everything else about them stays as it was."""

    def handle(self, record: logging.LogRecord) -> bool:
        """Copy a record to the log of the run that made it, if there is one. Never raises.

        Not under the handler's lock, which a slow `__str__` would hold.
        """
        try:
            run_log = CURRENT_LOG.get()
            if run_log is not None and record.levelno >= run_log.level:
                run_log.add(_entry(record))
            if len(logging.root.handlers) == 1:
                _print_as_without_handler(self, record)
        except Exception:  # noqa: BLE001, S110 - logging must not fail the run
            pass
        return True


HANDLER: Final = RunLogHandler()
"""The only handler of this kind; it is attached to the root logger while a worker runs."""


def attach() -> None:
    """Attach the handler to the root logger, also if a new configuration removed it."""
    if HANDLER not in logging.root.handlers:
        logging.root.addHandler(HANDLER)


def detach() -> None:
    """Remove the handler from the root logger."""
    logging.root.removeHandler(HANDLER)


def _entry(record: logging.LogRecord) -> Entry:
    at = int(record.created * _MICROSECONDS)
    return Entry(at, record.levelname, record.name, _text(record))


def _text(record: logging.LogRecord) -> str:
    """Return message and traceback; the record itself is not changed."""
    try:
        message = record.getMessage()
        if not record.exc_info and not record.stack_info:
            return message
        parts = [message]
        if record.exc_info:
            parts.append(record.exc_text or _TRACEBACKS.formatException(record.exc_info))
        if record.stack_info:
            parts.append(record.stack_info)
        return "\n".join(parts)
    except Exception as error:  # noqa: BLE001 - the arguments of a record are code of the user
        return f"(this record cannot be shown: formatting it raised {type(error).__name__})"


def _print_as_without_handler(own: logging.Handler, record: logging.LogRecord) -> None:
    """Print a warning of a program without handlers, which `logging` does only if none is found."""
    last = logging.lastResort
    if last is None or record.levelno < last.level or logging.root.handlers != [own]:
        return
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger is not logging.root:
        if logger.handlers:
            return
        logger = logger.parent
    last.handle(record)

"""How the commands of the examples end: with everything they started, and without a traceback."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Final, NoReturn

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
INTERRUPTED: Final = 128 + signal.SIGINT


@contextmanager
def clean_exit() -> Iterator[None]:
    """Run a command; SIGTERM, SIGHUP and Ctrl-C close its context managers and end it.

    A reader that is gone (`… | head -3`) ends it too, with exit code 0.
    """
    for each in STOP_SIGNALS:
        signal.signal(each, _stop)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        with _quiet_without_reader():
            yield
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def log_to(file: Path) -> None:
    """Write warnings of the worker to a file instead of between the lines of the command."""
    logging.basicConfig(filename=file, format="%(asctime)s %(levelname)s %(message)s")


@contextmanager
def _quiet_without_reader() -> Iterator[None]:
    try:
        yield
    except* BrokenPipeError:  # a task group raises it in an exception group
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stop(number: int, _: object) -> NoReturn:
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)  # a second one must not interrupt the end
    sys.exit(128 + number)

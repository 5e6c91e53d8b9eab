"""Whether the records that a run logs are kept, and from which level."""

import logging
from typing import Final

LogCapture = bool | str | None
"""A setting: False is off, True is on, a name such as "WARNING" is on from that level."""

LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
}
DEFAULT: Final = "INFO"
"""Level from which records are kept where no level is set."""


def check_log_capture(value: LogCapture) -> LogCapture:
    """Return a valid setting; ValueError otherwise. None leaves the choice to what is above."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value.upper() in LEVELS:
        return value.upper()
    raise ValueError(
        f"log_capture is {value!r:.60}; use True, False or a level: {', '.join(LEVELS)}"
    )


def capture_level(of_type: LogCapture, of_app: LogCapture, *, unasked: bool) -> int | None:
    """Return the level from which the records of a job type are kept; None if none are.

    `unasked`: records are kept though the type does not ask for it.
    """
    if of_type is False or (of_type is None and (of_app is False or not unasked)):
        return None
    names = (each for each in (of_type, of_app) if isinstance(each, str))
    return LEVELS[next(names, DEFAULT)]

"""Rate-limited log of a store outage."""

import logging
from typing import Final

from outlast.errors import OperatorError

LOG_FACTOR: Final = 10
"""The 1st, 10th, 100th … failure in a row is logged."""


class OutageLog:
    """Logs failures of one repeated operation: call `failed` or `recovered` after each attempt.

    Args:
        log: Logger of the messages.
        what: The operation, as in "cannot …": "renew leases".
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._kind: type[OperatorError] | None = None
        self._times = 0
        self._next = 1

    def failed(self, error: OperatorError) -> None:
        """Count a failure and log it if it is due; a failure of another kind is logged at once."""
        if type(error) is not self._kind:
            self._kind, self._times, self._next = type(error), 0, 1
        self._times += 1
        if self._times == self._next:
            self._next *= LOG_FACTOR
            self._log.warning("cannot %s; retrying failures=%d: %s", self._what, self._times, error)

    def recovered(self) -> None:
        """Log that the operation works again; no-op if it had not failed."""
        if self._times:
            self._log.info("can %s again", self._what)
            self._kind, self._times, self._next = None, 0, 1

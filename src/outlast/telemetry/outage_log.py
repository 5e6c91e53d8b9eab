"""Saying once, and then ever more rarely, that the store cannot be used; and when it can again."""

import logging
from typing import Final

from outlast.errors import OperatorError

RARER: Final = 10
"""The first failure is told, the tenth, the hundredth: an outage of an hour is no page of lines."""


class OutageLog:
    """One for each loop: `complaint.about(error)` when a step fails, `over()` when one does not."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._kind: type[OperatorError] | None = None
        self._times = 0
        self._next = 1

    def failed(self, error: OperatorError) -> None:
        """Another kind of failure is told at once."""
        if type(error) is not self._kind:
            self._kind, self._times, self._next = type(error), 0, 1
        self._times += 1
        if self._times == self._next:
            self._next *= RARER
            again = "" if self._times == 1 else f" ({self._times} times in a row)"
            self._log.warning("cannot %s, will try again%s: %s", self._what, again, error)

    def recovered(self) -> None:
        if self._times:
            self._log.info("can %s again", self._what)
            self._kind, self._times, self._next = None, 0, 1

"""The executor protocol."""

from collections.abc import Awaitable
from typing import Any, Protocol

from outlast.jobs.executor_choice import Stops
from outlast.worker.run_outcome import ActiveRun


class Executor(Protocol):
    """One way to run a handler."""

    @property
    def stops(self) -> Stops:
        """When a handler stops after a stop request."""
        ...

    def call(self, active: ActiveRun, params: dict[str, Any]) -> Awaitable[object]:
        """Call the handler; the awaitable returns its value or raises its error.

        The handler may start before the first await. While it runs, `active.stop` requests its
        stop.
        """
        ...

    async def close(self) -> None:
        """Stop running handlers where that is possible, and free all resources."""
        ...

    def close_now(self) -> None:
        """Free all resources without an event loop to wait on. Idempotent."""
        ...

"""What a worker asks of an executor."""

from collections.abc import Awaitable
from typing import Any, Protocol

from outlast.jobs.executor_choice import Stops
from outlast.worker.run_outcome import ActiveRun


class Executor(Protocol):
    """One way to run a handler."""

    @property
    def stops(self) -> Stops:
        """When a handler that is asked to stop does."""
        ...

    def call(self, active: ActiveRun, params: dict[str, Any]) -> Awaitable[object]:
        """Awaited: what the handler returns; raises what it raises. It may begin before that.

        While it runs, `active.stop` asks it to stop, in the way `stops` says.
        """
        ...

    async def close(self) -> None:
        """End whatever still runs, where that can be done, and let go of everything."""
        ...

    def close_now(self) -> None:
        """The same without waiting, for when nobody can wait any more. Twice is fine."""
        ...

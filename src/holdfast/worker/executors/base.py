"""What a worker asks of an executor."""

from typing import Any, Protocol

from holdfast.jobs.executing import Stops
from holdfast.worker.execute import Active


class Executor(Protocol):
    """One way to run a handler."""

    @property
    def stops(self) -> Stops:
        """When a handler that is asked to stop does."""
        ...

    async def call(self, active: Active, params: dict[str, Any]) -> object:
        """What the handler returns; raises what it raises.

        While it runs, `active.stop` asks it to stop, in the way `stops` says.
        """
        ...

    async def close(self) -> None:
        """End whatever still runs, where that can be done, and let go of everything."""
        ...

    def drop(self) -> None:
        """The same without waiting, for when nobody can wait any more. Twice is fine."""
        ...

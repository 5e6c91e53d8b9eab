"""The systems under measurement, one module each."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Protocol, cast

OURS = "outlast"
TREE = "outlast worker"
"""The same system as its command runs it: a supervisor and a child process."""

MODULES = {OURS: "ours", TREE: "tree", "pgqueuer": "queuer", "procrastinate": "deferrer"}
PEERS = ("pgqueuer", "procrastinate")


class Client(Protocol):
    """Enqueues; a job carries the time at which it was sent."""

    async def one(self, sent: float) -> None: ...

    async def bulk(self, jobs: int) -> None:
        """A thousand at a time, by the system's own call for many."""
        ...


class Side(Protocol):
    """Interface of each module."""

    IS_LEFT: str
    """SQL query: are there unfinished jobs?"""

    FINISH: str | None
    """SQL that ends all that waits, where draining it would take too long; None: drain it."""

    COMMAND: Sequence[str] | None
    """Command that starts a worker, if it is not `work` in a separate process."""

    def install(self, url: str) -> None: ...

    def work(self, url: str) -> None:
        """One worker, until it is ended; its handler calls `marks.hit`."""
        ...

    def client(self, url: str) -> AbstractAsyncContextManager[Client]: ...


def side(name: str) -> Side:
    return cast("Side", import_module(f"bench.pg.sides.{MODULES[name]}"))

"""Setup of the measurements: one server, and the sides that alternate on it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.pg.field import Field
from bench.progress import tell
from outlast.testing.servers.postgres import PostgresServer

SLOWER: Mapping[str, int] = {"procrastinate": 10}
"""Divisor of the number of jobs of a slow side; its rate is the same with more jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The server, the sides, and how often each is measured."""

    server: PostgresServer
    folder: Path
    sides: Sequence[str]
    rounds: int

    def turns(self, what: str) -> Iterator[str]:
        """Yield the sides alternately in each round, so that load changes affect all of them."""
        for number in range(1, self.rounds + 1):
            for side in self.sides:
                tell(f"{what}, round {number} of {self.rounds}, {side}")
                yield side
        tell()

    @contextmanager
    def field(self, side: str) -> Iterator[Field]:
        """A fresh database for that side."""
        field = Field(self.server, self.folder, side)
        try:
            yield field
        finally:
            field.close()

    @contextmanager
    def fields(self) -> Iterator[dict[str, Field]]:
        """One for each side, for measurements that come back to theirs."""
        with ExitStack() as stack:
            yield {side: stack.enter_context(self.field(side)) for side in self.sides}

    def none_yet(self) -> dict[str, list[float]]:
        return {side: [] for side in self.sides}


def share(side: str, jobs: int) -> int:
    """How many of them that side is given."""
    return max(1, jobs // SLOWER.get(side, 1))

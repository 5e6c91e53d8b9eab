"""Counts of a whole store at one moment: waiting, running and recently ended jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from outlast.core.state import State


class JobCounts(dict[tuple[str, State], int]):
    """Number of jobs by queue and state; those of `capped` are more, for not all were read."""

    capped: frozenset[tuple[str, State]] = frozenset()

    def text(self, queue: str, *states: State) -> str:
        """Return the sum of some states of a queue, such as `1,204` or `1,000,000+`."""
        is_capped = any((queue, state) in self.capped for state in states)
        jobs = sum(self.get((queue, state), 0) for state in states)
        return f"{jobs:,}{'+' if is_capped else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The waiting jobs of one queue, type and state."""

    queue: str
    type: str
    state: State
    jobs: int
    due: int  # how many of them are due now
    oldest: datetime  # earliest due time among them


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The running jobs of one queue and type."""

    queue: str
    type: str
    jobs: int
    lapsed: int  # how many of them have an expired lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One consistent snapshot; `ended` counts the ends of the last `span` by queue and state."""

    now: datetime
    span: timedelta
    backlog: Sequence[Backlog]
    running: Sequence[Running]
    ended: Mapping[tuple[str, State], int]

    @property
    def queues(self) -> list[str]:
        """Names of all queues in the overview, sorted."""
        waits = {row.queue for row in self.backlog} | {row.queue for row in self.running}
        return sorted(waits | {queue for queue, _ in self.ended})

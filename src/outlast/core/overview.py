"""How a whole store stands at one moment: what waits, what runs, what ended lately."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from outlast.core.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The waiting jobs of one queue, type and state."""

    queue: str
    type: str
    state: State
    jobs: int
    due: int  # of them, as of now
    oldest: datetime  # when the first of them was or will be due


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The running jobs of one queue and type."""

    queue: str
    type: str
    jobs: int
    lapsed: int  # of them, those whose lease is over


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """One consistent look. `ended` counts the ends of the last `span` by queue and state."""

    now: datetime
    span: timedelta
    backlog: Sequence[Backlog]
    running: Sequence[Running]
    ended: Mapping[tuple[str, State], int]

    @property
    def queues(self) -> list[str]:
        """Every queue that is named in it."""
        waits = {row.queue for row in self.backlog} | {row.queue for row in self.running}
        return sorted(waits | {queue for queue, _ in self.ended})

"""The workers of the protocol search: what each believes it holds, and what it has sent."""

from enum import StrEnum
from typing import NamedTuple

from holdfast.core.event import Event

from .lineage import Snapshot


class Mode(StrEnum):
    """How a worker is."""

    ALIVE = "alive"
    PAUSED = "paused"  # frozen, with all its beliefs; it may thaw long after its leases lapsed
    CRASHED = "crashed"  # gone for good; its supervisor knows what it held


class Phase(StrEnum):
    """How far a worker is with a job it took."""

    LOOKED = "looked"  # only in a seeded bug: about to take it
    RUNNING = "running"
    SENT = "sent"  # its write is under way and may arrive at any time, even after its death
    UNANSWERED = "unanswered"  # the write arrived, its answer did not
    STALE = "stale"
    LATE = "late"  # the supervisor has reported the death; the child's write is still under way


class Held(NamedTuple):
    """A lease as its worker remembers it: the job and its token are in the snapshot."""

    line: int
    snapshot: Snapshot
    phase: Phase = Phase.RUNNING
    event: Event | None = None  # what it sent

    @property
    def ticket(self) -> tuple[int, str, int]:
        return self.snapshot and (self.line, self.snapshot.id, self.snapshot.token)


class Worker(NamedTuple):
    """A child process; its supervisor speaks for it once it is dead."""

    mode: Mode = Mode.ALIVE
    held: tuple[Held, ...] = ()

    def takes(self, held: Held) -> "Worker":
        return self._replace(held=tuple(sorted((*self.held, held), key=repr)))

    def drops(self, held: Held) -> "Worker":
        return self._replace(held=tuple(other for other in self.held if other != held))

    def turns(self, held: Held, phase: Phase, event: Event | None = None) -> "Worker":
        return self.drops(held).takes(held._replace(phase=phase, event=event or held.event))

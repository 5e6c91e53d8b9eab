"""What a store holds of one job, and what it holds of none, as it stands there: raw, unjudged.

Words that a broken store may have got wrong are plain text here, and moments may be missing. What
was asked for and what came of it (params, results, errors) is left out: a page of dossiers stays
small, and nothing private is in it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outlast.core.ids import JobId, RunId


class StateTable(StrEnum):
    """The three places, of which a job stands in exactly one."""

    WAITING = "waiting"  # it is to be run
    OPEN = "open_runs"  # it runs
    END = "ends"  # it is over


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """A job's record in one of the three places.

    `is_like_its_job`: what it repeats of the job (queue, type, name, delivery, group) is the same.
    """

    where: StateTable
    state: str
    token: int
    failures: int
    losses: int
    at: datetime | None = None  # of an end
    run_id: RunId | None = None  # of an open run
    has_holder: bool = True  # an open run whose worker is on record
    is_like_its_job: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRun:
    """A run that is over."""

    token: int
    run_id: RunId
    status: str
    finished_at: datetime | None
    has_result: bool
    has_holder: bool = True  # its worker is on record


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedEvent:
    """An event, without its words."""

    id: int
    kind: str
    token: int
    at: datetime | None

    @property
    def row(self) -> str:
        return f"events id={self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessor:
    """The job that a retry follows. `id` None: it is gone.

    `chained`: the write that closed it brought this job about, and left an event of it then.
    """

    id: JobId | None
    root_id: JobId | None = None
    failures: int | None = None  # None: it has not ended
    losses: int | None = None
    chained: bool = False

    @property
    def has_ended(self) -> bool:
        return self.failures is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedReservation:
    """A reservation made for the job."""

    id: str
    queue: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAudit:
    """One job at one moment. Runs come by token, events and successors as they were stored.

    `root_id` is None where the root of its chain is gone; `group_id` is that of the group it is a
    member of, and None where there is none or where it is gone (`is_member` tells).
    """

    id: JobId
    seq: int
    delivery: str
    queue: str
    created_at: datetime | None
    params_are_json: bool
    places: tuple[StateRow, ...]
    runs: tuple[ClosedRun, ...]
    events: tuple[AuditedEvent, ...]
    root_id: JobId | None
    before: Predecessor | None
    successors: tuple[JobId, ...]
    reservations: tuple[AuditedReservation, ...] = ()
    is_member: bool = False
    group_id: str | None = None

    @property
    def end(self) -> StateRow | None:
        """Its end, if it has one."""
        return next((place for place in self.places if place.where is StateTable.END), None)

    def only(self, where: StateTable) -> StateRow | None:
        """Its place, if it stands there and nowhere else."""
        is_there = len(self.places) == 1 and self.places[0].where is where
        return self.places[0] if is_there else None

    def tells(self, kind: str) -> bool:
        """Whether an event of that kind is on record."""
        return any(event.kind == kind for event in self.events)

    @property
    def last_token(self) -> int:
        """Of its closed runs; 0 if it has none."""
        return max((run.token for run in self.runs), default=0)

    @property
    def row(self) -> str:
        return f"jobs seq={self.seq}"

    def place_row(self, place: StateRow) -> str:
        return f"{place.where} job={self.seq}"

    def run_row(self, token: int) -> str:
        return f"runs job={self.seq} token={token}"

    @property
    def open_rows(self) -> list[str]:
        return [self.place_row(place) for place in self.places if place.where is StateTable.OPEN]

    @property
    def last_rows(self) -> list[str]:
        """Its last closed run, if there is one."""
        return [self.run_row(run.token) for run in self.runs[-1:]]


class StrayKind(StrEnum):
    """What can be in a store and belong to nobody, or too often."""

    RUN = "run"  # a closed run whose job is gone
    EVENT = "event"  # an event whose job is gone
    PLACE = "place"  # one of the three places is taken by a job that is gone
    KEY = "key"  # an active key whose job is gone
    KEY_OF_ENDED = "key_of_ended"  # an active key whose chain has ended
    KEY_OF_LINK = "key_of_link"  # a key or slot of a job that is not the root of its chain
    SLOT = "slot"  # a job made for a slot that has no row, or is another's
    SCHEDULE = "schedule"  # a schedule that does not agree with what it is found by
    RESERVATION = "reservation"  # an active reservation whose job is gone
    RESERVED_TWICE = "reserved_twice"  # a queue with two active reservations
    OVERLAP = "overlap"  # two open runs of `once` jobs of one name
    OUT_OF_TURN = "out_of_turn"  # a sequential group with two members in play, or one too early
    STALLED = "stalled"  # a sealed group whose blocked members nothing will ever unblock


@dataclass(frozen=True, slots=True, kw_only=True)
class DanglingRecord:
    """One of them. `rows` say where it is, `about` what it is of: a key, a queue, a name."""

    kind: StrayKind
    rows: tuple[str, ...]
    about: str = ""
    job_id: JobId | None = None

"""Audit of one job: its records as stored, unjudged; and dangling records.

States and statuses are plain text, because a broken store may hold unknown ones, and times
may be missing. Params, results and errors are left out: pages stay small and hold no
private data.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outlast.core.ids import JobId, RunId


class StateTable(StrEnum):
    """The three state tables; a job is in exactly one."""

    WAITING = "waiting"  # it waits for a claim
    OPEN = "open_runs"  # it runs
    END = "ends"  # it has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """The row of a job in a state table.

    `is_like_its_job` is False if a field repeated from the job (queue, type, name, delivery,
    group) has another value.
    """

    where: StateTable
    state: str
    token: int
    failures: int
    losses: int
    at: datetime | None = None  # time of an end
    run_id: RunId | None = None  # id of an open run
    has_holder: bool = True  # False: an open run of an unknown worker
    is_like_its_job: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedRun:
    """A run that has ended."""

    token: int
    run_id: RunId
    status: str
    finished_at: datetime | None
    has_result: bool
    has_holder: bool = True  # False: its worker is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedEvent:
    """An event without its text."""

    id: int
    kind: str
    token: int
    at: datetime | None

    @property
    def row(self) -> str:
        """Name of its row in reports."""
        return f"events id={self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessor:
    """The job that a retry follows; `id` is None if it is missing.

    `chained` is True if the write that ended it also added this job and recorded an event.
    """

    id: JobId | None
    root_id: JobId | None = None
    failures: int | None = None  # None if it has not ended
    losses: int | None = None
    chained: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the predecessor has ended."""
        return self.failures is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedReservation:
    """A reservation for the job."""

    id: str
    queue: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAudit:
    """All records of one job at one moment; runs by token, events and successors as stored.

    `root_id` is None if the root of its chain is missing. `group_id` is None if the job is in no
    group, or if the group is missing; `is_member` distinguishes the two. `active_key` is the key
    that the job was added with, and `key_holder` the root of the chain that holds it.
    `missing_bodies` are rows of long texts that the job or its runs refer to. `missing_labels` are
    labels of its metadata without a row, `surplus_labels` rows that it does not demand.
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
    active_key: str | None = None
    key_holder: JobId | None = None
    missing_bodies: tuple[str, ...] = ()
    metadata_is_sound: bool = True
    missing_labels: tuple[str, ...] = ()
    surplus_labels: tuple[str, ...] = ()

    @property
    def end(self) -> StateRow | None:
        """Its end, if it has one."""
        return next((place for place in self.places if place.where is StateTable.END), None)

    def only(self, where: StateTable) -> StateRow | None:
        """Return its state row if it is the only one and in that table."""
        is_there = len(self.places) == 1 and self.places[0].where is where
        return self.places[0] if is_there else None

    def tells(self, kind: str) -> bool:
        """Return whether an event of that kind is recorded."""
        return any(event.kind == kind for event in self.events)

    @property
    def last_token(self) -> int:
        """Highest token of its ended runs; 0 if it has none."""
        return max((run.token for run in self.runs), default=0)

    @property
    def row(self) -> str:
        """Name of the job's row in reports."""
        return f"jobs seq={self.seq}"

    def place_row(self, place: StateRow) -> str:
        """Return the name of a state row in reports."""
        return f"{place.where} job={self.seq}"

    def run_row(self, token: int) -> str:
        """Return the name of a run in reports."""
        return f"runs job={self.seq} token={token}"

    @property
    def open_rows(self) -> list[str]:
        """Names of its open runs in reports."""
        return [self.place_row(place) for place in self.places if place.where is StateTable.OPEN]

    @property
    def last_rows(self) -> list[str]:
        """Name of its last ended run in reports, if there is one."""
        return [self.run_row(run.token) for run in self.runs[-1:]]


class DanglingKind(StrEnum):
    """Kinds of records that belong to nothing, or exist too often."""

    RUN = "run"  # an ended run whose job is missing
    EVENT = "event"  # an event whose job is missing
    PLACE = "place"  # a state row whose job is missing
    BODY = "body"  # a long text that no job or run refers to
    LABEL = "label"  # a label whose job is missing
    KEY = "key"  # an active key whose job is missing
    KEY_OF_ENDED = "key_of_ended"  # an active key whose chain has ended
    KEY_OF_LINK = "key_of_link"  # a key or slot of a job that is not the root of its chain
    SLOT = "slot"  # a job whose slot has no row, or is another job's
    SCHEDULE = "schedule"  # a schedule that differs from its index entries
    INDEX = "index"  # a missing index entry, or one without its record
    RESERVATION = "reservation"  # an active reservation whose job is missing
    RESERVED_TWICE = "reserved_twice"  # a queue with two active reservations
    OVERLAP = "overlap"  # two open runs of `once` jobs of one name
    OUT_OF_TURN = "out_of_turn"  # a sequential group with a member started before its turn
    INTENT = "intent"  # an operation that was written in part and cannot be completed
    QUARANTINED = "quarantined"  # a stored record that does not parse
    STALLED = "stalled"  # a sealed group whose blocked members nothing will unblock


@dataclass(frozen=True, slots=True, kw_only=True)
class DanglingRecord:
    """A dangling record; `rows` name it, `about` says which key, queue or name it concerns."""

    kind: DanglingKind
    rows: tuple[str, ...]
    about: str = ""
    job_id: JobId | None = None

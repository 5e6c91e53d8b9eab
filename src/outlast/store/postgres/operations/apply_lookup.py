"""Lock and load the jobs of changes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlast.core.decide import Change, Guard
from outlast.core.group import GroupMode, OnMemberFailure
from outlast.core.state import FINAL, State
from outlast.store.postgres.operations.groups import lock_groups
from outlast.store.postgres.operations.queues import lock_queues
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, Row
from outlast.store.postgres.uuids import is_uuid


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """The immutable columns of a job, and the settings of its queue and group."""

    job: str
    seq: int
    type: str
    name: str
    queue: str
    created_at: int
    member_group_id: str | None
    active: bool
    root: str
    root_seq: int
    in_position_queue: bool
    is_limited: bool
    is_reserved: bool
    mode: GroupMode | None
    on_failure: OnMemberFailure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedJob:
    """A job in the state that its change expects, with its row locked."""

    identity: JobIdentity
    token: int
    priority: int
    position: int
    available_at: int
    failures: int
    losses: int
    state: State
    run_id: str | None = None
    cancel: bool = False
    is_expired: bool = False
    has_successor: bool = False
    has_successor_in_group: bool = False

    @property
    def job(self) -> str:
        """The id of the job."""
        return self.identity.job

    @property
    def seq(self) -> int:
        """The sequence number of the job."""
        return self.identity.seq

    @property
    def queue(self) -> str:
        """The queue of the job."""
        return self.identity.queue

    @property
    def type(self) -> str:
        """The type of the job."""
        return self.identity.type

    @property
    def created_at(self) -> int:
        """When the job was stored, in microseconds."""
        return self.identity.created_at

    @property
    def member_group_id(self) -> str | None:
        """The group that the job is a member of."""
        return self.identity.member_group_id


async def lock_identities(
    work: PostgresUnitOfWork, changes: Iterable[Change]
) -> Mapping[str, JobIdentity]:
    """Load the jobs of changes by id and lock their queues and groups, before any job."""
    jobs = sorted({change.job_id for change in changes if is_uuid(change.job_id)})
    rows = await work.rows("apply.identities", jobs=jobs) if jobs else []
    known = {row[0]: JobIdentity(*row) for row in rows}
    meant = [(change, known[change.job_id]) for change in changes if change.job_id in known]
    await lock_queues(work, (it.queue for change, it in meant if _needs_queue_lock(change, it)))
    await lock_groups(
        work, (it.member_group_id for change, it in meant if it.member_group_id and may_end(change))
    )
    return known


async def find_locked(
    work: PostgresUnitOfWork, changes: Sequence[Change], known: Mapping[str, JobIdentity]
) -> list[LockedJob | None]:
    """Lock the row of each change's job; None if it is not in the state the change expects.

    No job may occur twice. Rows are locked by id: open runs, then waiting jobs, then ends.
    """
    found: dict[str, LockedJob] = {}
    for guards, lookup in _LOOKUPS:
        guarded = {c.job_id: c for c in changes if c.move.guard in guards and c.job_id in known}
        if guarded:
            found.update(await lookup(work, guarded, known))
    return [found.get(change.job_id) for change in changes]


def may_end(change: Change) -> bool:
    """Return whether the job may end by the change, or by a cancel request that precedes it."""
    return change.move.to in FINAL or change.move.yields_to_cancel


def moves_or_edits(change: Change) -> bool:
    """Return whether the change moves or edits a waiting job."""
    return change.edit is not None or change.place is not None


def changes_position(change: Change) -> bool:
    """Return whether the change assigns a position, on which later positions depend."""
    return change.move.guard is Guard.DETACHED or moves_or_edits(change)


def _needs_queue_lock(change: Change, identity: JobIdentity) -> bool:
    assigns_position = identity.in_position_queue and (
        change.successor is not None or changes_position(change)
    )
    return moves_or_edits(change) or assigns_position or (identity.is_reserved and may_end(change))


_Changes = Mapping[str, Change]
_Identities = Mapping[str, JobIdentity]


async def _lock_open(
    work: PostgresUnitOfWork, changes: _Changes, known: _Identities
) -> dict[str, LockedJob]:
    rows = await work.rows("apply.lock_open", jobs=sorted(changes), mono=work.mono)
    found = {}
    for job, *order, run_id, cancel, is_expired in rows:
        change = changes[job]
        is_meant = change.move.guard is Guard.OPEN or is_expired
        if order[0] == change.token and is_meant:
            facts = {"run_id": run_id, "cancel": cancel, "is_expired": is_expired}
            found[job] = _locked(known[job], order, State.RUNNING, **facts)
    return found


async def _lock_waiting(
    work: PostgresUnitOfWork, changes: _Changes, known: _Identities
) -> dict[str, LockedJob]:
    rows = await work.rows("apply.lock_waiting", jobs=sorted(changes))
    return {
        job: _locked(known[job], order, State(state))
        for job, *order, state in rows
        if order[0] == changes[job].token and _matches_state(changes[job], state)
    }


def _matches_state(change: Change, state: str) -> bool:
    return change.move.guard is not Guard.STATE or state == change.was


async def _lock_expired_reservations(
    work: PostgresUnitOfWork, changes: _Changes, known: _Identities
) -> dict[str, LockedJob]:
    found = await _lock_waiting(work, changes, known)
    expired = (
        await work.rows("apply.lock_expired_reservations", jobs=sorted(found), mono=work.mono)
        if found
        else []
    )
    return {job: found[job] for (job,) in expired}


async def _lock_ended(
    work: PostgresUnitOfWork, changes: _Changes, known: _Identities
) -> dict[str, LockedJob]:
    """Lock ended jobs: recovery marks a failed linked job dead, or adds its missing successor."""
    failed = sorted(job for job, change in changes.items() if change.was is State.FAILED)
    rows = await work.rows("apply.lock_ended", jobs=failed) if failed else []
    successors = await _successors_of(work, [row[0] for row in rows])
    return {
        job: _locked(known[job], order, State(state), **_successor_flags(successors, job))
        for job, *order, state in rows
        if order[0] == changes[job].token
        and state == changes[job].was
        and _is_repair(changes[job], job in successors)
    }


def _is_repair(change: Change, has_successor: bool) -> bool:
    if change.move.to is State.DEAD_LETTER:
        return True
    return change.move.to is State.FAILED and change.successor is not None and not has_successor


async def _lock_detached(
    work: PostgresUnitOfWork, changes: _Changes, known: _Identities
) -> dict[str, LockedJob]:
    """Lock jobs that are in no state table and have no run since the decision."""
    jobs = sorted(changes)
    await work.rows("apply.lock_jobs", jobs=jobs)
    rows = await work.rows("apply.detached", jobs=jobs)
    successors = await _successors_of(work, jobs)
    found = {}
    for job, token, run_id, position in rows:
        if token == changes[job].token:
            order = (token, 0, position, work.now, 0, 0)
            facts = {"run_id": run_id, **_successor_flags(successors, job)}
            found[job] = _locked(known[job], order, State.RUNNING, **facts)
    return found


async def _successors_of(work: PostgresUnitOfWork, jobs: Sequence[str]) -> dict[str, bool]:
    """Return, for each job with a successor, whether it is in the same group."""
    rows = await work.rows("apply.successors_of", jobs=list(jobs)) if jobs else []
    return dict(map(tuple, rows))


def _successor_flags(successors: Mapping[str, bool], job: str) -> dict[str, bool]:
    return {
        "has_successor": job in successors,
        "has_successor_in_group": successors.get(job, False),
    }


def _locked(identity: JobIdentity, order: Row, state: State, **facts: Any) -> LockedJob:
    names = ("token", "priority", "position", "available_at", "failures", "losses")
    return LockedJob(
        identity=identity, state=state, **dict(zip(names, order, strict=True)), **facts
    )


_LOOKUPS: Sequence[tuple[frozenset[Guard], Callable[..., Any]]] = (
    (frozenset({Guard.DETACHED}), _lock_detached),
    (frozenset({Guard.OPEN, Guard.LAPSED}), _lock_open),
    (frozenset({Guard.WAITING, Guard.STATE}), _lock_waiting),
    (frozenset({Guard.RESERVATION_EXPIRED}), _lock_expired_reservations),
    (frozenset({Guard.STATE}), _lock_ended),
)

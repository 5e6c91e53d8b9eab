"""Where the jobs of some changes stand, looked at under their locks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outlast.core.decide import Change, Guard
from outlast.core.group import GroupMode, OnMemberFailure
from outlast.core.state import FINAL, State
from outlast.store.postgres.unit_of_work import Row, UnitOfWork
from outlast.store.postgres.uuids import is_uuid
from outlast.store.postgres.verbs.group import lock_groups
from outlast.store.postgres.verbs.queue import lock_queues


@dataclass(frozen=True, slots=True)
class JobIdentity:
    """What of a job never changes, and what it has to do with others."""

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
    is_placed: bool  # its queue gives positions
    is_limited: bool
    is_reserved: bool
    mode: GroupMode | None
    on_failure: OnMemberFailure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedJob:
    """A job that stands as its change supposes, and whose row is locked."""

    subject: JobIdentity
    token: int
    priority: int
    position: int
    available_at: int
    failures: int
    losses: int
    state: State
    run_id: str | None = None
    cancel: bool = False
    is_lapsed: bool = False
    is_followed: bool = False  # it has a successor
    is_followed_in_group: bool = False

    @property
    def job(self) -> str:
        return self.subject.job

    @property
    def seq(self) -> int:
        return self.subject.seq

    @property
    def queue(self) -> str:
        return self.subject.queue

    @property
    def type(self) -> str:
        return self.subject.type

    @property
    def created_at(self) -> int:
        return self.subject.created_at

    @property
    def member_group_id(self) -> str | None:
        return self.subject.member_group_id


async def subjects(work: UnitOfWork, changes: Iterable[Change]) -> Mapping[str, JobIdentity]:
    """The jobs by their ids, with the locks taken that come before those of jobs."""
    jobs = sorted({change.job_id for change in changes if is_uuid(change.job_id)})
    rows = await work.rows("apply.identities", jobs=jobs) if jobs else []
    known = {row[0]: JobIdentity(*row) for row in rows}
    meant = [(change, known[change.job_id]) for change in changes if change.job_id in known]
    await lock_queues(work, (it.queue for change, it in meant if _needs_queue(change, it)))
    await lock_groups(
        work, (it.member_group_id for change, it in meant if it.member_group_id and may_end(change))
    )
    return known


async def find(
    work: UnitOfWork, changes: Sequence[Change], known: Mapping[str, JobIdentity]
) -> list[LockedJob | None]:
    """Each change's job where it stands, None where that is not what the change supposes.

    No job twice. Rows are locked in the order of their ids: open runs, waiting jobs, ends.
    """
    found: dict[str, LockedJob] = {}
    for guards, look in _LOOKS:
        asked = {c.job_id: c for c in changes if c.move.guard in guards and c.job_id in known}
        if asked:
            found.update(await look(work, asked, known))
    return [found.get(change.job_id) for change in changes]


def may_end(change: Change) -> bool:
    """Whether the job ends by it: as decided, or by a cancel request that comes first."""
    return change.move.to in FINAL or change.move.yields_to_cancel


def rearranges(change: Change) -> bool:
    return change.edit is not None or change.place is not None


def is_placed(change: Change) -> bool:
    """Whether it gives the job a place of its own, which the next one's depends on."""
    return change.move.guard is Guard.DETACHED or rearranges(change)


def _needs_queue(change: Change, subject: JobIdentity) -> bool:
    gives_place = subject.is_placed and (change.successor is not None or is_placed(change))
    return rearranges(change) or gives_place or (subject.is_reserved and may_end(change))


_Asked = Mapping[str, Change]
_Known = Mapping[str, JobIdentity]


async def _open(work: UnitOfWork, asked: _Asked, known: _Known) -> dict[str, LockedJob]:
    rows = await work.rows("apply.lock_open", jobs=sorted(asked), mono=work.mono)
    found = {}
    for job, *place, run_id, cancel, is_lapsed in rows:
        change = asked[job]
        is_meant = change.move.guard is Guard.OPEN or is_lapsed
        if place[0] == change.token and is_meant:
            facts = {"run_id": run_id, "cancel": cancel, "is_lapsed": is_lapsed}
            found[job] = _found(known[job], place, State.RUNNING, **facts)
    return found


async def _waiting(work: UnitOfWork, asked: _Asked, known: _Known) -> dict[str, LockedJob]:
    rows = await work.rows("apply.lock_waiting", jobs=sorted(asked))
    return {
        job: _found(known[job], place, State(state))
        for job, *place, state in rows
        if place[0] == asked[job].token and _matches_state(asked[job], state)
    }


def _matches_state(change: Change, state: str) -> bool:
    return change.move.guard is not Guard.STATE or state == change.was


async def _silent(work: UnitOfWork, asked: _Asked, known: _Known) -> dict[str, LockedJob]:
    found = await _waiting(work, asked, known)
    silent = (
        await work.rows("apply.lock_expired_reservations", jobs=sorted(found), mono=work.mono)
        if found
        else []
    )
    return {job: found[job] for (job,) in silent}


async def _ended(work: UnitOfWork, asked: _Asked, known: _Known) -> dict[str, LockedJob]:
    """A failed link of a chain may be given up, or get the successor it lacks."""
    failed = sorted(job for job, change in asked.items() if change.was is State.FAILED)
    rows = await work.rows("apply.lock_ended", jobs=failed) if failed else []
    followed = await _followed(work, [row[0] for row in rows])
    return {
        job: _found(known[job], place, State(state), **_following(followed, job))
        for job, *place, state in rows
        if place[0] == asked[job].token
        and state == asked[job].was
        and _is_repair(asked[job], job in followed)
    }


def _is_repair(change: Change, is_followed: bool) -> bool:
    if change.move.to is State.DEAD_LETTER:
        return True
    return change.move.to is State.FAILED and change.successor is not None and not is_followed


async def _adrift(work: UnitOfWork, asked: _Asked, known: _Known) -> dict[str, LockedJob]:
    """It stands nowhere, and no run came since the decision."""
    jobs = sorted(asked)
    await work.rows("apply.lock_jobs", jobs=jobs)
    rows = await work.rows("apply.detached", jobs=jobs)
    followed = await _followed(work, jobs)
    found = {}
    for job, token, run_id, position in rows:
        if token == asked[job].token:
            place = (token, 0, position, work.now, 0, 0)
            facts = {"run_id": run_id, **_following(followed, job)}
            found[job] = _found(known[job], place, State.RUNNING, **facts)
    return found


async def _followed(work: UnitOfWork, jobs: Sequence[str]) -> dict[str, bool]:
    """Of those that have a successor, whether it is of their group."""
    rows = await work.rows("apply.successors_of", jobs=list(jobs)) if jobs else []
    return dict(map(tuple, rows))


def _following(followed: Mapping[str, bool], job: str) -> dict[str, bool]:
    return {"is_followed": job in followed, "is_followed_in_group": followed.get(job, False)}


def _found(subject: JobIdentity, place: Row, state: State, **facts: Any) -> LockedJob:
    names = ("token", "priority", "position", "available_at", "failures", "losses")
    return LockedJob(subject=subject, state=state, **dict(zip(names, place, strict=True)), **facts)


_LOOKS: Sequence[tuple[frozenset[Guard], Callable[..., Any]]] = (
    (frozenset({Guard.DETACHED}), _adrift),
    (frozenset({Guard.OPEN, Guard.LAPSED}), _open),
    (frozenset({Guard.WAITING, Guard.STATE}), _waiting),
    (frozenset({Guard.RESERVATION_EXPIRED}), _silent),
    (frozenset({Guard.STATE}), _ended),
)

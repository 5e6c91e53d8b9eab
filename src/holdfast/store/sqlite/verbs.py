"""The writing verbs of the contract: what each one does inside a transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, groupby
from typing import Any, TypeVar

from holdfast.clock import micros
from holdfast.core.decide import SUCCESS, Change, Guard
from holdfast.core.event import Kind
from holdfast.core.job import NewJob
from holdfast.core.run import Claim, Holder, Lease
from holdfast.core.span import MICROSECOND
from holdfast.core.state import FINAL, WAITING, State
from holdfast.store.base import PROMOTED_AT_ONCE, Added, Queue, Renewal
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.rows import dumps
from holdfast.store.sqlite.writer import Work

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one claim asks for."""

    holder: Holder
    queue: str
    types: Sequence[str]
    limit: int
    prefetch: int
    lease: timedelta
    prefix: str


def add(work: Work, jobs: Sequence[NewJob]) -> list[Added]:
    """Plain neighbours go in together; whatever may meet a holder goes alone, in its turn."""
    added: list[Added] = []
    for together, group in groupby(jobs, key=lambda job: job.is_plain and not work.careful):
        neighbours = list(group)
        added += _insert(work, neighbours) if together else [_add_one(work, n) for n in neighbours]
    return added


def claim(work: Work, asked: Sequence[Wanted]) -> list[list[Claim]]:
    return [_claim(work, wanted) for wanted in asked]


def apply(work: Work, changes: Sequence[Change]) -> list[bool]:
    """In rounds, since two changes of one job must not share a statement."""
    if work.careful:
        return [_alone(work, lambda c=change: _apply(work, [c])) == [True] for change in changes]  # type: ignore[misc]
    answers: list[bool] = []
    for together in _rounds(changes):
        answers += _apply(work, together)
    return answers


def renew(work: Work, asked: Sequence[tuple[Lease, timedelta]]) -> list[Renewal]:
    """Neighbours that ask for the same span are renewed together."""
    renewals: list[Renewal] = []
    for span, group in groupby(asked, key=lambda item: item[1]):
        leases = dumps([(lease.job_id, lease.token) for lease, _ in group])
        work.run("lease.renew", leases=leases, until=work.mono + span // MICROSECOND)
        held = dict(json.loads(work.one("lease.renewed", leases=leases)))
        count = len(json.loads(leases))
        renewals += [Renewal(n in held, bool(held.get(n))) for n in range(count)]
    return renewals


def attach(work: Work, asked: Sequence[tuple[Lease, Sequence[str]]]) -> list[bool]:
    return [_attach(work, lease, artifacts) for lease, artifacts in asked]


def promote(work: Work, limits: Sequence[int]) -> list[int]:
    return [work.run("claim.promote", now=work.now, limit=limit).rowcount for limit in limits]


def prune(work: Work, asked: Sequence[tuple[timedelta, int]]) -> list[int]:
    return [_prune(work, older_than, limit) for older_than, limit in asked]


def set_queue(work: Work, queues: Sequence[Queue]) -> list[None]:
    for queue in queues:
        work.run("queue.set", name=queue.name, ordering=queue.ordering, gap=queue.gap)
    return [None] * len(queues)


def _insert(work: Work, jobs: Sequence[NewJob]) -> list[Added]:
    """Store jobs that nothing stands in the way of, those alike in one go."""
    for _, group in groupby(jobs, key=rows.alike):
        same = list(group)
        if len(same) == 1:
            _insert_one(work, same[0])
        else:
            _insert_alike(work, same)
    return [Added(job.id, created=True) for job in jobs]


def _insert_one(
    work: Work, job: NewJob, retry_of: int | None = None, root: int | None = None
) -> None:
    values = rows.new_job(job, work.now)
    values |= {"id": job.id, "params": job.params, "retry_of": retry_of, "root": root}
    rows.require_storable(values.values())
    values["job"] = work.run("add.job", **values).lastrowid
    work.run("add.wait", **values)
    work.queues.add(job.queue)


def _insert_alike(work: Work, jobs: Sequence[NewJob]) -> None:
    values = rows.new_job(jobs[0], work.now)
    rows.require_storable(values.values())
    values["jobs"] = dumps([(job.id, job.params) for job in jobs])
    last = work.run("add.jobs_alike", **values).lastrowid or 0
    values["first"] = last - len(jobs) + 1  # nobody else inserts meanwhile: they are consecutive
    work.run("add.wait_alike", **values)
    work.run("add.place", first=values["first"])
    work.queues.add(jobs[0].queue)


def _add_one(work: Work, job: NewJob) -> Added:
    added = _alone(work, lambda: _add_keyed(work, job))
    return added if isinstance(added, Added) else Added(job.id, created=False, refused=added)


def _add_keyed(work: Work, job: NewJob) -> Added:
    rows.require_storable([*chain(*_keys(job)), job.slot and job.slot.series])
    if work.one("add.known", id=job.id):
        return Added(job.id, created=False)
    holder = _holder(work, job)
    if holder is not None:
        return Added(holder, created=False)
    _insert_one(work, job, *_predecessor(work, job))
    _take_keys(work, job)
    return Added(job.id, created=True)


def _alone(work: Work, step: Callable[[], T]) -> T | str:
    """Do it under a savepoint of its own; why the database refused it, if it did."""
    work.run("item.save")
    try:
        done: T | str = step()
    except (sqlite3.IntegrityError, ValueError, OverflowError) as error:
        work.run("item.undo")
        done = _why(error)
    work.run("item.keep")
    return done


def _holder(work: Work, job: NewJob) -> Any:
    """Who has its slot, its key or its active key, asked in that order."""
    holder = None
    if job.slot is not None:
        at = micros(job.slot.at)
        holder = work.one("add.slot_holder", series=job.slot.series, at=at)
    for scope, key, bucket in _keys(job):
        holder = holder or work.one("add.key_holder", scope=scope, key=key, bucket=bucket)
    return holder


def _take_keys(work: Work, job: NewJob) -> None:
    if job.slot is not None:
        at = micros(job.slot.at)
        work.run("add.take_slot", series=job.slot.series, at=at, id=job.id)
    for scope, key, bucket in _keys(job):
        work.run("add.take_key", scope=scope, key=key, bucket=bucket, id=job.id)


def _keys(job: NewJob) -> Iterable[tuple[str, str, str]]:
    if job.key is not None:
        yield "key", job.key.key, job.key.bucket
    if job.active_key is not None:
        yield "active", job.active_key, ""


def _predecessor(work: Work, job: NewJob) -> tuple[int | None, int | None]:
    if job.retry_of is None:
        return None, None
    seq, root, trouble = work.run("add.predecessor", id=job.retry_of).fetchone()
    if trouble is not None:
        raise ValueError(trouble)
    return seq, root


def _claim(work: Work, wanted: Wanted) -> list[Claim]:
    holder = wanted.holder
    work.run("claim.promote", now=work.now, limit=PROMOTED_AT_ONCE)
    work.run("claim.clear")
    picked = work.run(
        "claim.pick",
        queue=wanted.queue,
        types=dumps(list(wanted.types)),
        limit=wanted.limit,
        prefetch=wanted.prefetch,
        now=work.now,
    )
    if picked.rowcount <= 0:
        return []
    who = {"instance": holder.instance_id, "boot": holder.boot_id}
    work.run("claim.worker", **who)
    until = work.mono + wanted.lease // MICROSECOND
    work.run("claim.open", now=work.now, until=until, prefix=wanted.prefix, **who)
    work.run("claim.leave")
    return [rows.claim(row) for row in json.loads(work.one("claim.claimed"))]


def _rounds(changes: Sequence[Change]) -> Iterable[Sequence[Change]]:
    """No job twice in one, and no successor beside others: its place depends on their order."""
    if all(change.move is SUCCESS for change in changes) and _distinct(changes):
        return [changes]
    together: list[list[Change]] = [[]]
    for change in changes:
        last = together[-1]
        if last and not (_alike(change, last[-1]) and _distinct([*last, change])):
            together.append([])
        together[-1].append(change)
    return together


def _alike(one: Change, other: Change) -> bool:
    return (one.successor is None) == (other.successor is None)


def _distinct(changes: Sequence[Change]) -> bool:
    return len({change.job_id for change in changes}) == len(changes)


def _apply(work: Work, changes: Sequence[Change]) -> list[bool]:
    if all(change.move is SUCCESS and not change.artifacts for change in changes):
        return _succeed(work, changes)
    return _apply_any(work, changes)


def _succeed(work: Work, changes: Sequence[Change]) -> list[bool]:
    """The routine path: runs that end well and leave nothing but a result."""
    work.run("finish.clear")
    encoded = dumps([(change.job_id, change.token, change.result) for change in changes])
    found = work.run("finish.load", changes=encoded).rowcount
    if found > 0:
        work.run("finish.close", now=work.now)
        work.run("finish.drop_open")
        work.run("finish.end", now=work.now)
        work.run("finish.free_keys")
        work.ended = True
    if found == len(changes):
        return [True] * found
    return _with_refused(work, changes)


def _with_refused(work: Work, changes: Sequence[Change]) -> list[bool]:
    """Some were stale: they go the long way, which refuses them and writes that down."""
    taken = set(json.loads(work.one("finish.answer")))
    late = [change for n, change in enumerate(changes) if n not in taken]
    _apply_any(work, late)
    return [n in taken for n in range(len(changes))]


def _apply_any(work: Work, changes: Sequence[Change]) -> list[bool]:
    moves = {change.move for change in changes}
    guards = {move.guard for move in moves}
    ends = {move.to for move in moves}
    work.run("apply.clear")
    work.run("apply.load", changes=dumps([rows.change_row(change) for change in changes]))
    if guards & {Guard.OPEN, Guard.LAPSED}:
        work.run("apply.check_open", mono=work.mono)
    if guards & {Guard.WAITING, Guard.STATE}:
        work.run("apply.check_waiting")
        work.run("apply.check_ended")
    if any(move.run for move in moves):
        work.run("apply.close", now=work.now)
        work.run("apply.drop_open")
    _keep_going(work, changes, moves)
    if ends & FINAL or any(move.yields for move in moves):
        _end(work, guards)
    accepted = json.loads(work.one("apply.answer"))
    if len(accepted) < len(changes) or any(move.kind for move in moves):
        work.run("apply.events", now=work.now)
    return _answers(work, changes, accepted)


def _keep_going(work: Work, changes: Sequence[Change], moves: Iterable[Any]) -> None:
    """What does not end: back to its place, on as a successor, marked, or moved along."""
    if any(move.run and move.to in WAITING for move in moves):
        work.run("apply.put_back", now=work.now)
    if any(change.successor for change in changes):
        written = work.run("apply.successors", now=work.now)
        first = (written.lastrowid or 0) - written.rowcount + 1
        if written.rowcount > 0:
            work.run("apply.queue_successors", now=work.now)
            work.run("add.place", first=first)
    if any(move.kind is Kind.CANCEL_REQUESTED for move in moves):
        work.run("apply.mark_cancel")
        work.cancelled = True
    if any(move.run is None and move.to in WAITING for move in moves):
        work.run("apply.move")


def _end(work: Work, guards: set[Guard]) -> None:
    if guards & {Guard.WAITING, Guard.STATE}:
        work.run("apply.drop_waiting")
        work.run("apply.bury")
    work.run("apply.end", now=work.now)
    work.run("apply.free_keys")
    work.ended = True


def _answers(work: Work, changes: Sequence[Change], accepted: list[int]) -> list[bool]:
    if len(accepted) == len(changes):
        answers = [True] * len(changes)
    else:
        taken = set(accepted)
        answers = [n in taken for n in range(len(changes))]
    if any(change.move.to in (State.QUEUED, State.RETRY_WAIT) for change in changes):
        work.queues.add("")  # somebody may have work again; which queue is not known here
    return answers


def _attach(work: Work, lease: Lease, artifacts: Sequence[str]) -> bool:
    values = {"id": lease.job_id, "token": lease.token, "artifacts": dumps(list(artifacts))}
    if work.run("lease.attach_open", **values).rowcount:
        return True
    return work.run("lease.attach_closed", **values).rowcount > 0


def _prune(work: Work, older_than: timedelta, limit: int) -> int:
    work.run("claim.clear")
    before = work.now - older_than // MICROSECOND
    if work.run("prune.pick", before=before, limit=limit).rowcount <= 0:
        return 0
    return work.run("prune.delete").rowcount


_REFUSALS = {
    "id_shape": "its id is not a UUID",
    "type_name": "its type is not a name",
    "job_name": "its name is not a name",
    "queue_name": "its queue is not a name",
    "series_name": "its slot's series is not a name",
    "known_delivery": "its delivery is not one a store can keep",
    "params_size": "its params are over 256 KiB",
    "params_json": "its params are not JSON",
    "attempts": "its max_attempts is out of bounds",
    "priority_range": "its priority is out of bounds",
    "key_size": "its key is empty or too long",
    "bucket_size": "its bucket is too long",
}


def _why(error: Exception) -> str:
    text = str(error)
    known = (why for name, why in _REFUSALS.items() if text.endswith(f": {name}"))
    return next(known, text)

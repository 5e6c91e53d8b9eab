"""Add jobs with their dedupe keys, active keys and slots."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from outlast.core.event import EventKind
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import check_key, check_name
from outlast.core.ordering import Ordering
from outlast.core.transition import check_dedupe_key, to_job, why_malformed, why_not_retried
from outlast.errors import InvalidArgument, PayloadTooLarge
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import DamagedValue, Key, StoredItem, Value
from outlast.store.keyvalue.operations import key_windows
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.outcomes import require_all, succeeded
from outlast.store.keyvalue.repositories import bodies, groups, queues, slots
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import JobRecord, is_expired
from outlast.store.keyvalue.repositories.queues import register_queue
from outlast.store.keyvalue.unit_of_work import Read, UnitOfWork

log = logging.getLogger("outlast.store")


class KeyValueAddOperations(KeyValueOperations):
    """Add jobs."""

    @requires_open_store
    async def add(self, context: StoreContext, new: Sequence[NewJob]) -> list[Added]:
        """Add jobs and return what became of each, in order.

        Plain jobs go in concurrent chunks. Jobs that compete for a key or a position go in the
        order given.
        """
        if not new:
            return []
        first = await context.numbers(len(new))
        for name in {job.queue for job in new if not why_malformed(job)}:
            await register_queue(context, name)
        ahead = await _read_ahead(context, new)
        in_turn = _in_turn(new, ahead)
        numbered = [(job, first + number) for number, job in enumerate(new)]
        outcomes = await run_in_chunks(
            context,
            numbered,
            partial(_add, context, {} if in_turn else ahead),
            records=5 + any(bodies.is_long(job.params) for job in new),
            is_alone=lambda pair: pair[0].id in in_turn,
            size=lambda pair: len(pair[0].params),
            refused=_too_large,
        )
        created = {each.id for each in succeeded(outcomes) if each.created}
        if created:
            context.notify(
                Notification(queues=frozenset(job.queue for job in new if job.id in created))
            )
        return require_all(outcomes)


async def _read_ahead(context: StoreContext, jobs: Sequence[NewJob]) -> Read:
    """Read in one request what several plain jobs need; of other jobs only their queues."""
    if len(jobs) == 1:
        return {}
    plain = all(job.is_plain and not job.member for job in jobs)
    keys = dict.fromkeys(key for job in jobs for key in (looked_at(job) if plain else _queue(job)))
    return dict(zip(keys, await context.engine.get(list(keys)), strict=True))


def _in_turn(jobs: Sequence[NewJob], ahead: Read) -> set[str]:
    """Return the ids of the jobs whose order matters: for a key, or for the next position."""
    if len(jobs) == 1:
        return set()
    placed = _placed([ahead[queues.key(job.queue)] for job in jobs if not why_malformed(job)])
    often = Counter(job.id for job in jobs)
    return {
        job.id
        for job in jobs
        if not job.is_plain or job.member or job.queue in placed or often[job.id] > 1
    }


async def placed_among(context: StoreContext, names: Collection[str]) -> set[str]:
    """Return those of `names` whose queues have explicit positions."""
    return _placed(await context.engine.get([queues.key(name) for name in names]))


def _placed(found: Sequence[StoredItem | None]) -> set[str]:
    there = [entry for entry in found if entry is not None and entry.damage is None]
    record = [queues.from_value(entry.value).queue for entry in there]
    return {queue.name for queue in record if queue.ordering is Ordering.POSITION}


async def _add(
    context: StoreContext, ahead: Read, jobs: Sequence[tuple[NewJob, int]]
) -> list[Added]:
    is_first = True

    async def work(unit: UnitOfWork) -> list[Added]:
        nonlocal is_first
        if is_first:  # a second attempt follows a conflict, and reads anew
            unit.take(ahead)
        is_first = False
        await unit.fetch([key for new, _ in jobs for key in looked_at(new)])
        return [await _put(unit, new, seq, context.now()) for new, seq in jobs]

    return await context.run_unit(work)


def _too_large(pair: tuple[NewJob, int], error: PayloadTooLarge) -> Added:
    return Added(pair[0].id, created=False, refused=str(error))


async def _put(unit: UnitOfWork, new: NewJob, seq: int, now: datetime) -> Added:
    record = await put(unit, new, seq, now)
    return record if isinstance(record, Added) else Added(new.id, created=True)


async def put(
    unit: UnitOfWork, new: NewJob, seq: int, now: datetime, *, reservation: int | None = None
) -> JobRecord | Added:
    """Write the job in the caller's unit of work; return its record, or why it was not added."""
    why = why_malformed(new)
    await unit.fetch(looked_at(new))
    if (damage := await _damaged(unit, new)) is not None:
        return Added(new.id, created=False, refused=damage)
    holder = await _holder(unit, new, now)
    if holder is not None:
        if new.retry_of is not None:  # its own key may name the root of its chain
            await unit.require_unchanged([key_layout.pointer(new.id)])
        return await key_windows.answer(unit, new, holder, now)
    before = None if new.retry_of is None else await job_repository.load(unit, new.retry_of)
    why = why or _why_not_retried(new, before) or await groups.why_refused(unit, new)
    if why is not None:
        # An earlier attempt of this add may have retried that job or completed that group.
        wanted = [key_layout.pointer(new.id), *_unique(new)]
        await unit.require_unchanged(wanted)
        return Added(new.id, created=False, refused=why)
    try:
        return await _keep(unit, new, seq, now, before, reservation)
    except OverflowError:
        return Added(new.id, created=False, refused="the job would be due beyond the year 9999")


def looked_at(new: NewJob) -> list[Key]:
    """Return all keys that `put` reads, to fetch them together with others."""
    ids = [new.id] if new.retry_of is None else [new.id, new.retry_of]
    return [*_queue(new), *(key_layout.pointer(i) for i in ids), *_unique(new)]


def _unique(new: NewJob) -> list[Key]:
    """Return the keys of all records that say whether its keys and slot are taken."""
    window = key_windows.place_of(new)
    return [*(key for key, _ in _claims(new)), *([] if window is None else [window])]


def _queue(new: NewJob) -> list[Key]:
    return [] if why_malformed(new) else [queues.key(new.queue)]


def _claims(new: NewJob) -> list[tuple[Key, str]]:
    """Return the unique keys that the job needs, each with the field that names its holder.

    Leaves out malformed keys. A slot answered without a job names no holder.
    """
    wanted: list[tuple[Key, str]] = []
    slot, active = new.slot, new.active_key
    if slot is not None and _is_fine(lambda: check_name(slot.series, what="series")):
        wanted.append((key_layout.slot_key(slot), "job_id"))
    if new.key is not None and _is_fine(lambda: check_dedupe_key(new)):
        wanted.append((key_layout.dedupe_key(new.key), "job_id"))
    if active is not None and _is_fine(lambda: check_key(active, what="active_key")):
        wanted.append((key_layout.active_key(active), "root_id"))
    return wanted


def _is_fine(check: Callable[[], object]) -> bool:
    try:
        check()
    except InvalidArgument:
        return False
    return True


async def _damaged(unit: UnitOfWork, new: NewJob) -> str | None:
    """Return why a key of the job cannot be judged: its record is damaged."""
    for key in (key_layout.pointer(new.id), *_unique(new)):
        value = await unit.get(key)
        if isinstance(value, DamagedValue):
            return str(value)
    return None


async def _holder(unit: UnitOfWork, new: NewJob, now: datetime) -> JobId | None:
    if await unit.get(key_layout.pointer(new.id)) is not None:
        return new.id
    for key, name in _claims(new):
        value = await unit.get(key)
        if value is not None and name in value and await _is_held(unit, value, now):
            return JobId(value[name])
    return await key_windows.holder_of(unit, new, now)


async def _is_held(unit: UnitOfWork, value: Value, now: datetime) -> bool:
    """Return False for a dedupe record whose job is gone without a tombstone: it is overwritten."""
    if "job_pk" not in value or value.get("purged"):
        return not is_expired(value, now)
    if await job_repository.load(unit, value["job_id"]) is not None:
        return True
    if await job_repository.damage(unit, value["job_id"]) is not None:
        return True  # its job is quarantined, not gone
    log.warning("dedupe record points at a missing job and is overwritten job=%s", value["job_id"])
    if await unit.get(key_layout.pointer(value["job_id"])) is not None:
        unit.delete(key_layout.pointer(value["job_id"]))
    return False


def _why_not_retried(new: NewJob, before: JobRecord | None) -> str | None:
    if before is None or before.is_marked:
        return why_not_retried(new, None, None)
    return why_not_retried(new, before.job, before.successor)


async def _keep(
    unit: UnitOfWork,
    new: NewJob,
    seq: int,
    now: datetime,
    before: JobRecord | None,
    reservation: int | None,
) -> JobRecord:
    position = await queues.new_position(unit, new.queue, new.priority)
    root_id = None if before is None else before.job.root_id
    job = to_job(new, seq=seq, position=position, now=now, root_id=root_id)
    record = JobRecord(
        job=job,
        root_seq=seq if before is None else before.root_seq,
        key=new.key,
        active_key=new.active_key,
        series=new.slot.series if new.slot else None,
        member=new.group_id if new.member else None,
        reservation=reservation,
    )
    job_repository.save(unit, None, record)
    await _take(unit, new, job)
    if new.member:
        await groups.enter(unit, new.group_id or "")
    if before is not None:
        await _follow(unit, before, job)
    return record


async def _take(unit: UnitOfWork, new: NewJob, job: Job) -> None:
    if new.slot is not None:
        await slots.take_by_hand(unit, new.slot, job)
    if new.active_key is not None:
        held = {"job_id": job.id, "root_id": job.root_id, "key": new.active_key}
        unit.put(key_layout.active_key(new.active_key), held)
    if new.window is not None:
        await key_windows.take(unit, new, new.window, job)


async def _follow(unit: UnitOfWork, before: JobRecord, job: Job) -> None:
    """Set the successor of the retried job, and append an event."""
    job_repository.save(unit, before, replace(before, successor=job.id))
    await job_repository.append_event(
        unit,
        EventKind.RETRIED,
        at=job.created_at,
        job_id=before.job.id,
        token=before.job.token,
        detail=job.id,
    )

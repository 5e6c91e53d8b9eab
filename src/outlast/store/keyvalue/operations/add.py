"""Storing new jobs, each with its keys and slot."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from outlast.core.event import ZERO, EventKind
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.limits import MAX_PAYLOAD, check_key, check_name, check_priority, is_storable
from outlast.core.ordering import Ordering
from outlast.core.state import State
from outlast.errors import InvalidArgument, InvalidJob, PayloadTooLarge
from outlast.store.contract.jobs import Added
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, StoredItem, Value
from outlast.store.keyvalue.known import register_queue
from outlast.store.keyvalue.repositories import groups, queues, slots
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import JobRecord, is_over
from outlast.store.keyvalue.texts import is_json
from outlast.store.keyvalue.unit_of_work import Read, UnitOfWork

log = logging.getLogger("outlast.store")


async def add(desk: StoreContext, jobs: Sequence[NewJob]) -> list[Added]:
    """Plain ones at the same time, whatever may meet a holder in its turn."""
    if not jobs:
        return []
    first = await desk.numbers(len(jobs))
    for name in {job.queue for job in jobs if not _malformed(job)}:
        await register_queue(desk, name)
    ahead = await _read_ahead(desk, jobs)
    in_turn = _in_turn(jobs, ahead)
    numbered = [(job, first + number) for number, job in enumerate(jobs)]
    added = await run_in_chunks(
        desk,
        numbered,
        partial(_add, desk, {} if in_turn else ahead),
        records=5,
        is_alone=lambda pair: pair[0].id in in_turn,
        size=lambda pair: len(pair[0].params),
    )
    created = [job.queue for job, each in zip(jobs, added, strict=True) if each.created]
    if created:
        desk.notify(Notification(queues=frozenset(created)))
    return added


async def _read_ahead(desk: StoreContext, jobs: Sequence[NewJob]) -> Read:
    """All that several plain ones look at, at once; of others only their queues."""
    if len(jobs) == 1:
        return {}
    plain = all(job.is_plain and not job.member for job in jobs)
    keys = dict.fromkeys(key for job in jobs for key in (looked_at(job) if plain else _queue(job)))
    return dict(zip(keys, await desk.engine.get(list(keys)), strict=True))


def _in_turn(jobs: Sequence[NewJob], ahead: Read) -> set[str]:
    """Those among which the order given decides: who gets a key, or the next position."""
    if len(jobs) == 1:
        return set()
    placed = _placed([ahead[queues.key(job.queue)] for job in jobs if not _malformed(job)])
    often = Counter(job.id for job in jobs)
    return {
        job.id
        for job in jobs
        if not job.is_plain or job.member or job.queue in placed or often[job.id] > 1
    }


async def placed_among(desk: StoreContext, names: Collection[str]) -> set[str]:
    """Those of these queues whose jobs have explicit positions."""
    return _placed(await desk.engine.get([queues.key(name) for name in names]))


def _placed(found: Sequence[StoredItem | None]) -> set[str]:
    kept = [queues.from_value(entry.value).queue for entry in found if entry is not None]
    return {queue.name for queue in kept if queue.ordering is Ordering.POSITION}


async def _add(desk: StoreContext, ahead: Read, jobs: Sequence[tuple[NewJob, int]]) -> list[Added]:
    is_first = True

    async def work(unit: UnitOfWork) -> list[Added]:
        nonlocal is_first
        if is_first:  # somebody got in the way of it, if there is a second time
            unit.take(ahead)
        is_first = False
        await unit.fetch([key for new, _ in jobs for key in looked_at(new)])
        return [await _put(unit, new, seq, desk.now()) for new, seq in jobs]

    try:
        return await desk.run_unit(work)
    except PayloadTooLarge as error:
        if len(jobs) > 1:  # one of them, or all together: each is asked alone
            return [added for pair in jobs for added in await _add(desk, {}, [pair])]
        return [Added(jobs[0][0].id, created=False, refused=str(error))]


async def _put(unit: UnitOfWork, new: NewJob, seq: int, now: datetime) -> Added:
    kept = await put(unit, new, seq, now)
    return kept if isinstance(kept, Added) else Added(new.id, created=True)


async def put(
    unit: UnitOfWork, new: NewJob, seq: int, now: datetime, *, reservation: int | None = None
) -> JobRecord | Added:
    """The job as it will be kept, or what became of it instead; in the caller's unit."""
    why = _malformed(new)
    await unit.fetch(looked_at(new))
    holder = await _holder(unit, new, now)
    if holder is not None:
        if new.retry_of is not None:  # its key would tell the root of its chain, and it is itself
            await unit.require_unchanged([key_layout.pointer(new.id)])
        return Added(holder, created=False)
    before = None if new.retry_of is None else await job_repository.load(unit, new.retry_of)
    why = why or _retry_refused(new, before) or await groups.why_refused(unit, new)
    if why is not None:
        # Whoever retried that job, or completed that group, may have been this very one.
        wanted = [key_layout.pointer(new.id), *(key for key, _ in _claims(new))]
        await unit.require_unchanged(wanted)
        return Added(new.id, created=False, refused=why)
    try:
        return await _keep(unit, new, seq, now, before, reservation)
    except OverflowError:
        return Added(new.id, created=False, refused="it would be due beyond the year 9999")


def looked_at(new: NewJob) -> list[Key]:
    """All that `put` reads, whatever comes of it; for who reads it at once with other things."""
    ids = [new.id] if new.retry_of is None else [new.id, new.retry_of]
    return [*_queue(new), *(key_layout.pointer(i) for i in ids), *(key for key, _ in _claims(new))]


def _queue(new: NewJob) -> list[Key]:
    return [] if _malformed(new) else [queues.key(new.queue)]


def _claims(new: NewJob) -> list[tuple[Key, str]]:
    """What it wants for itself and whose value tells the holder; what is no key is nobody's.

    A slot that was answered without a job tells none.
    """
    wanted: list[tuple[Key, str]] = []
    slot, active = new.slot, new.active_key
    if slot is not None and _is_fine(lambda: check_name(slot.series, what="series")):
        wanted.append((key_layout.slot_key(slot), "job_id"))
    if new.key is not None and _is_fine(lambda: _check_dedupe(new)):
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


async def _holder(unit: UnitOfWork, new: NewJob, now: datetime) -> JobId | None:
    if await unit.get(key_layout.pointer(new.id)) is not None:
        return new.id
    for key, name in _claims(new):
        value = await unit.get(key)
        if value is not None and name in value and await _is_held(unit, value, now):
            return JobId(value[name])
    return None


async def _is_held(unit: UnitOfWork, value: Value, now: datetime) -> bool:
    """Whether the record may be trusted: a dedupe record whose job was never purged and is gone
    points at nothing, and is written anew."""
    if "job_pk" not in value or value.get("purged"):
        return not is_over(value, now)
    if await job_repository.load(unit, value["job_id"]) is not None:
        return True
    log.warning(
        "dedupe record points at a job that is gone, and is not trusted job=%s", value["job_id"]
    )
    if await unit.get(key_layout.pointer(value["job_id"])) is not None:
        unit.delete(key_layout.pointer(value["job_id"]))  # it leads nowhere
    return False


def _malformed(new: NewJob) -> str | None:
    try:
        _check(new)
    except InvalidArgument as error:
        return str(error)
    return None


def _check(new: NewJob) -> None:
    for what, name in (("type", new.type), ("name", new.name), ("queue", new.queue)):
        check_name(name, what=what)
    check_priority(new.priority)
    if not is_storable(new.params):
        raise InvalidJob("params hold NUL or lone surrogates, which cannot be stored")
    if len(new.params.encode()) > MAX_PAYLOAD:
        raise InvalidJob(f"params are over {MAX_PAYLOAD:,} bytes")
    if not is_json(new.params, MAX_PAYLOAD):
        raise InvalidJob("params are no JSON, and no handler could read them")
    if new.slot is not None:
        check_name(new.slot.series, what="series")
    if new.key is not None:
        _check_dedupe(new)
    if new.active_key is not None:
        check_key(new.active_key, what="active_key")


def _check_dedupe(new: NewJob) -> None:
    assert new.key is not None
    check_key(new.key.key, what="key")
    check_key(new.key.bucket, what="bucket", empty=True)


def _retry_refused(new: NewJob, before: JobRecord | None) -> str | None:
    if new.retry_of is None:
        return None
    if before is None:
        return f"retry_of is {new.retry_of}; there is no such job"
    if not before.job.is_final:
        state = before.job.state
        return f"retry_of is {new.retry_of}, which is {state}; only a finished job is retried"
    if before.successor is not None:
        return f"retry_of is {new.retry_of}; it was retried as {before.successor}"
    return None


async def _keep(
    unit: UnitOfWork,
    new: NewJob,
    seq: int,
    now: datetime,
    before: JobRecord | None,
    reservation: int | None,
) -> JobRecord:
    position = await queues.new_position(unit, new.queue, new.priority)
    job = _job(new, seq, position, now, before)
    kept = JobRecord(
        job=job,
        root_seq=seq if before is None else before.root_seq,
        key=new.key,
        active_key=new.active_key,
        series=new.slot.series if new.slot else None,
        member=new.group_id if new.member else None,
        reservation=reservation,
    )
    job_repository.save(unit, None, kept)
    await _take(unit, new, job)
    if new.member:
        await groups.enter(unit, new.group_id or "")
    if before is not None:
        await _follow(unit, before, job)
    return kept


async def _take(unit: UnitOfWork, new: NewJob, job: Job) -> None:
    if new.slot is not None:
        await slots.take_by_hand(unit, new.slot, job)
    if new.active_key is not None:
        held = {"job_id": job.id, "root_id": job.root_id, "key": new.active_key}
        unit.put(key_layout.active_key(new.active_key), held)


async def _follow(unit: UnitOfWork, before: JobRecord, job: Job) -> None:
    """The job before it knows its successor, and an event tells of it."""
    job_repository.save(unit, before, replace(before, successor=job.id))
    await job_repository.append_event(
        unit,
        EventKind.RETRIED,
        at=job.created_at,
        job_id=before.job.id,
        token=before.job.token,
        detail=job.id,
    )


def _job(new: NewJob, seq: int, position: int, now: datetime, before: JobRecord | None) -> Job:
    due = _due(new, now)
    counted_from = new.slot.at if new.slot else due
    return Job(
        id=new.id,
        seq=seq,
        type=new.type,
        name=new.name,
        params=new.params,
        queue=new.queue,
        delivery=new.delivery,
        priority=new.priority,
        position=position,
        max_attempts=new.max_attempts,
        created_at=now,
        available_at=due,
        slot_at=new.slot.at if new.slot else None,
        start_deadline=None if new.start_within is None else counted_from + new.start_within,
        retry_of=new.retry_of,
        root_id=before.job.root_id if before else new.id,
        group_id=new.group_id,
        template_id=new.template_id,
        template_at=new.template_at,
        schedule_id=new.schedule_id,
        state=_first_state(new, is_due=due <= now),
        reason=None,
        token=0,
        failures=0,
        losses=0,
        cancel_requested=False,
        holder=None,
        boot_id=None,
        started_at=None,
        finished_at=None,
    )


def _first_state(new: NewJob, *, is_due: bool) -> State:
    if new.member:
        return State.BLOCKED
    return State.QUEUED if is_due else State.SCHEDULED


def _due(new: NewJob, now: datetime) -> datetime:
    if new.at is not None:
        return new.at
    if new.delay is None and new.slot is not None:
        return max(now, new.slot.at)
    return now + (new.delay or ZERO)

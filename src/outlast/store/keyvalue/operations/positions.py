"""Move and edit waiting jobs, and renumber positions.

Changes that fit one transaction are written at once. More become a plan: pages of positions,
decided by one write of the queue. An intent then moves job by job, and no claim takes from the
queue before it is complete.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.core.decide import Change
from outlast.core.event import EventKind
from outlast.core.ordering import renumber_positions
from outlast.core.position import move_job
from outlast.core.state import WAITING
from outlast.core.transition import apply_edit, is_storable_edit
from outlast.core.waiting_line import InMemoryWaitingLine, WaitingJob
from outlast.store.keyvalue import intents, key_layout
from outlast.store.keyvalue.batching import run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Value, Write
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.outcomes import require_all
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.repositories.job_codec import JobRecord, to_value
from outlast.store.keyvalue.repositories.queues import QueueRecord
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 1_000
EACH: Final = 4
BESIDE: Final = 8
"""Records of one moved job, and those of the change that moves it."""

PAGES: Final = "places"
OLD: Final = timedelta(hours=1)
PLAN: Final = "plan"
"""Kind of the intent that lists positions still to be written."""


Step = tuple[str, int, int, int]
"""A job id, its priority, its old position and its new one."""


class KeyValuePositionOperations(KeyValueOperations):
    """Normalise the positions of a queue."""

    @requires_open_store
    async def renumber(self, context: StoreContext, queue: str) -> int:
        """Make the positions of a queue even; return how many changed."""

        async def work(unit: UnitOfWork) -> tuple[int, Key | None]:
            record = await queues.load(unit, queue)
            changed = await _uneven(unit, record)
            if not changed:
                return 0, None
            queues.save(unit, record)  # unchanged: conflicts with a job that is appended
            intent = await _place(unit, record, changed, context.now())
            told = str(len(changed))
            await job_repository.append_event(
                unit, EventKind.RENUMBERED, at=context.now(), detail=told, queue=queue
            )
            return len(changed), intent

        changed, intent = await context.run_unit(work)
        if intent is not None:
            await intents.unless_store_fails(finish_plan(context, intent))
        return changed


def _waiting_job(entry: StoredItem) -> WaitingJob:
    value = entry.value
    position = value["position"]
    order = entry.key.sort.split(".", 2)[2]
    return WaitingJob(value["id"], value["seq"], value["priority"], position, position, order)


def _step(job: WaitingJob) -> Step:
    return job.id, job.priority, job.was, job.position


async def line_of(unit: UnitOfWork, queue: str, priority: int) -> list[StoredItem]:
    """Return the index entries of the waiting jobs of one queue and priority."""
    spans = [
        key_layout.lane(part + queue, priority) for part in (key_layout.READY, key_layout.LATER)
    ]
    return await unit.consistent_range(spans, limit=ALL)


async def may_change(unit: UnitOfWork, record: JobRecord, change: Change, now: datetime) -> bool:
    """Return True if the edit is valid, and the target of a move waits in the same line."""
    job, place = record.job, change.place
    if change.edit is not None and not is_storable_edit(job, change.edit, now):
        return False
    if place is None or place.target is None:
        return True
    target = await job_repository.load(unit, place.target)
    if target is None or target.job.id == job.id or target.is_detached:
        return False
    unit.require(key_layout.job_key(target.job))
    is_beside = (target.job.queue, target.job.priority) == (job.queue, job.priority)
    return is_beside and target.job.state in WAITING


async def edit(unit: UnitOfWork, record: JobRecord, change: Change, now: datetime) -> None:
    """Write the edit of the change; a job of a new priority goes behind the others of it."""
    assert change.edit is not None
    job, priority = record.job, change.edit.priority
    position = job.position
    if priority is not None and priority != job.priority:
        position = await queues.new_position(unit, job.queue, priority)
    edited = apply_edit(job, change, position=position, now=now)
    job_repository.save(unit, record, replace(record, job=edited))


async def move(unit: UnitOfWork, record: JobRecord, change: Change, now: datetime) -> Key | None:
    """Move the job to the change's position; return the plan if other jobs must move too."""
    assert change.place is not None
    queue = await queues.load(unit, record.job.queue)
    queues.save(unit, queue)  # unchanged: of two concurrent moves, one conflicts
    line = InMemoryWaitingLine(
        map(_waiting_job, await line_of(unit, record.job.queue, record.job.priority))
    )
    target = None if change.place.target is None else line.seq_of(change.place.target)
    if line.seq_of(record.job.id) is None or (change.place.target is not None and target is None):
        raise ReadConflict  # claimed since it was read
    await move_job(
        line,
        line.write,
        change.place.where,
        moved=record.job.seq,
        target=target,
        gap=queue.queue.gap,
    )
    unit.require(key_layout.job_key(record.job))
    return await _place(unit, queue, line.changed, now)


async def _uneven(unit: UnitOfWork, queue: QueueRecord) -> list[WaitingJob]:
    name, changed = queue.queue.name, list[WaitingJob]()
    parts = [KeyRange(part + name) for part in (key_layout.READY, key_layout.LATER)]
    entries = await unit.consistent_range(parts, limit=ALL)
    for priority in {entry.value["priority"] for entry in entries}:
        own = [entry for entry in entries if entry.value["priority"] == priority]
        lane = [_waiting_job(entry) for entry in sorted(own, key=lambda entry: entry.key.sort)]
        even = renumber_positions(
            [each.was for each in lane], queue.queue.ordering, queue.queue.gap
        )
        pairs = zip(lane, even, strict=True)
        changed += [replace(each, position=new) for each, new in pairs if each.was != new]
    return changed


async def _place(
    unit: UnitOfWork, queue: QueueRecord, changed: Sequence[WaitingJob], now: datetime
) -> Key | None:
    """Write the positions at once if they fit one transaction; return the plan otherwise."""
    if len(changed) > 1 and not await _fits(unit, changed):
        return await _decide_plan(unit, queue, changed, now)
    if not all(await _put(unit, places=[_step(each) for each in changed])):
        raise ReadConflict  # one of them was claimed or moved
    return None


async def _fits(unit: UnitOfWork, changed: Sequence[WaitingJob]) -> bool:
    """Return True if one transaction takes the jobs; half of its bytes are for all else."""
    limits = unit.engine.limits
    if EACH * len(changed) + BESIDE > limits.most_writes:
        return False
    found = await job_repository.load_many(unit, [each.id for each in changed])
    jobs = [Write(key_layout.job_key(each.job), to_value(each)) for each in found if each]
    return sum(job.size for job in jobs) <= limits.most_bytes // 2


async def _decide_plan(
    unit: UnitOfWork, queue: QueueRecord, changed: Sequence[WaitingJob], now: datetime
) -> Key:
    """Write the plan's pages, and name the plan in the queue record, which decides it."""
    number = await unit.engine.advance(key_layout.NUMBERS, 1)
    name = f"{PLAN}#{key_layout.number(number)}"
    listed = [list(_step(each)) for each in changed]
    pages = range(0, len(listed), PAGE)
    for start in pages:
        page = {"places": listed[start : start + PAGE], "at": key_layout.time_key(now)}
        await unit.engine.transact({}, [Write(_page(name, start), page)])
    intent = Key(key_layout.PENDING, name)
    unit.put(intent, {"kind": PLAN, "queue": queue.queue.name, "pages": list(pages)})
    queues.save(unit, replace(queue, plan=name))
    return intent


async def finish_plan(context: StoreContext, intent: Key) -> None:
    """Give each job of the plan its position and end the plan; idempotent."""
    context = context.without_gate()
    [entry] = await context.engine.get([intent])
    if entry is None:
        return
    pages = [_page(intent.sort, start) for start in entry.value["pages"]]
    found = await context.engine.get(pages)
    placed = [place for page in found if page is not None for place in page.value["places"]]
    outcomes = await run_in_chunks(
        context,
        placed,
        lambda own: context.run_unit(partial(_put_planned, intent=intent, places=own)),
        records=EACH,
    )
    require_all(outcomes)
    await context.run_unit(partial(_forget, intent=intent, queue=entry.value["queue"], pages=pages))


async def _put_planned(unit: UnitOfWork, *, intent: Key, places: Sequence[Step]) -> list[bool]:
    """Write positions only while the plan exists: a slow process must not undo later moves."""
    if await unit.get(intent) is None:
        return [False] * len(places)
    unit.require(intent)
    return await _put(unit, places=places)


async def _put(unit: UnitOfWork, *, places: Sequence[Step]) -> list[bool]:
    """Give each job its new position; False for one that no longer waits at the old one."""
    found = await job_repository.load_many(unit, [place[0] for place in places])
    return [_put_one(unit, *pair) for pair in zip(found, places, strict=True)]


def _put_one(unit: UnitOfWork, record: JobRecord | None, place: Step) -> bool:
    _, priority, was, position = place
    if record is None or record.job.state not in WAITING:
        return False
    if (record.job.priority, record.job.position) != (priority, was):
        return False
    job_repository.save(unit, record, replace(record, job=replace(record.job, position=position)))
    return True


async def _forget(unit: UnitOfWork, *, intent: Key, queue: str, pages: Sequence[Key]) -> None:
    value: Value | None = await unit.get(queues.key(queue))
    if value is None or value.get("plan") != intent.sort:
        return
    unit.put(queues.key(queue), {name: v for name, v in value.items() if name != "plan"})
    unit.delete(intent)
    for page in pages[: unit.engine.limits.most_writes - 3]:
        unit.delete(page)


async def forget_left(context: StoreContext) -> None:
    """Delete old pages of plans that were never decided, because their process died."""
    before = key_layout.time_key(context.now() - OLD)
    found = await context.engine.range(KeyRange(PAGES), limit=ALL)
    for page in [each for each in found if each.value["at"] < before]:
        intent = Key(key_layout.PENDING, page.key.sort.rpartition("#")[0])
        if (await context.engine.get([intent]))[0] is None:
            await context.engine.transact({page.key: page.version}, [Write(page.key, None)])


def _page(name: str, start: int) -> Key:
    return Key(PAGES, f"{name}#{key_layout.number(start)}")

"""Moving and editing jobs that wait, and making positions even.

What one transaction has room for is written at once. More is a plan: written whole, it is decided;
its note is then worked off job by job, and nobody claims from the queue before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.core.decide import Change
from outlast.core.event import EventKind
from outlast.core.job import Job
from outlast.core.limits import MAX_PAYLOAD, MAX_PRIORITY, MIN_PRIORITY
from outlast.core.ordering import renumber_positions
from outlast.core.position import JobEdit, PositionedJob, move_job
from outlast.core.state import WAITING
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import chunks, run_concurrently
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Value, Write
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.repositories.queues import QueueRecord
from outlast.store.keyvalue.texts import is_json
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

ALL: Final = 1_000_000
PAGE: Final = 1_000
EACH: Final = 4
BESIDE: Final = 8
"""Records that a job in another position takes, and those of whatever brought it there."""

PAGES: Final = "places"
OLD: Final = timedelta(hours=1)
PLAN: Final = "plan"
"""The kind of note that lists positions still to be written."""


Step = tuple[str, int, int, int]
"""A job, its priority, the position that it had, and the one that it is to have."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A waiting job in its lane, with the position it is to have."""

    id: str
    seq: int
    priority: int
    was: int
    position: int
    order: str  # without the position: what decides among equals

    @property
    def move(self) -> "Step":
        return self.id, self.priority, self.was, self.position


class InMemoryWaitingLine:
    """The waiting jobs of one queue and priority, as `rearrange` asks for them."""

    def __init__(self, entries: Sequence[StoredItem]) -> None:
        self._jobs = {each.seq: each for each in map(_placed, entries)}

    async def write(self, places: Mapping[int, int]) -> None:
        for seq, position in places.items():
            self._jobs[seq] = replace(self._jobs[seq], position=position)

    @property
    def changed(self) -> list[Placed]:
        return [each for each in self._jobs.values() if each.position != each.was]

    def seq_of(self, job_id: str) -> int | None:
        return next((each.seq for each in self._jobs.values() if each.id == job_id), None)

    async def position(self, seq: int) -> int:
        return self.position_of(seq)

    def position_of(self, seq: int) -> int:
        return self._jobs[seq].position

    async def ends(self, *, without: int) -> tuple[int | None, int | None]:
        found = [each.position for each in self._sorted(without) if each.position]
        return min(found, default=None), max(found, default=None)

    async def before(self, seq: int | None, number: int, *, without: int) -> list[PositionedJob]:
        return self._beside(seq, without)[0][::-1][:number]

    async def after(self, seq: int, number: int, *, without: int) -> list[PositionedJob]:
        return self._beside(seq, without)[1][:number]

    async def unplaced(self, last: int, *, without: int) -> list[int]:
        line = [each.seq for each in self._sorted(without) if not each.position]
        return line[: line.index(last) + 1]

    def _beside(
        self, seq: int | None, without: int
    ) -> tuple[list[PositionedJob], list[PositionedJob]]:
        """Those of one sign before that job, and those behind it; None stands for 0."""
        sign = -1 if seq is None else self.position_of(seq)
        found = [each for each in self._sorted(without) if each.position * sign > 0]
        spots = [PositionedJob(each.seq, each.position) for each in found]
        at = [spot.seq for spot in spots].index(seq) if seq is not None else len(spots)
        return spots[:at], spots[at + 1 :]

    def _sorted(self, without: int) -> list[Placed]:
        found = [each for each in self._jobs.values() if each.seq != without]
        return sorted(found, key=lambda each: (each.position, each.order))


def _placed(entry: StoredItem) -> Placed:
    value = entry.value
    position = value["position"]
    order = entry.key.sort.split(".", 2)[2]
    return Placed(value["id"], value["seq"], value["priority"], position, position, order)


async def line_of(unit: UnitOfWork, queue: str, priority: int) -> list[StoredItem]:
    spans = [
        key_layout.lane(part + queue, priority) for part in (key_layout.READY, key_layout.LATER)
    ]
    return await unit.consistent_range(spans, limit=ALL)


async def may_change(unit: UnitOfWork, kept: JobRecord, change: Change, now: datetime) -> bool:
    """Whether its edit can be kept, and the target of its place is beside it."""
    job, place = kept.job, change.place
    if change.edit is not None and not _can_be_kept(job, change.edit, now):
        return False
    if place is None or place.target is None:
        return True
    target = await job_repository.load(unit, place.target)
    if target is None or target.job.id == job.id or target.is_detached:
        return False
    unit.require(key_layout.job_key(target.job))
    is_beside = (target.job.queue, target.job.priority) == (job.queue, job.priority)
    return is_beside and target.job.state in WAITING


async def edit(unit: UnitOfWork, kept: JobRecord, change: Change, now: datetime) -> None:
    """Write what the change's edit gives."""
    asked, job = change.edit, kept.job
    assert asked is not None
    position, priority = job.position, job.priority
    if asked.priority not in (None, job.priority):
        priority = asked.priority if asked.priority is not None else priority
        position = await queues.new_position(unit, job.queue, priority)
    edited = replace(
        job,
        state=change.move.to,
        params=job.params if asked.params is None else asked.params,
        priority=priority,
        position=position,
        available_at=_due(asked, now) or job.available_at,
    )
    job_repository.save(unit, kept, replace(kept, job=edited))


async def move(unit: UnitOfWork, kept: JobRecord, change: Change, now: datetime) -> Key | None:
    """Bring the job to the change's place; a plan, where others must move too."""
    assert change.place is not None
    queue = await queues.load(unit, kept.job.queue)
    queues.save(unit, queue)  # as it is: of two who look at the line at once, one looks again
    line = InMemoryWaitingLine(await line_of(unit, kept.job.queue, kept.job.priority))
    target = None if change.place.target is None else line.seq_of(change.place.target)
    if line.seq_of(kept.job.id) is None or (change.place.target is not None and target is None):
        raise ReadConflict  # somebody took it since it was read
    await move_job(
        line,
        line.write,
        change.place.where,
        moved=kept.job.seq,
        target=target,
        gap=queue.queue.gap,
    )
    unit.require(key_layout.job_key(kept.job))
    return await _place(unit, queue, line.changed, now)


async def renumber(desk: StoreContext, name: str) -> int:
    """Make the positions of a queue even; how many changed."""

    async def work(unit: UnitOfWork) -> tuple[int, Key | None]:
        queue = await queues.load(unit, name)
        changed = await _uneven(unit, queue)
        if not changed:
            return 0, None
        queues.save(unit, queue)  # as it is: nobody who goes behind the last one comes between
        note = await _place(unit, queue, changed, desk.now())
        told = str(len(changed))
        await job_repository.append_event(
            unit, EventKind.RENUMBERED, at=desk.now(), detail=told, queue=name
        )
        return len(changed), note

    changed, note = await desk.run_unit(work)
    if note is not None:
        await finish_plan(desk, note)
    return changed


async def _uneven(unit: UnitOfWork, queue: QueueRecord) -> list[Placed]:
    name, changed = queue.queue.name, list[Placed]()
    parts = [KeyRange(part + name) for part in (key_layout.READY, key_layout.LATER)]
    entries = await unit.consistent_range(parts, limit=ALL)
    for priority in {entry.value["priority"] for entry in entries}:
        own = [entry for entry in entries if entry.value["priority"] == priority]
        lane = [_placed(entry) for entry in sorted(own, key=lambda entry: entry.key.sort)]
        even = renumber_positions(
            [each.was for each in lane], queue.queue.ordering, queue.queue.gap
        )
        pairs = zip(lane, even, strict=True)
        changed += [replace(each, position=new) for each, new in pairs if each.was != new]
    return changed


async def _place(
    unit: UnitOfWork, queue: QueueRecord, changed: Sequence[Placed], now: datetime
) -> Key | None:
    """Write the positions at once if there is room; else the note of the plan to do so."""
    if len(changed) > 1 and EACH * len(changed) + BESIDE > unit.engine.limits.most_writes:
        return await _decide_plan(unit, queue, changed, now)
    places = [each.move for each in changed]
    if await _put(unit, places=places) < len(places):
        raise ReadConflict  # somebody took one of them, or gave it another place
    return None


async def _decide_plan(
    unit: UnitOfWork, queue: QueueRecord, changed: Sequence[Placed], now: datetime
) -> Key:
    """Write the positions down, and let the queue know: with that commit it is decided.

    The pages are written before; nobody looks at them until the queue names the plan.
    """
    number = await unit.next_number()
    name = f"{PLAN}#{key_layout.number(number)}"
    listed = [list(each.move) for each in changed]
    pages = range(0, len(listed), PAGE)
    for start in pages:
        page = {"places": listed[start : start + PAGE], "at": key_layout.time_key(now)}
        await unit.engine.transact({}, [Write(_page(name, start), page)])
    note = Key(key_layout.PENDING, name)
    unit.put(note, {"kind": PLAN, "queue": queue.queue.name, "pages": list(pages)})
    queues.save(unit, replace(queue, plan=name))
    return note


async def finish_plan(desk: StoreContext, note: Key) -> None:
    """Give each job its position and let the queue go on; harmless when that is done."""
    [entry] = await desk.engine.get([note])
    if entry is None:
        return
    pages = [_page(note.sort, start) for start in entry.value["pages"]]
    found = await desk.engine.get(pages)
    placed = [place for page in found if page is not None for place in page.value["places"]]
    await run_concurrently(
        chunks(desk, placed, records=EACH),
        lambda own: desk.run_unit(partial(_put_planned, note=note, places=own)),
    )
    await desk.run_unit(partial(_forget, note=note, queue=entry.value["queue"], pages=pages))


async def _put_planned(unit: UnitOfWork, *, note: Key, places: Sequence[Step]) -> None:
    """Only while the plan stands: whoever was slower than others to finish it undoes no later move
    that brought a job back to where it was."""
    if await unit.get(note) is not None:
        unit.require(note)
        await _put(unit, places=places)


async def _put(unit: UnitOfWork, *, places: Sequence[Step]) -> int:
    """Give each its position that waits where it was; how many do."""
    found = await job_repository.load_many(unit, [place[0] for place in places])
    there = [pair for pair in zip(found, places, strict=True) if _is_there(*pair)]
    for kept, (*_, position) in there:
        assert kept is not None
        job_repository.save(unit, kept, replace(kept, job=replace(kept.job, position=position)))
    return len(there)


def _is_there(kept: JobRecord | None, place: Step) -> bool:
    _, priority, was, _ = place
    if kept is None or kept.job.state not in WAITING:
        return False
    return (kept.job.priority, kept.job.position) == (priority, was)


async def _forget(unit: UnitOfWork, *, note: Key, queue: str, pages: Sequence[Key]) -> None:
    value: Value | None = await unit.get(queues.key(queue))
    if value is None or value.get("plan") != note.sort:
        return
    unit.put(queues.key(queue), {name: v for name, v in value.items() if name != "plan"})
    unit.delete(note)
    for page in pages[: unit.engine.limits.most_writes - 3]:
        unit.delete(page)


async def forget_left(desk: StoreContext) -> None:
    """Pages of plans that were never decided, for whoever wrote them died before."""
    before = key_layout.time_key(desk.now() - OLD)
    found = await desk.engine.range(KeyRange(PAGES), limit=ALL)
    for page in [each for each in found if each.value["at"] < before]:
        note = Key(key_layout.PENDING, page.key.sort.rpartition("#")[0])
        if (await desk.engine.get([note]))[0] is None:
            await desk.engine.transact({page.key: page.version}, [Write(page.key, None)])


def _page(name: str, start: int) -> Key:
    return Key(PAGES, f"{name}#{key_layout.number(start)}")


def _can_be_kept(job: Job, asked: JobEdit, now: datetime) -> bool:
    try:
        _due(asked, now)
    except OverflowError:
        return False
    is_frozen = asked.params is not None and job.token > 0
    is_ours = asked.params is None or is_json(asked.params, MAX_PAYLOAD)
    return not is_frozen and is_ours and MIN_PRIORITY <= (asked.priority or 0) <= MAX_PRIORITY


def _due(asked: JobEdit, now: datetime) -> datetime | None:
    return asked.at if asked.delay is None else now + asked.delay

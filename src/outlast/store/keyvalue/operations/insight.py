"""Overview of the store, and the facts that explain why a job waits."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.clock import from_micros, to_micros
from outlast.core.delivery import Delivery
from outlast.core.explain import MOST_AHEAD, BlockingJob, WaitFacts
from outlast.core.group import GroupMode
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.overview import Backlog, Overview, Running
from outlast.core.run import LeaseHolder
from outlast.core.state import FINAL, WAITING, State
from outlast.core.worker_capacity import able, in_use, types_wanted_by
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.clocks import LeaseExpiry
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Value
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations import open_leases, quarantine
from outlast.store.keyvalue.operations.base import KeyValueOperations
from outlast.store.keyvalue.operations.promotion import due_entries
from outlast.store.keyvalue.operations.transfer_status import read_status
from outlast.store.keyvalue.operations.workers import list_workers
from outlast.store.keyvalue.repositories import groups, queues, reservations
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL: Final = 1_000_000
SHOWN: Final = 3
LOOKS: Final = 3
"""Reads of the facts, where two reads in a row differ."""

_FINAL: Final = frozenset(state.value for state in FINAL)


class KeyValueInsightOperations(KeyValueOperations):
    """Overview and explain reads."""

    async def overview(self, *, span: timedelta) -> Overview:
        """Return counts per queue and type at one moment, from the index entries.

        The job is read too if its lease seems expired.
        """
        context = self._context
        await complete_all(context)
        unit, now = UnitOfWork(context.engine), context.now()
        live, aside = await _live(unit), await quarantine.listed_ids(context.engine)
        ended = await _ended(unit, now - span)
        waiting: dict[tuple[str, str, State], list[Value]] = defaultdict(list)
        running: dict[tuple[str, str], list[Value]] = defaultdict(list)
        for name, value in [live[job_id] for job_id in live.keys() - ended.keys() - aside]:
            if "state" in value:
                waiting[name, value["type"], State(value["state"])].append(value)
            else:
                running[name, value["type"]].append(value)
        over = await _expired(context, [each for own in running.values() for each in own])
        return Overview(
            now=now,
            span=span,
            backlog=[_backlog(kind, waiting[kind], now) for kind in sorted(waiting)],
            running=[_running(kind, running[kind], over) for kind in sorted(running)],
            ended=Counter(ended.values()),
        )

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        """Return what decides when a job is claimed: two equal reads, or the last of a few."""
        context = self._context
        await complete_all(context)
        look = partial(context.run_unit, partial(_situation, context=context, job_id=job_id))
        shown = await look()
        for _ in range(LOOKS):
            before, shown = shown, await look()
            if shown is None or (before is not None and replace(before, now=shown.now) == shown):
                break
        return shown

    async def describe(self) -> Mapping[str, str]:
        """Return what the engine says of itself, by name."""
        return await self._context.engine.describe()


async def _live(unit: UnitOfWork) -> dict[str, tuple[str, Value]]:
    """Return queue and index entry per job.

    Reads states in the order in which jobs pass through them: a job that moves meanwhile is where
    it was read last.
    """
    live: dict[str, tuple[str, Value]] = {}
    for name in await queues.names(unit):
        for part in (key_layout.LATER, key_layout.READY, key_layout.OPEN):
            found = await unit.range(KeyRange(part + name), limit=ALL)
            live |= {entry.value["id"]: (name, entry.value) for entry in found}
    return live


def _backlog(kind: tuple[str, str, State], values: Sequence[Value], now: datetime) -> Backlog:
    queue, job_type, state = kind
    return Backlog(
        queue=queue,
        type=job_type,
        state=state,
        jobs=len(values),
        due=sum(value["due"] <= to_micros(now) for value in values),
        oldest=from_micros(min(value["due"] for value in values)),
    )


def _running(kind: tuple[str, str], values: Sequence[Value], over: Collection[str]) -> Running:
    lapsed = sum(value["id"] in over for value in values)
    return Running(queue=kind[0], type=kind[1], jobs=len(values), lapsed=lapsed)


async def _expired(context: StoreContext, running: Sequence[Value]) -> set[str]:
    """Return the ids of the jobs whose lease has expired."""
    ends = [(v["id"], LeaseExpiry(v["lease_at"], v["lease_boot"])) for v in running]
    suspects = [job_id for job_id, end in ends if context.leases.is_over(end)]
    found = await context.run_unit(partial(job_repository.load_many, job_ids=suspects))
    over, _ = open_leases.divided(context, found)
    return {record.job.id for record in over}


async def _ended(unit: UnitOfWork, since: datetime) -> dict[str, tuple[str, State]]:
    span = KeyRange(key_layout.ENDED, key_layout.number(to_micros(since)))
    found = await unit.range(span, limit=ALL)
    return {e.value["id"]: (e.value["queue"], State(e.value["state"])) for e in found}


async def _situation(unit: UnitOfWork, *, context: StoreContext, job_id: JobId) -> WaitFacts | None:
    record = await job_repository.load(unit, job_id)
    if record is None:
        return None
    [job], now = await job_repository.whole_jobs(unit, [record]), context.now()
    queue = await queues.load(unit, job.queue)
    alive = [worker for worker in await list_workers(context) if worker.is_alive]
    everywhere = await _open_everywhere(unit)
    own = sorted(
        (value for name, value in everywhere if name == job.queue),
        key=lambda value: (value["started"], value["seq"]),
    )
    held = Counter(
        LeaseHolder(instance_id=value["holder"], boot_id=value["boot"]) for _, value in everywhere
    )
    serving = able(job, alive)
    ahead = await _ahead(unit, context, job, types_wanted_by(serving, held))
    reservation = None
    if queue.reservation is not None:
        reservation = await reservations.load(unit, queue.reservation)
    return WaitFacts(
        job=job,
        now=now,
        transfer=(await read_status(unit)).at(now),
        pause=queue.shown(now).pause,
        concurrency=queue.queue.concurrency,
        open_runs=len(own),
        running=[BlockingJob(id=JobId(v["id"]), holder=v["holder"]) for v in own[:SHOWN]],
        reservation=None if reservation is None else reservation.reservation,
        overlap=await _overlap(unit, job),
        member=await _member(unit, record),
        ahead=min(len(ahead), MOST_AHEAD + 1),
        next_one=ahead[0] if ahead else None,
        workers=alive,
        busy=in_use(serving, held),
        lease_over=record.lease is not None and context.leases.is_over(record.lease),
    )


async def _open_everywhere(unit: UnitOfWork) -> list[tuple[str, Value]]:
    return [
        (name, entry.value)
        for name in await queues.names(unit)
        for entry in await queues.open_entries(unit, name, limit=ALL)
    ]


async def _ahead(
    unit: UnitOfWork, context: StoreContext, job: Job, wanted: set[frozenset[str] | None]
) -> list[JobId]:
    """Return the jobs that go first: the fewest of all workers that could run this one."""
    if job.state not in WAITING:
        return []
    found = await _takeable(unit, context, job)
    answers = [await _taken_before(unit, found, types, context.now()) for types in wanted]
    return min(answers, key=lambda ids: (len(ids), ids[0] if ids else ""))


async def _takeable(unit: UnitOfWork, context: StoreContext, job: Job) -> list[Value]:
    """Return the ready entries before that job, in claim order; due jobs count as queued."""
    end = key_layout.order(job)
    ready = await unit.range(KeyRange(key_layout.READY + job.queue, end=end), limit=ALL)
    due = {entry.value["id"] for entry in await due_entries(unit, context.now(), limit=ALL)}
    later: list[StoredItem] = []
    if due:
        found = await unit.range(KeyRange(key_layout.LATER + job.queue, end=end), limit=ALL)
        later = [entry for entry in found if entry.value["id"] in due]
    return [entry.value for entry in sorted((*ready, *later), key=lambda e: e.key.sort)]


async def _taken_before(
    unit: UnitOfWork, found: Sequence[Value], types: frozenset[str] | None, now: datetime
) -> list[JobId]:
    taken: list[JobId] = []
    names: set[str] = set()
    for value in found:
        if types is not None and value["type"] not in types:
            continue
        name = value.get("name")
        is_late = value.get("deadline", to_micros(now)) < to_micros(now)
        if is_late or (name is not None and await _is_named(unit, name, names)):
            continue
        names |= {name} if name is not None else set()
        taken.append(JobId(value["id"]))
    return taken


async def _is_named(unit: UnitOfWork, name: str, names: set[str]) -> bool:
    return name in names or await unit.get(Key(key_layout.ONCE, name)) is not None


async def _overlap(unit: UnitOfWork, job: Job) -> BlockingJob | None:
    running = await unit.get(Key(key_layout.ONCE, job.name))
    other = None if running is None else await job_repository.load(unit, running["job_id"])
    if other is None or other.job.delivery is not Delivery.ONCE:
        return None
    return BlockingJob(id=other.job.id, holder=other.job.holder)


async def _member(unit: UnitOfWork, record: JobRecord) -> BlockingJob | None:
    """Return the member that must end before the job, in a sequential group."""
    if record.job.state is not State.BLOCKED or record.member is None:
        return None
    group = await groups.load(unit, record.member)
    if group is None or group.group.sealed_at is None:
        return None
    if group.group.mode is not GroupMode.SEQUENTIAL:
        return None
    members = await groups.members(unit, record.member)
    left = [m for m in members if m["state"] not in _FINAL and m["root"] < record.job.seq]
    return BlockingJob(id=max(left, key=lambda m: int(m["root"]))["id"]) if left else None

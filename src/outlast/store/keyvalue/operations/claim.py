"""Taking jobs: promote what is due, choose in claim order, open a run for each."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from outlast.clock import to_micros
from outlast.core.delivery import Delivery
from outlast.core.ids import RunId
from outlast.core.job import Job
from outlast.core.reservation import ReservationStatus
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import State
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import chunks, run_concurrently
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Value
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues, reservations
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.repositories.queues import QueueRecord
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

ROUNDS: Final = 20
"""How often a claim looks again when others were quicker."""

AT_ONCE: Final = 8
"""How many go into one transaction: where others claim too, few are lost with it."""

PAGE: Final = 10
MOST_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What one claim asks for."""

    holder: LeaseHolder
    queue: str
    types: frozenset[str]
    lease: timedelta
    prefix: str

    def run_id(self, number: int) -> RunId:
        return RunId(f"{self.prefix}{number:06x}")


async def claim(
    desk: StoreContext,
    holder: LeaseHolder,
    *,
    queue: str,
    types: Collection[str],
    limit: int,
    prefetch: int,
    lease: timedelta,
) -> list[Claim]:
    wish = ClaimRequest(
        holder=holder,
        queue=queue,
        types=frozenset(types),
        lease=lease,
        prefix=desk.ids.prefix(),
    )
    seen = await _look(desk, queue, limit + prefetch)
    if seen.has_chores:
        await promote_due(desk, limit=MAX_PROMOTED_PER_CLAIM)
        seen = await _look(desk, queue, limit + prefetch)
    if seen.queue.shown(desk.now()).pause is not None:
        return []
    if seen.queue.needs_serial_claims:
        return await _claim_unlimited(desk, wish, limit)
    return await _many(desk, wish, limit, prefetch, seen.ready)


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """What a claim begins with; `has_chores`: something is due, or was left half-done."""

    queue: QueueRecord
    ready: list[StoredItem]
    has_chores: bool


async def _look(desk: StoreContext, name: str, most: int) -> ClaimSnapshot:
    """All in one request, where the engine can."""
    asked = [
        (KeyRange(key_layout.PENDING), 1),
        (_due(desk.now()), 1),
        (queues.span(name), 1),
        (KeyRange(key_layout.READY + name), _page(most)),
    ]

    async def work(_: UnitOfWork) -> ClaimSnapshot:
        left, due, queue, ready = await desk.engine.ranges(asked)
        return ClaimSnapshot(queues.found(name, queue), ready, bool(left or due))

    return await desk.run_unit(work)


async def _many(
    desk: StoreContext,
    wish: ClaimRequest,
    limit: int,
    prefetch: int,
    ready: list[StoredItem] | None,
) -> list[Claim]:
    """From a queue without a limit: all at once, and again where others were quicker."""
    claims: list[Claim] = []
    tried, passed = 0, set[str]()
    for _ in range(ROUNDS):
        now_room = max(0, limit - len(claims))
        room = limit + prefetch - len(claims)
        unit, now = UnitOfWork(desk.engine), desk.now()
        chosen = await choose(
            unit, wish, limit=now_room, most=room, now=now, first=ready, passed=passed
        )
        ready = None
        numbered = list(enumerate(chosen, start=tried))
        together_taken = await run_concurrently(
            chunks(desk, numbered, records=5, most=AT_ONCE), partial(_take, desk, wish)
        )
        answers = [answer for told in together_taken for answer in told]
        claims += [answer for answer in answers if answer is not None]
        tried += len(chosen)
        taken = {claim.job_id for claim in claims}
        passed |= {entry.value["id"] for entry in chosen} - taken
        if None not in answers:
            break
    return claims


async def _take(
    desk: StoreContext, wish: ClaimRequest, numbered: Sequence[tuple[int, StoredItem]]
) -> list[Claim | None]:
    """Each that is still there to be taken; None for those where somebody was quicker."""

    async def work(unit: UnitOfWork) -> list[Claim | None]:
        await unit.fetch([Key(key_layout.JOB, entry.value["sort"]) for _, entry in numbered])
        return [await _take_one(unit, desk, wish, *each) for each in numbered]

    return await desk.run_unit(work)


async def _take_one(
    unit: UnitOfWork, desk: StoreContext, wish: ClaimRequest, number: int, entry: StoredItem
) -> Claim | None:
    kept = await job_repository.load_at(unit, entry.value["sort"])
    if kept is not None and await reservations.active_of(unit, kept) is not None:
        return None  # the queue is held for it since it was looked at: the next claim takes it
    return await open_run(unit, desk, wish, kept, wish.run_id(number))


async def _claim_unlimited(desk: StoreContext, wish: ClaimRequest, limit: int) -> list[Claim]:
    """From a queue whose runs are counted, or that is held for one job."""
    claims: list[Claim] = []
    is_last = False
    while len(claims) < limit:
        taken, is_last = await desk.run_unit(
            partial(_take_next, desk=desk, wish=wish, n=len(claims))
        )
        claims += [taken] if taken is not None else []
        if taken is None or is_last:
            break
    if claims and is_last:  # a direct job was taken
        desk.notify(Notification(queues=frozenset({wish.queue}), ended=True))
    return claims


async def _take_next(
    unit: UnitOfWork, *, desk: StoreContext, wish: ClaimRequest, n: int
) -> tuple[Claim | None, bool]:
    queue, now = await queues.load(unit, wish.queue), desk.now()
    gate = await queues.gate(unit, queue, now)
    if not gate.capacity(1, 0)[0]:
        return None, True
    kept = await _next(unit, wish, queue, now)
    run_id = wish.run_id(n)
    claim = await open_run(unit, desk, wish, kept, run_id, is_counted=queue.needs_serial_claims)
    if claim is None:
        return None, True
    queues.save(unit, queue)  # as it is: of two who counted at once, one counts again
    if queue.reservation is not None and not gate.keeps_reservation:
        held = await reservations.load(unit, queue.reservation)
        if held is not None:
            await reservations.close(unit, held, ReservationStatus.RELEASED, None, now)
    return claim, queue.reservation is not None


async def _next(
    unit: UnitOfWork, wish: ClaimRequest, queue: QueueRecord, now: datetime
) -> JobRecord | None:
    if queue.reserved_for is not None:
        kept = await job_repository.load(unit, queue.reserved_for)
        if kept is None or kept.job.state is not State.QUEUED:
            await unit.require_unchanged([queues.key(wish.queue)])  # it may be held for it no more
        return kept if kept is not None and kept.job.type in wish.types else None
    passed: set[str] = set()
    while chosen := await choose(unit, wish, limit=1, most=1, now=now, passed=passed):
        kept = await job_repository.load_at(unit, chosen[0].value["sort"])
        if kept is not None and kept.job.state is not State.QUEUED:
            raise ReadConflict  # somebody took it meanwhile, and there may be others
        if kept is not None and not kept.is_locked(now):
            return kept
        passed.add(chosen[0].value["id"])
    return None


async def choose(
    unit: UnitOfWork,
    wish: ClaimRequest,
    *,
    limit: int,
    most: int,
    now: datetime,
    first: list[StoredItem] | None = None,
    passed: Collection[str] = (),
) -> list[StoredItem]:
    """What one claim takes, in claim order: `limit` of any kind, and up to `most` that can wait.

    `first` is the first page, where somebody has read it; `passed` are jobs that were looked at,
    and could not be taken.
    """
    chosen: list[StoredItem] = []
    names: set[str] = set()
    span, page = KeyRange(key_layout.READY + wish.queue), _page(most)
    while len(chosen) < most:
        entries = await unit.range(span, limit=page) if first is None else first
        first = None
        for entry in entries:
            if len(chosen) == most:
                break
            is_wanted = len(chosen) < limit or entry.value["can_wait"]
            is_wanted = is_wanted and entry.value["id"] not in passed
            if is_wanted and await _may_be_taken(unit, wish, entry.value, names, now):
                chosen.append(entry)
                names.add(entry.value.get("name", ""))
        if len(entries) < page:
            break
        span = KeyRange(span.part, entries[-1].key.sort + "\0")
    return chosen


def _page(most: int) -> int:
    return min(max(PAGE, 2 * most), MOST_PAGE)


async def _may_be_taken(
    unit: UnitOfWork, wish: ClaimRequest, value: Value, names: Collection[str], now: datetime
) -> bool:
    if value["type"] not in wish.types or value.get("deadline", to_micros(now)) < to_micros(now):
        return False
    name = value.get("name")
    if name is None:
        return True
    return name not in names and await unit.get(Key(key_layout.ONCE, name)) is None


async def open_run(
    unit: UnitOfWork,
    desk: StoreContext,
    wish: ClaimRequest,
    kept: JobRecord | None,
    run_id: RunId,
    *,
    is_counted: bool = False,
) -> Claim | None:
    """Open the next run of a queued job, under the next token; None if it cannot be taken now."""
    now = desk.now()
    if kept is None or kept.is_detached or kept.job.state is not State.QUEUED:
        return None
    if kept.is_locked(now) or is_late(kept.job, now) or not await _take_name(unit, kept.job):
        return None
    job = replace(
        kept.job,
        state=State.RUNNING,
        token=kept.job.token + 1,
        holder=wish.holder.instance_id,
        boot_id=wish.holder.boot_id,
        started_at=kept.job.started_at or now,
        progress=None,
    )
    running = replace(
        kept,
        job=job,
        is_counted=is_counted,
        run_id=run_id,
        run_started_at=now,
        lease=desk.leases.end(wish.lease),
        lease_until=now + wish.lease,
    )
    job_repository.save(unit, kept, running)
    return _claim(job, run_id)


async def _take_name(unit: UnitOfWork, job: Job) -> bool:
    """Of `once` jobs of one name, one runs at a time."""
    if job.delivery is not Delivery.ONCE:
        return True
    key = Key(key_layout.ONCE, job.name)
    if await unit.get(key) is not None:
        return False
    unit.put(key, {"job_id": job.id})
    return True


def is_late(job: Job, now: datetime) -> bool:
    """Whether its start deadline has passed; one that has started once has kept it."""
    return not job.token and job.start_deadline is not None and job.start_deadline < now


def _claim(job: Job, run_id: RunId) -> Claim:
    return Claim(
        job_id=job.id,
        token=job.token,
        run_id=run_id,
        type=job.type,
        params=job.params,
        delivery=job.delivery,
        failures=job.failures,
        losses=job.losses,
        max_attempts=job.max_attempts,
        slot_at=job.slot_at,
    )


async def promote_due(desk: StoreContext, *, limit: int) -> int:
    """Move due jobs to `queued`, the earliest due first; how many."""
    await complete_all(desk)
    moved, now = 0, desk.now()
    while moved < limit:
        entries = await due_entries(
            UnitOfWork(desk.engine), now, limit=min(limit - moved, MOST_PAGE)
        )
        due = chunks(desk, [entry.value["id"] for entry in entries], records=6)
        answers = await run_concurrently(
            due, lambda ids: desk.run_unit(partial(_promote, ids=ids, now=now))
        )
        moved += sum(answers)
        if not any(answers):
            break
    return moved


async def due_entries(unit: UnitOfWork, now: datetime, *, limit: int) -> list[StoredItem]:
    return await unit.range(_due(now), limit=limit)


def _due(now: datetime) -> KeyRange:
    return KeyRange(key_layout.DUE, end=key_layout.number(to_micros(now) + 1))


async def _promote(unit: UnitOfWork, *, ids: Sequence[str], now: datetime) -> int:
    found = await job_repository.load_many(unit, ids)
    due = [kept for kept in found if kept and not kept.is_detached and is_due(kept.job, now)]
    for kept in due:
        job_repository.save(unit, kept, replace(kept, job=replace(kept.job, state=State.QUEUED)))
    return len(due)


def is_due(job: Job, now: datetime) -> bool:
    """Whether it waits for a time that has come."""
    return job.state in (State.SCHEDULED, State.RETRY_WAIT) and job.available_at <= now

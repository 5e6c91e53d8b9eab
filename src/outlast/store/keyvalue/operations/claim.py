"""Claim jobs: promote what is due, select in claim order, open a run for each."""

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
from outlast.core.transition import has_missed_start_deadline, start_run, to_claim
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import chunks, run_concurrently
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, KeyRange, StoredItem, Value
from outlast.store.keyvalue.intent_recovery import complete_all
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues, reservations
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.repositories.queues import QueueRecord
from outlast.store.keyvalue.unit_of_work import ReadConflict, UnitOfWork

MAX_CLAIM_ROUNDS: Final = 20
"""Rounds of one claim; another round follows where other workers claimed first."""

MAX_CLAIMS_PER_TRANSACTION: Final = 8
"""Claims in one transaction: a conflict with another worker loses few of them."""

MIN_PAGE: Final = 10
MAX_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueClaimRequest:
    """Parameters of one claim."""

    holder: LeaseHolder
    queue: str
    types: frozenset[str]
    lease: timedelta
    prefix: str

    def run_id(self, number: int) -> RunId:
        """Return the id of the claim's run with that number."""
        return RunId(f"{self.prefix}{number:06x}")


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """First read of a claim; `has_pending_work`: a job is due, or an intent is pending."""

    queue: QueueRecord
    ready: list[StoredItem]
    has_pending_work: bool


class KeyValueClaimOperations(KeyValueOperations):
    """Claim queued jobs, and promote due ones."""

    @requires_open_store
    async def claim(
        self,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
    ) -> list[Claim]:
        """Claim up to `limit` jobs of a queue, and up to `prefetch` more that may wait.

        Each chunk of claims is atomic. A paused queue yields none.
        """
        context = self._context
        request = KeyValueClaimRequest(
            holder=holder,
            queue=queue,
            types=frozenset(types),
            lease=lease,
            prefix=context.ids.prefix(),
        )
        snapshot = await _read_snapshot(context, queue, limit + prefetch)
        if snapshot.has_pending_work:
            await _promote_due(context, limit=MAX_PROMOTED_PER_CLAIM)
            snapshot = await _read_snapshot(context, queue, limit + prefetch)
        if snapshot.queue.shown(context.now()).pause is not None:
            return []
        if snapshot.queue.needs_serial_claims:
            return await _claim_serially(context, request, limit)
        return await _claim_unlimited(context, request, limit, prefetch, snapshot.ready)

    @requires_open_store
    async def promote_due(self, *, limit: int) -> int:
        """Move up to `limit` due jobs to QUEUED, the earliest due first; return how many."""
        return await _promote_due(self._context, limit=limit)


async def _read_snapshot(context: StoreContext, name: str, most: int) -> ClaimSnapshot:
    """Read what a claim begins with, in one request where the engine can."""
    asked = [
        (KeyRange(key_layout.PENDING), 1),
        (_due(context.now()), 1),
        (queues.span(name), 1),
        (KeyRange(key_layout.READY + name), _page_size(most)),
    ]

    async def work(_: UnitOfWork) -> ClaimSnapshot:
        left, due, queue, ready = await context.engine.ranges(asked)
        return ClaimSnapshot(queues.found(name, queue), ready, bool(left or due))

    return await context.run_unit(work)


async def _claim_unlimited(
    context: StoreContext,
    request: KeyValueClaimRequest,
    limit: int,
    prefetch: int,
    ready: list[StoredItem] | None,
) -> list[Claim]:
    """Claim from a queue without a limit, in concurrent chunks; repeat those lost to others."""
    claims: list[Claim] = []
    tried, passed = 0, set[str]()
    for _ in range(MAX_CLAIM_ROUNDS):
        now_room = max(0, limit - len(claims))
        room = limit + prefetch - len(claims)
        unit, now = UnitOfWork(context.engine), context.now()
        chosen = await choose(
            unit, request, limit=now_room, most=room, now=now, first=ready, passed=passed
        )
        ready = None
        numbered = list(enumerate(chosen, start=tried))
        claimed = await run_concurrently(
            chunks(context, numbered, records=5, most=MAX_CLAIMS_PER_TRANSACTION),
            partial(_claim_chunk, context, request),
        )
        answers = [answer for told in claimed for answer in told]
        claims += [answer for answer in answers if answer is not None]
        tried += len(chosen)
        taken = {claim.job_id for claim in claims}
        passed |= {entry.value["id"] for entry in chosen} - taken
        if None not in answers:
            break
    return claims


async def _claim_chunk(
    context: StoreContext, request: KeyValueClaimRequest, numbered: Sequence[tuple[int, StoredItem]]
) -> list[Claim | None]:
    """Claim jobs in one unit of work; None for each that another worker claimed first."""

    async def work(unit: UnitOfWork) -> list[Claim | None]:
        await unit.fetch([Key(key_layout.JOB, entry.value["sort"]) for _, entry in numbered])
        return [await _claim_one(unit, context, request, *each) for each in numbered]

    return await context.run_unit(work)


async def _claim_one(
    unit: UnitOfWork,
    context: StoreContext,
    request: KeyValueClaimRequest,
    number: int,
    entry: StoredItem,
) -> Claim | None:
    record = await job_repository.load_at(unit, entry.value["sort"])
    if record is not None and await reservations.active_of(unit, record) is not None:
        return None  # its queue was reserved since the snapshot; the next claim takes it
    return await open_run(unit, context, request, record, request.run_id(number))


async def _claim_serially(
    context: StoreContext, request: KeyValueClaimRequest, limit: int
) -> list[Claim]:
    """Claim one by one from a queue with a concurrency limit or a reservation."""
    claims: list[Claim] = []
    is_last = False
    while len(claims) < limit:
        taken, is_last = await context.run_unit(
            partial(_claim_next, context=context, request=request, n=len(claims))
        )
        claims += [taken] if taken is not None else []
        if taken is None or is_last:
            break
    if claims and is_last:  # the job of a reservation was claimed
        context.notify(Notification(queues=frozenset({request.queue}), ended=True))
    return claims


async def _claim_next(
    unit: UnitOfWork, *, context: StoreContext, request: KeyValueClaimRequest, n: int
) -> tuple[Claim | None, bool]:
    queue, now = await queues.load(unit, request.queue), context.now()
    gate = await queues.gate(unit, queue, now)
    if not gate.capacity(1, 0)[0]:
        return None, True
    record = await _next_job(unit, request, queue, now)
    run_id = request.run_id(n)
    claim = await open_run(
        unit, context, request, record, run_id, is_counted=queue.needs_serial_claims
    )
    if claim is None:
        return None, True
    queues.save(unit, queue)  # unchanged: of two concurrent counts, one conflicts
    if queue.reservation is not None and not gate.keeps_reservation:
        held = await reservations.load(unit, queue.reservation)
        if held is not None:
            await reservations.close(unit, held, ReservationStatus.RELEASED, None, now)
    return claim, queue.reservation is not None


async def _next_job(
    unit: UnitOfWork, request: KeyValueClaimRequest, queue: QueueRecord, now: datetime
) -> JobRecord | None:
    if queue.reserved_for is not None:
        record = await job_repository.load(unit, queue.reserved_for)
        if record is None or record.job.state is not State.QUEUED:
            await unit.require_unchanged(
                [queues.key(request.queue)]
            )  # the reservation may have ended
        return record if record is not None and record.job.type in request.types else None
    passed: set[str] = set()
    while chosen := await choose(unit, request, limit=1, most=1, now=now, passed=passed):
        record = await job_repository.load_at(unit, chosen[0].value["sort"])
        if record is not None and record.job.state is not State.QUEUED:
            raise ReadConflict  # claimed meanwhile; other jobs may be ready
        if record is not None and not record.is_locked(now):
            return record
        passed.add(chosen[0].value["id"])
    return None


async def choose(
    unit: UnitOfWork,
    request: KeyValueClaimRequest,
    *,
    limit: int,
    most: int,
    now: datetime,
    first: list[StoredItem] | None = None,
    passed: Collection[str] = (),
) -> list[StoredItem]:
    """Return the ready entries that one claim takes, in claim order.

    `limit` of them may be of any kind, up to `most` in all if they may wait. `first` is the first
    page, if it has been read. `passed` are jobs that an earlier round could not claim.
    """
    chosen: list[StoredItem] = []
    names: set[str] = set()
    span, page = KeyRange(key_layout.READY + request.queue), _page_size(most)
    while len(chosen) < most:
        entries = await unit.range(span, limit=page) if first is None else first
        first = None
        for entry in entries:
            if len(chosen) == most:
                break
            is_wanted = len(chosen) < limit or entry.value["can_wait"]
            is_wanted = is_wanted and entry.value["id"] not in passed
            if is_wanted and await _is_claimable(unit, request, entry.value, names, now):
                chosen.append(entry)
                names.add(entry.value.get("name", ""))
        if len(entries) < page:
            break
        span = KeyRange(span.part, entries[-1].key.sort + "\0")
    return chosen


def _page_size(most: int) -> int:
    return min(max(MIN_PAGE, 2 * most), MAX_PAGE)


async def _is_claimable(
    unit: UnitOfWork,
    request: KeyValueClaimRequest,
    value: Value,
    names: Collection[str],
    now: datetime,
) -> bool:
    if value["type"] not in request.types or value.get("deadline", to_micros(now)) < to_micros(now):
        return False
    name = value.get("name")
    if name is None:
        return True
    return name not in names and await unit.get(Key(key_layout.ONCE, name)) is None


async def open_run(
    unit: UnitOfWork,
    context: StoreContext,
    request: KeyValueClaimRequest,
    record: JobRecord | None,
    run_id: RunId,
    *,
    is_counted: bool = False,
) -> Claim | None:
    """Open the next run of a queued job under the next token; None if it cannot be claimed now."""
    now = context.now()
    if record is None or record.is_detached or record.job.state is not State.QUEUED:
        return None
    if (
        record.is_locked(now)
        or has_missed_start_deadline(record.job, now)
        or not await _reserve_name(unit, record.job)
    ):
        return None
    job = start_run(record.job, request.holder, now)
    running = replace(
        record,
        job=job,
        is_counted=is_counted,
        run_id=run_id,
        run_started_at=now,
        lease=context.leases.end(request.lease),
        lease_until=now + request.lease,
    )
    job_repository.save(unit, record, running)
    return to_claim(job, run_id)


async def _reserve_name(unit: UnitOfWork, job: Job) -> bool:
    """Return False if another `once` job of that name runs; reserve the name otherwise."""
    if job.delivery is not Delivery.ONCE:
        return True
    key = Key(key_layout.ONCE, job.name)
    if await unit.get(key) is not None:
        return False
    unit.put(key, {"job_id": job.id})
    return True


async def _promote_due(context: StoreContext, *, limit: int) -> int:
    await complete_all(context)
    moved, now = 0, context.now()
    while moved < limit:
        entries = await due_entries(
            UnitOfWork(context.engine), now, limit=min(limit - moved, MAX_PAGE)
        )
        due = chunks(context, [entry.value["id"] for entry in entries], records=6)
        answers = await run_concurrently(
            due, lambda ids: context.run_unit(partial(_promote, ids=ids, now=now))
        )
        moved += sum(answers)
        if not any(answers):
            break
    return moved


async def due_entries(unit: UnitOfWork, now: datetime, *, limit: int) -> list[StoredItem]:
    """Return index entries of jobs that are due, the earliest first."""
    return await unit.range(_due(now), limit=limit)


def _due(now: datetime) -> KeyRange:
    return KeyRange(key_layout.DUE, end=key_layout.number(to_micros(now) + 1))


async def _promote(unit: UnitOfWork, *, ids: Sequence[str], now: datetime) -> int:
    found = await job_repository.load_many(unit, ids)
    due = [
        record for record in found if record and not record.is_detached and is_due(record.job, now)
    ]
    for record in due:
        job_repository.save(
            unit, record, replace(record, job=replace(record.job, state=State.QUEUED))
        )
    return len(due)


def is_due(job: Job, now: datetime) -> bool:
    """Return True if the job waits for a time that has come."""
    return job.state in (State.SCHEDULED, State.RETRY_WAIT) and job.available_at <= now

"""Claim jobs: promote what is due, select in claim order, open a run for each."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.ids import RunId
from outlast.core.job import Job
from outlast.core.reservation import ReservationStatus
from outlast.core.run import Claim, Claims, LeaseHolder
from outlast.core.state import State
from outlast.core.transition import has_missed_start_deadline, start_run, to_claim
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM
from outlast.store.contract.notifications import Notification
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import attempt, run_in_chunks
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Key, StoredItem
from outlast.store.keyvalue.operations import quarantine
from outlast.store.keyvalue.operations.base import KeyValueOperations, requires_open_store
from outlast.store.keyvalue.operations.claim_choice import choose, page_size
from outlast.store.keyvalue.operations.claim_gate import (
    ClaimGate,
    ClaimSnapshot,
    read_snapshot,
)
from outlast.store.keyvalue.operations.claim_recovery import (
    KeyValueClaimRequest,
    claims_despite,
    recover,
)
from outlast.store.keyvalue.operations.promotion import promote_due
from outlast.store.keyvalue.outcomes import FailedItem, failure, succeeded
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues, reservations
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.repositories.queues import QueueRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

MAX_CLAIM_ROUNDS: Final = 20
"""Rounds of one claim; another round follows where other workers claimed first."""

MAX_CLAIMS_PER_TRANSACTION: Final = 8
"""Claims in one transaction: a conflict with another worker loses few of them."""

MAX_PASSED: Final = 1_000
"""Jobs that one claim passes at most."""


class Passed(Enum):
    """Why a claim passed a job."""

    LOST = auto()  # another worker claimed it first, or its record does not fit the entry
    HELD = auto()  # it is locked, reserved or too late
    CLOSED = auto()  # its queue was paused or limited since the claim began


class KeyValueClaimOperations(KeyValueOperations):
    """Claim queued jobs, and promote due ones."""

    @requires_open_store
    async def claim(
        self,
        context: StoreContext,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
        count: int = 0,
    ) -> Claims:
        """Claim up to `limit` jobs of a queue, and up to `prefetch` more that may wait.

        Each chunk of claims is atomic. If one fails, the others are returned; the error is raised
        only if there are none. A paused queue yields none.
        """
        request = KeyValueClaimRequest(
            holder=holder,
            queue=queue,
            types=frozenset(types),
            lease=lease,
            prefix=context.ids.prefix(),
            count=count,
        )
        claims = Claims(await recover(context, request, limit=limit, prefetch=prefetch))
        if claims:
            return claims
        try:
            await _claim(context, request, claims, limit, prefetch)
        except Exception as error:  # noqa: BLE001 - raised again if there are no claims
            claims += await claims_despite(
                error, context, request, claims, limit=limit, prefetch=prefetch
            )
        return claims

    @requires_open_store
    async def promote_due(self, context: StoreContext, *, limit: int) -> int:
        """Move up to `limit` due jobs to QUEUED, the earliest due first; return how many."""
        return await promote_due(context, limit=limit)


async def _claim(
    context: StoreContext,
    request: KeyValueClaimRequest,
    claims: Claims,
    limit: int,
    prefetch: int,
) -> None:
    """Add to `claims` what is claimed, also if it raises at the end."""
    size = page_size(limit + prefetch, count=request.count)
    snapshot = await read_snapshot(context, request.queue, size)
    promoted: int | FailedItem = 0
    if snapshot.has_pending_work:
        promoted = await attempt(MAX_PROMOTED_PER_CLAIM, partial(_promote_due, context))
        snapshot = await read_snapshot(context, request.queue, size)
    while await _is_closed(context, request, claims, limit, prefetch, snapshot):
        snapshot = await read_snapshot(context, request.queue, size)
    if request.count:
        left = sum(entry.value["type"] in request.types for entry in snapshot.ready) - len(claims)
        claims.waiting = min(request.count, max(0, left))
    if not claims:
        claims.due_in = snapshot.due_in
    if isinstance(promoted, FailedItem):
        raise promoted.error


async def _is_closed(
    context: StoreContext,
    request: KeyValueClaimRequest,
    claims: list[Claim],
    limit: int,
    prefetch: int,
    snapshot: ClaimSnapshot,
) -> bool:
    """Claim; return True if the queue was paused or limited meanwhile, before any claim."""
    gate = snapshot.gate
    if gate.record.shown(context.now()).pause is not None:
        return False
    if gate.record.needs_serial_claims:
        await _claim_serially(context, request, claims, limit)
        return False
    try:
        is_closed = await _claim_unlimited(context, request, claims, limit, prefetch, snapshot)
    finally:
        claims[:] = await gate.confirmed(context, request, claims)
    return is_closed and not claims


async def _promote_due(context: StoreContext, limit: int) -> int:
    return await promote_due(context, limit=limit)


async def _claim_unlimited(
    context: StoreContext,
    request: KeyValueClaimRequest,
    claims: list[Claim],
    limit: int,
    prefetch: int,
    snapshot: ClaimSnapshot,
) -> bool:
    """Claim from a queue without a limit, in concurrent chunks; repeat those lost to others.

    Returns True if it stopped because the queue was paused or limited meanwhile.
    """
    tried, lost_rounds, passed = 0, 0, set[str]()
    ready: list[StoredItem] | None = snapshot.ready
    while lost_rounds < MAX_CLAIM_ROUNDS and len(passed) < MAX_PASSED:
        now_room = max(0, limit - len(claims))
        room = limit + prefetch - len(claims)
        unit, now = UnitOfWork(context.engine), context.now()
        chosen = await choose(
            unit, request, limit=now_room, most=room, now=now, first=ready, passed=passed
        )
        ready = None
        numbered = list(enumerate(chosen, start=tried))
        outcomes = await run_in_chunks(
            context,
            numbered,
            partial(_claim_chunk, context, request, snapshot.gate),
            records=5,
            most=MAX_CLAIMS_PER_TRANSACTION,
        )
        answers = succeeded(outcomes)
        claims += [answer for answer in answers if isinstance(answer, Claim)]
        error = failure(outcomes)
        if error is not None:
            raise error
        tried += len(chosen)
        left = [e for e, answer in zip(chosen, answers, strict=True) if answer is Passed.LOST]
        is_contended = await quarantine.set_aside(context, left) < len(left)
        taken = {claim.job_id for claim in claims}
        passed |= {entry.value["id"] for entry in chosen} - taken
        lost_rounds += is_contended
        if Passed.CLOSED in answers:
            return True
        if all(isinstance(answer, Claim) for answer in answers):
            break
    return False


async def _claim_chunk(
    context: StoreContext,
    request: KeyValueClaimRequest,
    gate: ClaimGate,
    numbered: Sequence[tuple[int, StoredItem]],
) -> list[Claim | Passed]:
    """Claim jobs in one unit of work; say of each other one why it was passed."""
    is_first = True

    async def work(unit: UnitOfWork) -> list[Claim | Passed]:
        nonlocal is_first
        if is_first:  # a second attempt follows a conflict, perhaps with a pause, and reads anew
            gate.enter(unit)
        is_first = False
        if not await gate.admits(unit, context):
            return [Passed.CLOSED for _ in numbered]
        await job_repository.fetch_whole(unit, [entry.value["sort"] for _, entry in numbered])
        return [await _claim_one(unit, context, request, *each) for each in numbered]

    return await context.run_unit(work)


async def _claim_one(
    unit: UnitOfWork,
    context: StoreContext,
    request: KeyValueClaimRequest,
    number: int,
    entry: StoredItem,
) -> Claim | Passed:
    record = await job_repository.load_at(unit, entry.value["sort"])
    if record is None or not quarantine.fits(entry, record):
        return Passed.LOST
    if await reservations.active_of(unit, record) is not None:
        return Passed.HELD  # its queue was reserved since the snapshot; the next claim takes it
    claim = await open_run(unit, context, request, record, request.run_id(number))
    return Passed.HELD if claim is None else claim


async def _claim_serially(
    context: StoreContext, request: KeyValueClaimRequest, claims: list[Claim], limit: int
) -> None:
    """Claim one by one from a queue with a concurrency limit or a reservation."""
    is_last = False
    while len(claims) < limit:
        left: list[StoredItem] = []
        taken, is_last = await context.run_unit(
            partial(_claim_next, context=context, request=request, n=len(claims), left=left)
        )
        claims += [taken] if taken is not None else []
        await quarantine.set_aside(context, left)
        if taken is None or is_last:
            break
    if claims and is_last:  # the job of a reservation was claimed
        context.notify(Notification(queues=frozenset({request.queue}), ended=True))


async def _claim_next(
    unit: UnitOfWork,
    *,
    context: StoreContext,
    request: KeyValueClaimRequest,
    n: int,
    left: list[StoredItem],
) -> tuple[Claim | None, bool]:
    queue, now = await queues.load(unit, request.queue), context.now()
    gate = await queues.gate(unit, queue, now)
    if not gate.capacity(1, 0)[0]:
        return None, True
    record = await _next_job(unit, request, queue, now, left)
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
    unit: UnitOfWork,
    request: KeyValueClaimRequest,
    queue: QueueRecord,
    now: datetime,
    left: list[StoredItem],
) -> JobRecord | None:
    """Return the job to claim next; `left` gets the entries that do not fit their job."""
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
        if not quarantine.fits(chosen[0], record):
            left.append(chosen[0])  # claimed meanwhile, or damaged
        elif record is not None and not record.is_locked(now):
            return record
        passed.add(chosen[0].value["id"])
    return None


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
        listed=None,
    )
    job_repository.save(unit, record, running)
    request.opened[run_id] = job.id
    [whole] = await job_repository.whole_jobs(unit, [running])
    return to_claim(whole, run_id)


async def _reserve_name(unit: UnitOfWork, job: Job) -> bool:
    """Return False if another `once` job of that name runs; reserve the name otherwise."""
    if job.delivery is not Delivery.ONCE:
        return True
    key = Key(key_layout.ONCE, job.name)
    if await unit.get(key) is not None:
        return False
    unit.put(key, {"job_id": job.id})
    return True

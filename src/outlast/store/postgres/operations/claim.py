"""Claim jobs: one statement if the queue has no gate, else under the queue's lock."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import repeat
from math import inf
from typing import Any, Final

from outlast.clock import from_micros
from outlast.core.delivery import Delivery
from outlast.core.duration import MICROSECOND
from outlast.core.queue import QueueGate
from outlast.core.run import Claim, Claims, LeaseHolder
from outlast.errors import StoreBusy, StoreUnavailable
from outlast.store.contract.jobs import MAX_DUE_SEEN, MAX_PROMOTED_PER_CLAIM
from outlast.store.postgres.connection import CONNECTION_ERRORS, RETRYABLE, translated
from outlast.store.postgres.operations.base import PostgresOperations
from outlast.store.postgres.operations.queues import lock_queues
from outlast.store.postgres.operations.reservations import release_claimed_reservation
from outlast.store.postgres.operations.savepoint import is_unique_violation
from outlast.store.postgres.operations.scan_floor import ClaimScan
from outlast.store.postgres.retry import retry_while_unavailable
from outlast.store.postgres.unit_of_work import PostgresUnitOfWork, Row
from outlast.store.rows import jobs as job_rows

log = logging.getLogger("outlast.store")

RUN_PREFIX_LENGTH: Final = 30
"""Number of characters that all run ids of one claim share."""

MAX_CLAIM_ATTEMPTS: Final = 20
"""Number of times a claim is repeated after a conflict with another claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresClaimRequest:
    """The parameters of one claim."""

    holder: LeaseHolder
    queue: str
    types: Sequence[str]
    limit: int
    prefetch: int
    lease: timedelta
    count: int
    prefix: str
    opened: int = 0  # runs that an earlier statement opened under the same prefix

    @property
    def worker_key(self) -> dict[str, str]:
        """The worker as the statements name it."""
        return {"instance": self.holder.instance_id, "boot": self.holder.boot_id}

    def values(self, **overrides: Any) -> dict[str, Any]:
        """Return the values of the claim statement; `overrides` replace its defaults."""
        defaults = {
            "queue": self.queue,
            "types": list(self.types),
            "floors": [b""] * len(self.types),
            "limit": self.limit,
            "prefetch": self.prefetch,
            "lease": self.lease // MICROSECOND,
            "prefix": self.prefix,
            "opened": self.opened,
            "promoted": False,
            "gated": False,
            "only": None,
            "slow": inf,
            "count": self.count,
            "due_seen": MAX_DUE_SEEN,
        }
        return defaults | self.worker_key | overrides


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The row that a claim statement returns: the queue gate, the claims and their timing."""

    is_paused: bool
    concurrency: int | None
    is_reserved: bool
    is_due: bool  # a job is due and must be promoted first
    worker_unregistered: bool  # its worker has no row yet
    claims: Claims
    lasts: Sequence[bytes | None]  # last claim order by type, if the scan was slow
    scan_seconds: float  # at the server, until the jobs were found
    total_seconds: float  # at the server, until the statement was done

    @property
    def is_gated(self) -> bool:
        """Whether the queue gate needs the queue's lock."""
        return self.is_paused or self.concurrency is not None or self.is_reserved


class PostgresClaimOperations(PostgresOperations):
    """The claim and the promotion of due jobs."""

    async def claim(
        self,
        holder: LeaseHolder,
        *,
        queue: str,
        types: Collection[str],
        limit: int,
        prefetch: int = 0,
        lease: timedelta,
        count: int = 0,
    ) -> Claims:
        """Claim up to `limit` due jobs, plus `prefetch` jobs that may be prefetched."""
        if limit + prefetch < 1 or not types:
            return Claims()
        request = PostgresClaimRequest(
            holder=holder,
            queue=queue,
            types=sorted(types),
            limit=limit,
            prefetch=prefetch,
            lease=lease,
            count=count,
            prefix="",
        )
        unanswered, key = self._pool.unanswered_claims, (holder, queue)
        prefixes = unanswered.pop(key, {})  # taken: no other claim may return the same runs
        try:
            return await retry_while_unavailable(
                partial(self._claim_idempotent, request, prefixes), self.address
            )
        finally:
            if prefixes:
                unanswered.setdefault(key, {}).update(prefixes)

    async def promote_due(self, *, limit: int) -> int:
        """Queue up to `limit` jobs whose time has come; return their number."""

        async def promote() -> int:
            async with self._pool.connection("claim").acquire() as runner:
                return await runner.change("claim.promote", {"now": self._now, "limit": limit})

        with translated(self.address):
            return await self._pool.repeat_on_conflict(promote)

    async def _claim_idempotent(
        self, request: PostgresClaimRequest, prefixes: dict[str, float]
    ) -> Claims:
        """Claim jobs. If the reply to an earlier attempt was lost, return the runs it opened.

        Runs are found by their run-id prefix, one per attempt. `prefixes` are those of attempts
        without a reply, each with the time at which its leases expire.
        """
        opened = await self._opened_by(prefixes) if prefixes else []
        if opened:
            return Claims(opened)
        prefix = self._ids.prefix()
        expires = asyncio.get_running_loop().time() + request.lease.total_seconds()
        prefixes[prefix] = expires
        claims = await self._claim(replace(request, prefix=prefix))
        del prefixes[prefix]
        return claims

    async def _opened_by(self, prefixes: dict[str, float]) -> list[Claim]:
        """Return the runs that claims without a reply opened, and forget those claims.

        The claim connection is usable only when the session of the broken one has ended, so none
        of them commits later. Behind a pooler that is not known: they stay until they expire.
        """
        async with self._pool.connection("claim").acquire() as runner:
            found = await runner.fetch("claim.opened_by_prefix", {"prefixes": list(prefixes)})
        claims, now = [job_rows.claim(row) for row in found], asyncio.get_running_loop().time()
        answered = {claim.run_id[:RUN_PREFIX_LENGTH] for claim in claims}
        for prefix, expires in tuple(prefixes.items()):
            if prefix in answered or expires < now or not self.address.pooler:
                del prefixes[prefix]
        return claims

    async def _claim(self, request: PostgresClaimRequest) -> Claims:
        promoted = False
        for _ in range(MAX_CLAIM_ATTEMPTS):
            try:
                result = await self._claim_ungated(request, promoted=promoted)
                if result.is_gated and not result.is_paused:
                    return await self._claim_gated(request)
            except RETRYABLE:
                await asyncio.sleep(0)
            except Exception as error:
                if not is_unique_violation(error):  # another claim opened a run of a `once` name
                    raise
            else:
                if not await self._prepare(request, result):
                    return result.claims
                promoted = True
        raise StoreBusy(
            f"{self.address.safe_text}: the claim of queue {request.queue} conflicted with other "
            f"claims {MAX_CLAIM_ATTEMPTS} times; try again"
        )

    async def _claim_gated(self, request: PostgresClaimRequest) -> Claims:
        operation = partial(claim_with_queue_lock, request=request, now=self._now, mono=self._mono)
        return await self._pool.transact(operation, "claim")

    async def _claim_ungated(self, request: PostgresClaimRequest, *, promoted: bool) -> ClaimResult:
        """Claim by the small statement, or by the large one if the queue has a backlog."""
        backlogged, floors = self._pool.backlogged_queues, self._pool.floors
        has_floor = any(floors.of(request.queue, request.types))
        if request.queue in backlogged or has_floor or not request.limit:
            return await self._claim_backlog(request, promoted=promoted)
        small = await self._claim_small(request, promoted=promoted)
        if len(small.claims) < request.limit and small.total_seconds < floors.pace.seconds:
            return small
        backlogged.add(request.queue)
        if small.is_gated or len(small.claims) < request.limit or not request.prefetch:
            return small
        more = await self._prefetch(request, len(small.claims))
        return replace(small, claims=Claims(small.claims + more, waiting=more.waiting))

    async def _prefetch(self, request: PostgresClaimRequest, opened: int) -> Claims:
        """Claim beyond the limit. The claims of the first statement stay valid if this fails."""
        try:
            rest = replace(request, limit=0, opened=opened)
            return (await self._claim_backlog(rest, promoted=True)).claims
        except (StoreUnavailable, *CONNECTION_ERRORS):
            raise  # runs may have been opened: the next attempt finds all of them by their prefix
        except Exception as error:  # noqa: BLE001 - the statement wrote nothing
            log.warning("prefetch failed queue=%s: %s", request.queue, error)
            return Claims()

    async def _claim_small(self, request: PostgresClaimRequest, *, promoted: bool) -> ClaimResult:
        values = {"promoted": promoted, "now": self._now, "mono": self._mono}
        async with self._pool.connection("claim").acquire() as runner:
            return to_result((await runner.fetch("claim.small", request.values(**values)))[0])

    async def _claim_backlog(self, request: PostgresClaimRequest, *, promoted: bool) -> ClaimResult:
        # A claim that only prefetches skips other jobs: its floors are kept apart.
        known = self._pool.floors if request.limit else self._pool.prefetch_floors
        floors = known.of(request.queue, request.types)
        moments = {"now": self._now, "mono": self._mono, "slow": known.pace.seconds}
        values = {"floors": floors, "promoted": promoted, **moments}
        async with self._pool.connection("claim").acquire() as runner:
            result = to_result((await runner.fetch("claim.backlog", request.values(**values)))[0])
        scan = ClaimScan(
            result.lasts, result.scan_seconds, result.total_seconds, was_full=not any(floors)
        )
        known.learn(request.queue, request.types, scan)
        if not any(floors) and len(result.claims) < request.limit + request.prefetch:
            self._pool.backlogged_queues.discard(request.queue)
        return result

    async def _prepare(self, request: PostgresClaimRequest, result: ClaimResult) -> bool:
        """Promote due jobs and add the worker's row; return False if neither was needed."""
        if not result.is_due and not (result.worker_unregistered and not result.is_paused):
            return False
        async with self._pool.connection("claim").acquire() as runner:
            if result.is_due:
                promote = {"now": self._now, "limit": MAX_PROMOTED_PER_CLAIM}
                await runner.change("claim.promote", promote)
            if result.worker_unregistered:
                await runner.change("claim.add_worker", request.worker_key)
        return True


async def claim_with_queue_lock(
    work: PostgresUnitOfWork, request: PostgresClaimRequest, *, now: int | None, mono: int | None
) -> Claims:
    """Claim from a queue with a concurrency limit or a reservation, one claim at a time.

    `now` and `mono` are a test's clock, or None: runs start when the lock was acquired, not when
    the transaction began.
    """
    await lock_queues(work, [request.queue])
    await work.run("claim.promote", now=work.now, limit=MAX_PROMOTED_PER_CLAIM)
    [found] = await work.rows("claim.gate", queue=request.queue, now=work.now)
    is_paused, concurrency, is_reserved, job, open_runs = found
    gate = QueueGate(
        is_paused=is_paused,
        concurrency=concurrency,
        open_runs=open_runs,
        is_reserved=is_reserved,
    )
    limit, prefetch = gate.capacity(request.limit, request.prefetch)
    if limit + prefetch < 1:
        return Claims()
    capacity = {"limit": limit, "prefetch": prefetch, "only": job, "gated": True, "promoted": True}
    await work.run("claim.add_worker", **request.worker_key)
    values = request.values(now=now, mono=mono, **capacity)
    claims = to_result((await work.rows("claim.backlog", **values))[0]).claims
    if claims and gate.is_reserved:
        work.ended = True  # the caller of the direct run waits for this notification
        if not gate.keeps_reservation:
            await release_claimed_reservation(work, request.queue)
    return claims


def to_result(row: Row) -> ClaimResult:
    """Return the result of a claim statement from its row."""
    gate, columns, timing, (due_in, waiting) = row[:5], row[5:16], row[16:19], row[19:]
    lasts, scan_seconds, total_seconds = timing
    claims = Claims(
        () if columns[0] is None else _claims(*columns),
        due_in=None if due_in is None else due_in * MICROSECOND,
        waiting=waiting,
    )
    is_paused, concurrency, is_reserved, is_due, unregistered = gate
    before = (is_paused, concurrency, is_reserved, is_due, unregistered)
    return ClaimResult(*before, claims, lasts or (), scan_seconds or 0.0, total_seconds)


_DELIVERIES = {str(delivery): delivery for delivery in Delivery}


def _claims(
    jobs: Any, tokens: Any, runs: Any, types: Any, params: Any, deliveries: Any, *others: Any
) -> list[Claim]:
    """Build claims from columns. This is the hottest loop of a worker."""
    named = [_DELIVERIES[delivery] for delivery in deliveries]
    *counts, slots, metadatas = others
    if slots is None and metadatas is None:
        return list(map(Claim, jobs, tokens, runs, types, params, named, *counts))
    moments = [None if at is None else from_micros(at) for at in slots or [None] * len(jobs)]
    more = (repeat(False), moments, metadatas or repeat(None))
    return list(map(Claim, jobs, tokens, runs, types, params, named, *counts, *more))

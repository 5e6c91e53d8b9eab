"""Claim jobs: promote what is due, select in claim order, open the runs."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.limits import MAX_PAYLOAD, is_storable
from outlast.core.queue import QueueGate
from outlast.core.run import Claims, LeaseHolder
from outlast.store.contract.jobs import (
    MAX_CLAIM_BYTES,
    MAX_DUE_SEEN,
    MAX_PROMOTED_PER_CLAIM,
)
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.operations.base import SqliteOperations, require_open_store
from outlast.store.sqlite.writer import WriteTransaction


class SqliteClaimOperations(SqliteOperations):
    """Claim jobs and promote due ones."""

    max_claim_bytes: int = MAX_CLAIM_BYTES

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
        """Claim up to `limit` jobs, and up to `prefetch` more; return their runs."""
        if limit + prefetch < 1 or not types:
            return Claims()
        known = sorted(name for name in set(types) if is_storable(name))  # no job has another
        request = SqliteClaimRequest(
            holder=holder,
            queue=queue,
            types=to_json_param(known),
            limit=limit,
            prefetch=prefetch,
            lease=lease,
            count=count,
            max_bytes=self.max_claim_bytes,
            run_id_prefix=self._ids.prefix(),
        )
        claims: Claims = (await self._writer.submit(claim, [request]))[0]
        return claims

    async def promote_due(self, *, limit: int) -> int:
        """Move up to `limit` due jobs to `queued`; return how many moved."""
        moved: int = (await self._writer.submit(promote_due, [limit]))[0]
        return moved


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteClaimRequest:
    """One call of `claim`."""

    holder: LeaseHolder
    queue: str
    types: str  # as JSON
    limit: int
    prefetch: int
    lease: timedelta
    count: int
    max_bytes: int
    run_id_prefix: str


@require_open_store
def claim(tx: WriteTransaction, requests: Sequence[SqliteClaimRequest]) -> list[Claims]:
    """Serve each request in turn: a job goes to the first request that selects it."""
    return [_claim_one(tx, request) for request in requests]


@require_open_store
def promote_due(tx: WriteTransaction, limits: Sequence[int]) -> list[int]:
    """Promote due jobs of all queues; return the number for each limit."""
    return [tx.run("claim.promote", now=tx.now, limit=limit).rowcount for limit in limits]


def _claim_one(tx: WriteTransaction, request: SqliteClaimRequest) -> Claims:
    tx.run("claim.promote", now=tx.now, limit=MAX_PROMOTED_PER_CLAIM)
    gate, reserved_job = _queue_gate(tx, request.queue)
    if not _select(tx, request, gate, reserved_job):
        return Claims(due_in=_due_in(tx, request))
    holder = {"instance": request.holder.instance_id, "boot": request.holder.boot_id}
    tx.run("claim.worker", **holder)
    until = tx.mono + request.lease // MICROSECOND
    tx.run("claim.open", now=tx.now, until=until, prefix=request.run_id_prefix, **holder)
    tx.run("claim.leave_waiting")
    if gate.is_reserved:
        _use_reservation(tx, request.queue, gate)
    claims = map(job_rows.claim, json.loads(tx.value("claim.claimed")))
    return Claims(claims, waiting=_count_waiting(tx, request) if request.count else None)


def _due_in(tx: WriteTransaction, request: SqliteClaimRequest) -> timedelta | None:
    values = {"queue": request.queue, "types": request.types, "most": MAX_DUE_SEEN}
    due_at = tx.value("claim.next_due", now=tx.now, **values)
    return None if due_at is None else (due_at - tx.now) * MICROSECOND


def _count_waiting(tx: WriteTransaction, request: SqliteClaimRequest) -> int:
    values = {"queue": request.queue, "types": request.types, "most": request.count}
    waiting: int = tx.value("claim.count_waiting", **values)
    return waiting


def _queue_gate(tx: WriteTransaction, queue: str) -> tuple[QueueGate, int | None]:
    """Return the gate of the queue and its reserved job; the write lock keeps both current."""
    found = tx.run("claim.gate", queue=queue, now=tx.now).fetchone()
    is_paused, concurrency, is_reserved, reserved_job = found
    gate = QueueGate(
        is_paused=bool(is_paused),
        concurrency=concurrency,
        open_runs=0 if concurrency is None else tx.value("claim.count_open", queue=queue),
        is_reserved=bool(is_reserved),
    )
    return gate, reserved_job


def _select(
    tx: WriteTransaction, request: SqliteClaimRequest, gate: QueueGate, reserved_job: int | None
) -> bool:
    """Write the jobs to claim into the temporary table; return whether there are any.

    Stops at the job whose params reach the request's number of bytes: one value holds all claims.
    """
    limit, prefetch = gate.capacity(request.limit, request.prefetch)
    if limit + prefetch < 1:
        return False
    tx.run("claim.clear")
    values = {"types": request.types, "now": tx.now}
    if gate.is_reserved:
        return tx.run("claim.select_reserved", job=reserved_job, **values).rowcount > 0
    values |= {"queue": request.queue, "limit": limit, "prefetch": prefetch}
    selected = tx.run("claim.select", **values).rowcount
    if selected * MAX_PAYLOAD > request.max_bytes:
        fitting = tx.value("claim.fitting", selected=selected, most=request.max_bytes)
        if fitting < selected:
            tx.run("claim.leave_rest", fitting=fitting)
    return selected > 0


def _use_reservation(tx: WriteTransaction, queue: str, gate: QueueGate) -> None:
    tx.notify_ended = True  # the caller of a direct run waits for its claim
    if not gate.keeps_reservation:
        tx.run("reservations.use", queue=queue, now=tx.now)
        tx.notify_queues.add(queue)

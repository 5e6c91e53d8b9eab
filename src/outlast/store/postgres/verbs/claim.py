"""Taking jobs: what stands before them, and the runs that are opened."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import repeat
from math import inf
from typing import Any

from outlast.clock import from_micros
from outlast.core.delivery import Delivery
from outlast.core.duration import MICROSECOND
from outlast.core.queue import QueueGate
from outlast.core.run import Claim, LeaseHolder
from outlast.store.contract.jobs import PROMOTED_AT_ONCE
from outlast.store.postgres.unit_of_work import Row, UnitOfWork
from outlast.store.postgres.verbs.queue import lock_queues
from outlast.store.postgres.verbs.reservation import use_reservation


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """What one claim asks for."""

    holder: LeaseHolder
    queue: str
    types: Sequence[str]
    limit: int
    prefetch: int
    lease: timedelta
    prefix: str
    opened: int = 0  # runs under that prefix, by an earlier statement

    @property
    def who(self) -> dict[str, str]:
        return {"instance": self.holder.instance_id, "boot": self.holder.boot_id}

    def values(self, **others: Any) -> dict[str, Any]:
        """What the statement takes; `others` are in place of what it takes by default."""
        asked = {
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
        }
        return asked | self.who | others


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What the statement answers: what stood before it, what it took, how long that took."""

    is_paused: bool
    concurrency: int | None
    is_reserved: bool
    is_due: bool
    worker_unregistered: bool  # its worker has no row yet
    claims: list[Claim]
    lasts: Sequence[bytes | None]  # how far the look came, by type, if it took long
    looked: float  # seconds at the server until the jobs were found
    seconds: float  # and until it was done

    @property
    def is_gated(self) -> bool:
        return self.is_paused or self.concurrency is not None or self.is_reserved


def taken(row: Row) -> ClaimResult:
    gate, columns, (lasts, looked, seconds) = row[:5], row[5:15], row[15:]
    claims = [] if columns[0] is None else _claims(*columns)
    is_paused, concurrency, is_reserved, is_due, is_stranger = gate
    before = (is_paused, concurrency, is_reserved, is_due, is_stranger)
    return ClaimResult(*before, claims, lasts or (), looked or 0.0, seconds)


async def claim_with_queue_lock(
    work: UnitOfWork, wanted: ClaimRequest, *, now: int | None, mono: int | None
) -> list[Claim]:
    """Of a queue that counts its runs, or is held: one claim at a time, first the lock.

    The runs begin when the lock was ours, not when we began to wait for it; the moments are a
    test's, or None.
    """
    await lock_queues(work, [wanted.queue])
    await work.run("claim.promote", now=work.now, limit=PROMOTED_AT_ONCE)
    [found] = await work.rows("claim.gate", queue=wanted.queue, now=work.now)
    is_paused, concurrency, is_reserved, job, open_runs = found
    gate = QueueGate(
        is_paused=is_paused,
        concurrency=concurrency,
        open_runs=open_runs,
        is_reserved=is_reserved,
    )
    limit, prefetch = gate.capacity(wanted.limit, wanted.prefetch)
    if limit + prefetch < 1:
        return []
    room = {"limit": limit, "prefetch": prefetch, "only": job, "gated": True, "promoted": True}
    await work.run("claim.add_worker", **wanted.who)
    values = wanted.values(now=now, mono=mono, **room)
    claims = taken((await work.rows("claim.backlog", **values))[0]).claims
    if claims and gate.is_reserved:
        await _use(work, wanted.queue, gate)
    return claims


async def _use(work: UnitOfWork, queue: str, gate: QueueGate) -> None:
    work.ended = True  # whoever asked for it waits to hear that it was taken
    if not gate.keeps_reservation:
        await use_reservation(work, queue)


_DELIVERIES = {str(delivery): delivery for delivery in Delivery}


def _claims(
    jobs: Any, tokens: Any, runs: Any, types: Any, params: Any, deliveries: Any, *others: Any
) -> list[Claim]:
    """From columns: a worker's hottest loop."""
    named = [_DELIVERIES[delivery] for delivery in deliveries]
    *counts, slots = others
    if slots is None:
        return list(map(Claim, jobs, tokens, runs, types, params, named, *counts))
    moments = [None if at is None else from_micros(at) for at in slots]
    unasked = repeat(False)  # none of them was cancelled yet
    return list(map(Claim, jobs, tokens, runs, types, params, named, *counts, unasked, moments))

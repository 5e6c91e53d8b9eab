"""Leases of open runs: renew them, and find those that have expired.

A renewal writes the job's record and nothing else. `open#` lists the run under the lease end of its
claim, which is a lower bound. Maintenance finds no lease too late; it looks at the records of those
that seem expired, and lists the living ones under their present end.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from outlast.core.run import Lease
from outlast.store.contract.jobs import Renewal
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.batching import run_concurrently, run_in_chunks
from outlast.store.keyvalue.clocks import SHARED, LeaseExpiry
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.outcomes import require_all
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import reservations
from outlast.store.keyvalue.repositories.job_codec import JobRecord, to_value
from outlast.store.keyvalue.unit_of_work import UnitOfWork

MAX_RENEWED: Final = 25
"""Renewals in one transaction: one that conflicts with the end of a run is repeated."""

LARGE: Final = 3_800
"""Characters of a record that is renewed alone, as DynamoDB bills transactions twice."""


async def renew(context: StoreContext, leases: Sequence[Lease], span: timedelta) -> list[Renewal]:
    """Renew leases; return for each whether it is still held."""
    together = partial(_renew_together, context, span)
    outcomes = await run_in_chunks(context, leases, together, records=2, most=MAX_RENEWED)
    left = [lease for lease, outcome in zip(leases, outcomes, strict=True) if outcome is None]
    alone = iter(await run_concurrently(left, partial(_renew_alone, context, span)))
    return require_all([next(alone) if each is None else each for each in outcomes])


async def _renew_together(
    context: StoreContext, span: timedelta, leases: Sequence[Lease]
) -> list[Renewal | None]:
    """Renew leases in one unit of work; None for each whose record is renewed alone."""

    async def work(unit: UnitOfWork) -> list[Renewal | None]:
        await job_repository.load_many(unit, [lease.job_id for lease in leases])
        is_alone = len(leases) == 1
        return [await _renew(unit, context, span, lease, is_alone=is_alone) for lease in leases]

    return await context.run_unit(work)


async def _renew_alone(context: StoreContext, span: timedelta, lease: Lease) -> Renewal:
    work = partial(_renew, context=context, span=span, lease=lease, is_alone=True)
    return await context.run_unit(work) or Renewal(held=False)


async def _renew(
    unit: UnitOfWork, context: StoreContext, span: timedelta, lease: Lease, *, is_alone: bool
) -> Renewal | None:
    record = await job_repository.load(unit, lease.job_id)
    if record is None or not record.is_open or record.job.token != lease.token:
        return Renewal(held=False)
    if not is_alone and len(json.dumps(to_value(record), ensure_ascii=False).encode()) > LARGE:
        return None
    job_repository.save(unit, record, _renewed(record, context, span))
    held = await reservations.active_of(unit, record)
    if held is not None:
        reservations.save(unit, reservations.extended(held, held.span, context))
    return Renewal(held=True, cancel_requested=record.job.cancel_requested)


def _renewed(record: JobRecord, context: StoreContext, span: timedelta) -> JobRecord:
    end, place = context.leases.end(span), record.place
    is_bound = place is not None and place.boot == end.boot and place.at <= end.at
    until = context.now() + span
    return replace(record, lease=end, lease_until=until, listed=place if is_bound else None)


def expired_ranges(context: StoreContext, name: str) -> list[KeyRange]:
    """Return the key ranges of a queue's open runs whose lease may have expired."""
    part, boot = key_layout.OPEN + name, context.leases.boot
    own = KeyRange(part, f"{boot}#", f"{boot}#{key_layout.number(context.leases.past + 1)}")
    if boot == SHARED:
        return [own]
    return [own, KeyRange(part, end=f"{boot}#"), KeyRange(part, f"{boot}$")]


def divided(
    context: StoreContext, found: Sequence[JobRecord | None]
) -> tuple[list[JobRecord], list[JobRecord]]:
    """Return jobs whose lease has expired, the longest first, and those whose lease is held."""
    opened = [(record.lease, record) for record in found if record and record.lease]
    ends = [(end, record) for end, record in opened if context.leases.is_over(end)]
    ends.sort(key=lambda pair: (*_order(context, pair[0]), pair[1].job.seq))
    living = [record for end, record in opened if not context.leases.is_over(end)]
    return [record for _, record in ends], living


def _order(context: StoreContext, end: LeaseExpiry) -> tuple[bool, int]:
    return end.boot == context.leases.boot, end.at


async def list_anew(context: StoreContext, living: Sequence[JobRecord]) -> None:
    """List open runs under their present lease end, so that they no longer seem expired."""
    ids = [record.job.id for record in living]
    work = partial(_list_together, context)
    require_all(await run_in_chunks(context, ids, work, records=3, most=MAX_RENEWED))


async def _list_together(context: StoreContext, ids: Sequence[str]) -> list[None]:
    async def work(unit: UnitOfWork) -> list[None]:
        found = await job_repository.load_many(unit, ids)
        for record in found:
            if record is not None and record.is_open and record.listed is not None:
                job_repository.save(unit, record, replace(record, listed=None))
        return [None for _ in found]

    return await context.run_unit(work)

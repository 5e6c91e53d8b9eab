"""Claims that failed in part: keep what was claimed, and find what may have been.

A run whose transaction failed may be open without the knowledge of its worker. It is looked up at
once, and again by each claim of that worker, until its job has gone on. It would be lost otherwise,
without a call of its handler.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from outlast.core.ids import JobId, RunId
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import State
from outlast.core.transition import may_be_prefetched, to_claim
from outlast.errors import OperatorError
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories.job_codec import JobRecord
from outlast.store.keyvalue.unit_of_work import UnitOfWork

log = logging.getLogger("outlast.store")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueClaimRequest:
    """Parameters of one claim; `opened` has the runs that it has tried to open."""

    holder: LeaseHolder
    queue: str
    types: frozenset[str]
    lease: timedelta
    prefix: str
    count: int = 0
    opened: dict[RunId, JobId] = field(default_factory=dict)

    def run_id(self, number: int) -> RunId:
        """Return the id of the claim's run with that number."""
        return RunId(f"{self.prefix}{number:06x}")


async def claims_despite(
    error: Exception,
    context: StoreContext,
    request: KeyValueClaimRequest,
    claims: Sequence[Claim],
    *,
    limit: int,
    prefetch: int,
) -> list[Claim]:
    """Return further claims that were written after all; raise the error if there are none."""
    claimed = {claim.run_id for claim in claims}
    doubtful = {run: job for run, job in request.opened.items() if run not in claimed}
    context.unanswered_claims.note(request.holder, request.queue, doubtful)
    room = limit + prefetch - len(claims)
    limit = max(0, limit - len(claims))
    found: list[Claim] = []
    with suppress(OperatorError):  # the next claim looks again
        found = await recover(context, request, limit=limit, prefetch=room - limit)
    if not claims and not found:
        raise error
    level = logging.INFO if isinstance(error, OperatorError) else logging.ERROR
    log.log(level, "a part of a claim of queue %s failed: %s", request.queue, error)
    return found


async def recover(
    context: StoreContext, request: KeyValueClaimRequest, *, limit: int, prefetch: int
) -> list[Claim]:
    """Return runs that are open after all: up to `limit`, and `prefetch` more that may wait."""
    holder, queue, unanswered = request.holder, request.queue, context.unanswered_claims
    runs = unanswered.of(holder, queue)
    if not runs:
        return []
    load = partial(_load_whole, job_ids=list(runs.values()))
    records = dict(zip(runs, await context.run_unit(load), strict=True))
    claims = _chosen(records, limit, prefetch)
    known = {claim.run_id for claim in claims}
    for run_id, record in records.items():
        if run_id in known or _can_never_open(run_id, record):
            unanswered.forget(holder, queue, run_id)
    return claims


async def _load_whole(unit: UnitOfWork, *, job_ids: Sequence[JobId]) -> list[JobRecord | None]:
    records = await job_repository.load_many(unit, job_ids)
    whole = {job.id: job for job in await job_repository.whole_jobs(unit, records)}
    return [record and replace(record, job=whole[record.job.id]) for record in records]


def _chosen(records: Mapping[RunId, JobRecord | None], limit: int, prefetch: int) -> list[Claim]:
    claims: list[Claim] = []
    for run_id, record in records.items():
        if record is None or record.run_id != run_id:
            continue
        claim = to_claim(record.job, run_id)
        may_wait = len(claims) < limit + prefetch and may_be_prefetched(claim)
        claims += [claim] if len(claims) < limit or may_wait else []
    return claims


def _can_never_open(run_id: RunId, record: JobRecord | None) -> bool:
    """Return False while the run is open, or its transaction may still be under way."""
    if record is None:
        return True
    return record.run_id != run_id and record.job.state is not State.QUEUED

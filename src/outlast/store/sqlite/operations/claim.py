"""Taking jobs: promote, pick, open the runs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.queue import QueueGate
from outlast.core.run import Claim, LeaseHolder
from outlast.store.contract.jobs import MAX_PROMOTED_PER_CLAIM
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import to_json_param
from outlast.store.sqlite.verbs.footing import require_open_store
from outlast.store.sqlite.writer import WriteTransaction


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


@require_open_store
def claim(work: WriteTransaction, asked: Sequence[ClaimRequest]) -> list[list[Claim]]:
    return [_claim(work, wanted) for wanted in asked]


def _claim(work: WriteTransaction, wanted: ClaimRequest) -> list[Claim]:
    work.run("claim.promote", now=work.now, limit=MAX_PROMOTED_PER_CLAIM)
    gate, reserved = _gate(work, wanted.queue)
    if not _pick(work, wanted, gate, reserved):
        return []
    who = {"instance": wanted.holder.instance_id, "boot": wanted.holder.boot_id}
    work.run("claim.worker", **who)
    until = work.mono + wanted.lease // MICROSECOND
    work.run("claim.open", now=work.now, until=until, prefix=wanted.prefix, **who)
    work.run("claim.leave")
    if gate.is_reserved:
        _use_reservation(work, wanted.queue, gate)
    return [job_rows.claim(row) for row in json.loads(work.one("claim.claimed"))]


def _gate(work: WriteTransaction, queue: str) -> tuple[QueueGate, int | None]:
    """Read under the write lock that the claim holds anyway: nobody comes in between."""
    found = work.run("claim.gate", queue=queue, now=work.now).fetchone()
    is_paused, concurrency, is_reserved, job = found
    gate = QueueGate(
        is_paused=bool(is_paused),
        concurrency=concurrency,
        open_runs=0 if concurrency is None else work.one("claim.count_open", queue=queue),
        is_reserved=bool(is_reserved),
    )
    return gate, job


def _pick(
    work: WriteTransaction, wanted: ClaimRequest, gate: QueueGate, reserved: int | None
) -> bool:
    """Whether there is anything to take."""
    limit, prefetch = gate.capacity(wanted.limit, wanted.prefetch)
    if limit + prefetch < 1:
        return False
    work.run("claim.clear")
    asked = {"types": to_json_param(list(dict.fromkeys(wanted.types))), "now": work.now}
    if gate.is_reserved:
        return work.run("claim.pick_reserved", job=reserved, **asked).rowcount > 0
    room = {"limit": limit, "prefetch": prefetch}
    return work.run("claim.pick", queue=wanted.queue, **room, **asked).rowcount > 0


def _use_reservation(work: WriteTransaction, queue: str, gate: QueueGate) -> None:
    work.ended = True  # whoever asked for it waits to hear that it was taken
    if not gate.keeps_reservation:
        work.run("reservations.use", queue=queue, now=work.now)
        work.queues.add(queue)

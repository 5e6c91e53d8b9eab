"""Taking jobs: promote, pick, open the runs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from outlast.core.duration import MICROSECOND
from outlast.core.queue import Gate
from outlast.core.run import Claim, Holder
from outlast.store.base import PROMOTED_AT_ONCE
from outlast.store.rows import jobs as job_rows
from outlast.store.rows.jobs import dumps
from outlast.store.sqlite.verbs.footing import while_open
from outlast.store.sqlite.writer import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one claim asks for."""

    holder: Holder
    queue: str
    types: Sequence[str]
    limit: int
    prefetch: int
    lease: timedelta
    prefix: str


@while_open
def claim(work: Work, asked: Sequence[Wanted]) -> list[list[Claim]]:
    return [_claim(work, wanted) for wanted in asked]


def _claim(work: Work, wanted: Wanted) -> list[Claim]:
    work.run("claim.promote", now=work.now, limit=PROMOTED_AT_ONCE)
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


def _gate(work: Work, queue: str) -> tuple[Gate, int | None]:
    """Read under the write lock that the claim holds anyway: nobody comes in between."""
    found = work.run("claim.gate", queue=queue, now=work.now).fetchone()
    is_paused, concurrency, is_reserved, job = found
    gate = Gate(
        is_paused=bool(is_paused),
        concurrency=concurrency,
        open_runs=0 if concurrency is None else work.one("claim.count_open", queue=queue),
        is_reserved=bool(is_reserved),
    )
    return gate, job


def _pick(work: Work, wanted: Wanted, gate: Gate, reserved: int | None) -> bool:
    """Whether there is anything to take."""
    limit, prefetch = gate.room(wanted.limit, wanted.prefetch)
    if limit + prefetch < 1:
        return False
    work.run("claim.clear")
    asked = {"types": dumps(list(dict.fromkeys(wanted.types))), "now": work.now}
    if gate.is_reserved:
        return work.run("claim.pick_reserved", job=reserved, **asked).rowcount > 0
    room = {"limit": limit, "prefetch": prefetch}
    return work.run("claim.pick", queue=wanted.queue, **room, **asked).rowcount > 0


def _use_reservation(work: Work, queue: str, gate: Gate) -> None:
    work.ended = True  # whoever asked for it waits to hear that it was taken
    if not gate.keeps_reservation:
        work.run("reservation.use", queue=queue, now=work.now)
        work.queues.add(queue)

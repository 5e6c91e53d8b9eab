"""Taking jobs: promote, pick, open the runs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from holdfast.core.queue import Gate
from holdfast.core.run import Claim, Holder
from holdfast.core.span import MICROSECOND
from holdfast.store.base import PROMOTED_AT_ONCE
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.rows import dumps
from holdfast.store.sqlite.writer import Work


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


def claim(work: Work, asked: Sequence[Wanted]) -> list[list[Claim]]:
    return [_claim(work, wanted) for wanted in asked]


def _claim(work: Work, wanted: Wanted) -> list[Claim]:
    holder = wanted.holder
    work.run("claim.promote", now=work.now, limit=PROMOTED_AT_ONCE)
    limit, prefetch = _gate(work, wanted.queue).room(wanted.limit, wanted.prefetch)
    if limit + prefetch < 1:
        return []
    work.run("claim.clear")
    picked = work.run(
        "claim.pick",
        queue=wanted.queue,
        types=dumps(list(wanted.types)),
        limit=limit,
        prefetch=prefetch,
        now=work.now,
    )
    if picked.rowcount <= 0:
        return []
    who = {"instance": holder.instance_id, "boot": holder.boot_id}
    work.run("claim.worker", **who)
    until = work.mono + wanted.lease // MICROSECOND
    work.run("claim.open", now=work.now, until=until, prefix=wanted.prefix, **who)
    work.run("claim.leave")
    return [rows.claim(row) for row in json.loads(work.one("claim.claimed"))]


def _gate(work: Work, queue: str) -> Gate:
    """Read under the write lock that the claim holds anyway: nobody comes in between."""
    is_paused, concurrency = work.run("claim.gate", queue=queue, now=work.now).fetchone()
    open_runs = 0 if concurrency is None else work.one("claim.count_open", queue=queue)
    return Gate(is_paused=bool(is_paused), concurrency=concurrency, open_runs=open_runs)

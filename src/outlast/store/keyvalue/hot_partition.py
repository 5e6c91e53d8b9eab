"""Warning before the partitions of jobs take no more writes."""

from datetime import datetime, timedelta
from typing import Final

from outlast.clock import to_micros
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine, KeyRange
from outlast.store.keyvalue.shards import MAX_SHARDS

JOB_UNITS: Final = 8
"""Write units of a small job under the partition key of jobs, from enqueue to pruning."""

PERIOD: Final = timedelta(minutes=1)
SHARE: Final = 0.7
"""Share of what the partitions take from which on there is a warning."""


async def warnings(engine: Engine, now: datetime) -> list[str]:
    """Return a warning if the jobs that ended lately used most of what the partitions take."""
    limits = engine.limits
    if limits.partition_units is None:
        return []
    per_second = limits.partition_units * limits.shards / JOB_UNITS
    most = int(SHARE * per_second * PERIOD.total_seconds())
    span = KeyRange(key_layout.ENDED, key_layout.number(to_micros(now - PERIOD)))
    if len(await engine.range(span, limit=most)) < most:
        return []
    warning = (
        f"at least {most:,} jobs ended in the last minute, {SHARE:.0%} of what {limits.shards} "
        f"shard(s) take: {per_second:,.0f} small jobs per second; then the store throttles. "
        f"{_remedy(2 * limits.shards)}"
    )
    return [warning]


def _remedy(shards: int) -> str:
    if shards > MAX_SHARDS:
        return "Move some of the queues to another table"
    return f"Copy the jobs to a store with ?shards={shards} (outlast db copy)"

"""Write units of each operation on DynamoDB by payload, a part of `bench keyvalue`."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from bench.billing import Bill
from outlast.core.decide import succeed
from outlast.core.ids import JobId
from outlast.core.job import NewJob
from outlast.core.run import Claim, LeaseHolder
from outlast.store.keyvalue.store import KeyValueStore

SIZES: Final = (20, 10 * 1024, 200 * 1024)
LEASE: Final = timedelta(seconds=15)
HOLDER: Final = LeaseHolder(instance_id="worker-1", boot_id="01980000-0000-7000-8000-000000000000")
QUEUE: Final = "units"


@dataclass(frozen=True, slots=True)
class Parts:
    """Write units of one operation, by partition key."""

    operation: str
    units: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.units.values())

    @property
    def account(self) -> str:
        """Each unit accounted for, the largest share first."""
        words = Counter[str]()
        for part, amount in self.units.items():
            words[part.partition("#")[0]] += amount
        return ", ".join(f"`{word}` {amount}" for word, amount in words.most_common())


async def operations(
    store: KeyValueStore, bill: Bill, numbers: Iterator[int], size: int
) -> list[Parts]:
    """Take one job with params of that size through its life; return what each step writes."""
    params = json.dumps("x" * (size - 2))
    await store.add([_job(next(numbers), params)])  # registers the queue
    [first] = await _claimed(store)
    await store.apply([succeed(first.job_id, first.token, None)])
    await store.prune(older_than=timedelta(0), limit=1_000)
    claims: list[Claim] = []

    async def claim() -> None:
        claims.extend(await _claimed(store))

    acts: dict[str, Callable[[], Awaitable[Any]]] = {
        "enqueue": lambda: store.add([_job(next(numbers), params)]),
        "claim": claim,
        "renewal": lambda: store.renew([claims[0].lease], span=LEASE),
        "progress": lambda: store.record_progress([(claims[0].lease, '{"done":50}')]),
        "end": lambda: store.apply([succeed(claims[0].job_id, claims[0].token, None)]),
        "prune": lambda: store.prune(older_than=timedelta(0), limit=10),
    }
    return [await _counted(name, act, bill) for name, act in acts.items()]


async def lines(
    store: KeyValueStore, bill: Bill, numbers: Iterator[int], sizes: Sequence[int]
) -> list[list[str]]:
    """Return the rows of a table: units by size, and the account of the smallest."""
    by_size = [await operations(store, bill, numbers, size) for size in sizes]
    rows = [["write units on AWS", *(f"{size:,} B" for size in sizes), "the smallest by partition"]]
    for steps in zip(*by_size, strict=True):
        totals = [str(step.total) for step in steps]
        rows.append([steps[0].operation, *totals, steps[0].account])
    return rows


async def _counted(name: str, act: Callable[[], Awaitable[Any]], bill: Bill) -> Parts:
    bill.reset()
    await act()
    return Parts(name, dict(bill.units))


async def _claimed(store: KeyValueStore) -> list[Claim]:
    return await store.claim(HOLDER, queue=QUEUE, types=["mail.send"], limit=1, lease=LEASE)


def _job(number: int, params: str) -> NewJob:
    job_id = JobId(f"00000000-0000-7000-8001-{number:012x}")
    return NewJob(id=job_id, type="mail.send", name="mail.send", params=params, queue=QUEUE)

"""Random operations on a store, in any order, in a process that may be killed."""

import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta, timezone
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    CancelRequested,
    Event,
    Failed,
    Lost,
    Released,
    Skipped,
    Snoozed,
    Succeeded,
)
from outlast.core.ids import Ids, JobId
from outlast.core.job import NewJob
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import Loss
from outlast.errors import TransitionRefused
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.statements import Probe
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from support.crash.sqlite_target import dump

from .store_programs import LEASE, SECOND, TYPE

ENDS: Final[list[Event]] = [
    Succeeded('"done"'),
    Succeeded(),
    Failed("it broke"),
    Failed("it broke", SECOND),
    Failed("it broke", permanent=True),
    Lost(Loss.OWNER_DEAD),
    Released("drain"),
    Snoozed(SECOND),
    Skipped("empty"),
    CancelRequested("enough"),
]

STATEMENTS: Final = 400
"""Fewer than any `random_work` sends, both sides of each counted: all of it never gets done."""


async def operate_until_killed(_mouth: Connection, path: Path, seed: int, hour: int) -> None:
    """Do random things to the store until this process kills itself at a random statement."""
    random = Random(seed)
    left = random.randrange(5, 200)

    def probe(_name: str, _after: bool) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    clock = FakeClock()
    clock.advance(timedelta(hours=hour))
    store = SqliteStore(path, clock=clock, probe=probe)
    await store.open()
    operations = RandomOperations(store, clock, random, hour)
    while True:
        await random.choice(operations.all)()


async def work_until_killed(mouth: Connection, path: Path, seed: int) -> None:
    """Do the same random things every time, and tell the number of each one that is durable.

    The process kills itself at a random statement after the store is open.
    """
    left, is_open = Random(seed).randrange(1, STATEMENTS), False

    def probe(_name: str, _after: bool) -> None:
        nonlocal left
        left -= is_open
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    async for number in random_work(path, seed, probe):
        mouth.send(number)
        is_open = True


async def random_work(path: Path, seed: int, probe: Probe | None = None) -> AsyncIterator[int]:
    """Random things that are the same for one seed: ids, clock and all. Ends by itself."""
    clock, random = FakeClock(), Random(seed)
    ids = Ids(clock.now, Random(seed).getrandbits)
    store = SqliteStore(path, clock=clock, ids=ids, probe=probe)
    await store.open()
    operations = RandomOperations(store, clock, random, seed)
    yield 0
    for number in range(1, 41):
        await random.choice(operations.all)()
        yield number
    await store.close()


class RandomOperations:
    """What may happen to a store, in any order; each operation writes once."""

    def __init__(self, store: SqliteStore, clock: FakeClock, random: Random, seed: int) -> None:
        self.all = [self.add, self.add, self.claim, self.claim, self.end, self.end, self.cancel,
                    self.reclaim, self.promote, self.prune]  # fmt: skip
        self._store = store
        self._clock = clock
        self._random = random
        self._numbers = count(seed * 1_000_000)
        self._held: list[Claim] = []

    async def add(self) -> None:
        await self._store.add([self._job() for _ in range(self._random.randrange(1, 4))])

    async def claim(self) -> None:
        name = f"worker-{self._random.randrange(2)}"
        holder = LeaseHolder(instance_id=name, boot_id=name)
        self._held += await self._store.claim(
            holder, queue="default", types=[TYPE], limit=2, prefetch=1, lease=LEASE
        )

    async def end(self) -> None:
        """End a run that is held, or one that no longer is."""
        if self._held:
            await self._settle(self._random.choice(self._held), self._random.choice(ENDS))

    async def cancel(self) -> None:
        for job in (await self._store.find(Filter(), limit=20))[-1:]:
            await self._settle(job, CancelRequested())

    async def reclaim(self) -> None:
        self._clock.advance(LEASE)
        for job in await self._store.expired_leases(limit=1):
            await self._settle(job, Lost(Loss.LEASE_EXPIRED))

    async def promote(self) -> None:
        await self._store.promote_due(limit=10)

    async def prune(self) -> None:
        await self._store.prune(older_than=timedelta(minutes=1), limit=2)

    async def _settle(self, standing: Any, event: Event) -> None:
        try:
            change = decide(standing, event, new_id=self._id)
        except TransitionRefused:
            return
        await self._store.apply([change])

    def _job(self) -> NewJob:
        delivery = self._random.choice([Delivery.LEASE, Delivery.LINKED, Delivery.LINKED])
        return NewJob(
            id=self._id(),
            type=TYPE,
            name=TYPE,
            params="{}",
            delivery=delivery,
            priority=self._random.randrange(3),
            max_attempts=self._random.choice([1, 2, None]),
            delay=self._random.choice([None, None, SECOND]),
            active_key=self._random.choice([None, None, "story"]),
        )

    def _id(self) -> JobId:
        return JobId(f"00000000-0000-7000-8000-{next(self._numbers):012x}")


async def tell_moments(mouth: Connection, path: Path, zone: str) -> None:
    """Live through a retry, a lapse and a delay in that time zone, and tell every row."""
    os.environ["TZ"] = zone
    time.tzset()
    await _live_through_moments(path)
    mouth.send((time.tzname[0], dump(path)))


async def _live_through_moments(path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(path, clock=clock, ids=Ids(clock.now, Random(1).getrandbits))
    await store.open()
    numbers = count(1)
    holder = LeaseHolder(instance_id="worker-1", boot_id="boot-1")

    def new_id() -> JobId:
        return JobId(f"00000000-0000-7000-8000-{next(numbers):012x}")

    async def add(**over: Any) -> None:
        await store.add([NewJob(id=new_id(), type=TYPE, name=TYPE, params="{}", **over)])

    async def take() -> list[Claim]:
        return await store.claim(holder, queue="default", types=[TYPE], limit=9, lease=LEASE)

    offset = timezone(timedelta(hours=2))
    await add(at=(START + timedelta(hours=1)).astimezone(offset))
    await add(delay=SECOND, start_within=SECOND)
    await add()
    [failing] = await take()
    await store.apply([decide(failing, Failed("no", timedelta(minutes=1)), new_id=new_id)])
    clock.advance(timedelta(minutes=1))
    await take()
    clock.advance(LEASE)
    lapsed = await store.expired_leases(limit=9)
    await store.apply([decide(job, Lost(Loss.LEASE_EXPIRED), new_id=new_id) for job in lapsed])
    clock.advance(timedelta(hours=1))
    await take()
    await store.prune(older_than=timedelta(0), limit=9)
    await store.close()

"""The world of a crash scenario: its store, its clock, its ids, and what a scenario is made of."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from outlast.core.decide import JobView, decide
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.run import Claim, LeaseHolder
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock

SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=15)
HOLDER = LeaseHolder(instance_id="worker-1", boot_id="boot-1")
TYPES = ("lease", "linked", "once")
LINKED, ONCE = {"delivery": Delivery.LINKED}, {"delivery": Delivery.ONCE}
TAGGED = {"metadata": '{"tags":["a"],"meta":{"n":1}}'}


@dataclass(slots=True)
class World:
    """A store, where it is, its clock, and ids that count."""

    store: Store
    path: Path
    clock: FakeClock
    numbers: Iterator[int]

    def new_id(self) -> JobId:
        return JobId(f"00000000-0000-7000-8000-{next(self.numbers):012x}")

    def job(self, **over: Any) -> NewJob:
        delivery = over.get("delivery", Delivery.LEASE)
        base = {"id": self.new_id(), "type": str(delivery), "name": str(delivery), "params": "{}"}
        return NewJob(**{**base, **over})

    async def add(self, **over: Any) -> JobId:
        return (await self.store.add([self.job(**over)]))[0].id

    async def claim(self, limit: int = 10, prefetch: int = 0, count: int = 0) -> list[Claim]:
        return await self.store.claim(
            HOLDER,
            queue="default",
            types=TYPES,
            limit=limit,
            prefetch=prefetch,
            lease=LEASE,
            count=count,
        )

    async def started(self, **over: Any) -> Claim:
        await self.add(**over)
        return (await self.claim())[-1]

    async def settle(self, standing: JobView, event: Event) -> bool:
        return (await self.store.apply([decide(standing, event, new_id=self.new_id)]))[0]

    async def get(self, job_id: JobId) -> Job:
        job = (await self.store.get([job_id]))[0]
        assert job is not None
        return job


Prepare = Callable[[World], Awaitable[Any]]
Act = Callable[[World, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """`prepare` runs undisturbed and answers what `act` needs; `act` is killed.

    `opened`: the store is open when `prepare` begins. Not `sound`: its world has rows that refer
    to nothing, on purpose.
    """

    prepare: Prepare
    act: Act
    opened: bool = True
    sound: bool = True


def register_in(scenarios: dict[str, Scenario]) -> Callable[[Prepare], Callable[[Act], None]]:
    """Make a decorator that adds an act to `scenarios`, under its own name, with its world."""

    def scenario(prepare: Prepare) -> Callable[[Act], None]:
        def register(act: Act) -> None:
            scenarios[getattr(act, "__name__", "")] = Scenario(prepare, act)

        return register

    return scenario


def settling(event: Event, **over: Any) -> Scenario:
    """End a run of a job made with `over` by `event`."""

    async def prepare(w: World) -> Claim:
        return await w.started(active_key="key", **over)

    async def act(w: World, claim: Claim) -> None:
        await w.settle(claim, event)

    return Scenario(prepare, act)


def deciding(prepare: Callable[[World], Awaitable[JobId]], event: Event) -> Scenario:
    """Apply `event` to a job that does not run."""

    async def make(w: World) -> Job:
        return await w.get(await prepare(w))

    async def act(w: World, job: Job) -> None:
        await w.settle(job, event)

    return Scenario(make, act)


async def nothing(_: World) -> None:
    return

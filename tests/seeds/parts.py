"""The parts that processes of their own play; each tells through the pipe it gets first."""

import asyncio
import os
import resource
import signal
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta, timezone
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

from holdfast import Backoff, Holdfast, Run
from holdfast.core.decide import decide, succeed
from holdfast.core.delivery import Delivery
from holdfast.core.event import (
    CancelRequested,
    Event,
    Failed,
    Lost,
    Released,
    Skipped,
    Snoozed,
    Succeeded,
)
from holdfast.core.ids import Ids, JobId
from holdfast.core.job import NewJob, Slot
from holdfast.core.run import Claim, Holder
from holdfast.core.state import Loss
from holdfast.errors import OperatorError, TransitionRefused
from holdfast.store.base import Filter
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import START, FakeClock
from holdfast.testing.sqlite_bench import dump

SECOND: Final = timedelta(seconds=1)
LEASE: Final = timedelta(seconds=15)
TYPE: Final = "story"
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


def live_and_die(mouth: Connection, path: Path, seed: int, hour: int) -> None:
    """Do random things to the store until this process kills itself at a random statement."""
    del mouth
    random = Random(seed)
    left = random.randrange(5, 150)

    def probe(_name: str, _after: bool) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(_live(path, probe, random, hour))


async def _live(path: Path, probe: Any, random: Random, hour: int) -> None:
    clock = FakeClock()
    clock.advance(timedelta(hours=hour))
    store = SqliteStore(path, clock=clock, probe=probe)
    await store.open()
    life = Life(store, clock, random, hour)
    while True:
        await random.choice(life.habits)()


class Life:
    """What may happen to a store, in any order; each habit writes once."""

    def __init__(self, store: SqliteStore, clock: FakeClock, random: Random, seed: int) -> None:
        self.habits = [self.add, self.add, self.claim, self.claim, self.end, self.end, self.cancel,
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
        holder = Holder(instance_id=name, boot_id=name)
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
        for job in await self._store.lapsed(limit=1):
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
        delivery = self._random.choice([Delivery.LEASE, Delivery.CHAIN, Delivery.CHAIN])
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


def claim_slots(mouth: Connection, path: Path, slots: int) -> None:
    """Claim every slot, then run whatever this process gets; tells which it ran."""
    asyncio.run(_claim_slots(mouth, path, slots))


async def _claim_slots(mouth: Connection, path: Path, slots: int) -> None:
    store = SqliteStore(path)
    await store.open()
    mouth.send("ready")
    mouth.recv()
    await store.add([slot_job(number) for number in range(slots)])
    mouth.send(await run_slots(store, f"worker-{os.getpid()}"))
    await store.close()


async def run_slots(store: SqliteStore, name: str) -> list[str]:
    """Run `once` jobs until there is none to take; the ids of those that were run, in order."""
    holder = Holder(instance_id=name, boot_id=name)
    done: list[str] = []
    while claims := await store.claim(
        holder, queue="default", types=["brief"], limit=1, lease=LEASE
    ):
        done += [claim.id for claim in claims]
        await store.apply([succeed(claim.job_id, claim.token, None) for claim in claims])
    return done


def slot_job(number: int) -> NewJob:
    """A `once` job for that slot, under an id of its own."""
    slot = Slot(series="brief", at=START + number * SECOND)
    return NewJob(
        id=_uuid(), type="brief", name="brief", params="{}", delivery=Delivery.ONCE, slot=slot,
        at=START,
    )  # fmt: skip


def enqueue(mouth: Connection, path: Path, priorities: list[int]) -> None:
    """Enqueue a job of each priority and tell the order of the queue."""
    asyncio.run(_enqueue(mouth, path, priorities))


def enqueue_and_wait(mouth: Connection, path: Path, priorities: list[int]) -> None:
    """The same, and wait to be killed with the store still open."""
    asyncio.run(_enqueue(mouth, path, priorities, wait=True))


async def _enqueue(
    mouth: Connection, path: Path, priorities: list[int], *, wait: bool = False
) -> None:
    store = SqliteStore(path, clock=FakeClock())
    await store.open()
    for priority in priorities:
        job = NewJob(id=_uuid(), type=TYPE, name=TYPE, params="{}", priority=priority)
        assert (await store.add([job]))[0].created
    mouth.send([job.id for job in await store.peek("default", limit=100)])
    if wait:
        mouth.recv()
    await store.close()


def read_jobs(mouth: Connection, path: Path) -> None:
    """Tell every job and every run that a fresh process finds."""
    asyncio.run(_read(mouth, path))


async def _read(mouth: Connection, path: Path) -> None:
    store = SqliteStore(path, clock=FakeClock())
    await store.open()
    jobs = await store.find(Filter(), limit=1000)
    mouth.send((jobs, [run for job in jobs for run in await store.runs(job.id)]))
    await store.close()


def settle_elsewhere(mouth: Connection, path: Path, job_id: JobId, event: Event) -> None:
    """Decide on a job by what this process reads, and apply it; tells whether it was applied."""
    asyncio.run(_settle_elsewhere(mouth, path, job_id, event))


async def _settle_elsewhere(mouth: Connection, path: Path, job_id: JobId, event: Event) -> None:
    store = SqliteStore(path, clock=FakeClock())
    await store.open()
    [job] = await store.get([job_id])
    assert job is not None
    mouth.send((await store.apply([decide(job, event, new_id=_uuid)]))[0])
    await store.close()


def _uuid() -> JobId:
    return JobId(str(uuid.uuid4()))


def work_on(mouth: Connection, path: Path, seed: int) -> None:
    """Do the same random things every time, telling the number of each once it is durable."""
    asyncio.run(_work_on(mouth, path, seed))


async def _work_on(mouth: Connection, path: Path, seed: int) -> None:
    async for number in random_work(path, seed):
        mouth.send(number)


async def random_work(path: Path, seed: int) -> AsyncIterator[int]:
    """Random things that are the same for one seed: ids, clock and all. Ends by itself."""
    clock, random = FakeClock(), Random(seed)
    store = SqliteStore(path, clock=clock, ids=Ids(clock.now, Random(seed).getrandbits))
    await store.open()
    life = Life(store, clock, random, seed)
    yield 0
    for number in range(1, 41):
        await random.choice(life.habits)()
        yield number
    await store.close()


def hold_a_story(mouth: Connection, path: Path, delivery: str, settings: dict[str, Any]) -> None:
    """Enqueue a story, run it, tell its id from inside the handler, and never come back."""
    asyncio.run(_hold_a_story(mouth, path, delivery, settings))


async def _hold_a_story(
    mouth: Connection, path: Path, delivery: str, settings: dict[str, Any]
) -> None:
    app = Holdfast(f"sqlite:///{path}", **settings)

    @app.job(delivery=delivery)
    async def story(run: Run, title: str) -> None:
        mouth.send(run.job_id)
        await asyncio.Event().wait()

    async with app, app.worker(instance_id="first"):
        await story.enqueue("The Kraken")
        await asyncio.Event().wait()


def fail_two_stories(mouth: Connection, path: Path) -> None:
    """Let a `chain` and a `lease` job fail with an hour's backoff, tell both, wait to be killed."""
    asyncio.run(_fail_two_stories(mouth, path))


async def _fail_two_stories(mouth: Connection, path: Path) -> None:
    app = Holdfast(SqliteStore(path, clock=FakeClock()), poll="5ms")
    backoff = Backoff(3, base="1h", jitter=False)

    def broken() -> None:
        raise TimeoutError("no answer")

    chain = app.job(name="chain", delivery="chain", retry=backoff)(broken)
    lease = app.job(name="lease", retry=backoff)(broken)
    async with app, app.worker() as worker:
        handles = [await chain.enqueue(), await lease.enqueue()]
        await worker.drained()
        mouth.send([handle.id for handle in handles])
        mouth.recv()


def enqueue_on_a_full_disk(mouth: Connection, path: Path) -> None:
    """Enqueue three, then one more when no file may grow, then one more when it may again."""
    asyncio.run(_enqueue_on_a_full_disk(mouth, path))


async def _enqueue_on_a_full_disk(mouth: Connection, path: Path) -> None:
    store = SqliteStore(path)
    await store.open()

    async def add() -> int:
        big = NewJob(id=_uuid(), type=TYPE, name=TYPE, params=f'"{"x" * 100_000}"')
        await store.add([big])
        return sum((await store.counts()).values())

    for _ in range(3):
        await add()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    log = path.with_name(f"{path.name}-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 4096, hard))
    try:
        await add()
    except OperatorError as error:
        told = f"{type(error).__name__}: {error}"
    else:
        told = "no error"
    counted = sum((await store.counts()).values())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    mouth.send((told, counted, await add()))
    await store.close()


def schedule_summary(mouth: Connection, path: Path) -> None:
    """Schedule the one summary of a user's day; tells the job and whether it is new."""
    asyncio.run(_schedule_summary(mouth, path))


async def _schedule_summary(mouth: Connection, path: Path) -> None:
    app = Holdfast(f"sqlite:///{path}")

    @app.job
    def daily_summary(user: str) -> None: ...

    async with app:
        mouth.send("ready")
        mouth.recv()
        once = daily_summary.options(key="summary#u1", bucket="2026-01-05")
        handle = await once.enqueue("u1")
        mouth.send((handle.id, handle.created))


def tell_moments(mouth: Connection, path: Path, zone: str) -> None:
    """Live through a retry, a lapse and a delay in that time zone, and tell every row."""
    os.environ["TZ"] = zone
    time.tzset()
    asyncio.run(_live_through_moments(path))
    mouth.send((time.tzname[0], dump(path)))


async def _live_through_moments(path: Path) -> None:
    clock = FakeClock()
    store = SqliteStore(path, clock=clock, ids=Ids(clock.now, Random(1).getrandbits))
    await store.open()
    numbers = count(1)
    holder = Holder(instance_id="worker-1", boot_id="boot-1")

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
    lapsed = await store.lapsed(limit=9)
    await store.apply([decide(job, Lost(Loss.LEASE_EXPIRED), new_id=new_id) for job in lapsed])
    clock.advance(timedelta(hours=1))
    await take()
    await store.prune(older_than=timedelta(0), limit=9)
    await store.close()


def claim_everything(mouth: Connection, path: Path, name: str) -> None:
    """Claim one job at a time until there is none; tells the ids, and one claim more."""
    asyncio.run(_claim_everything(mouth, path, name))


async def _claim_everything(mouth: Connection, path: Path, name: str) -> None:
    store = SqliteStore(path)
    await store.open()
    holder = Holder(instance_id=f"{name}-{os.getpid()}", boot_id=f"{name}-{os.getpid()}")

    async def claim() -> list[str]:
        found = await store.claim(holder, queue="default", types=[TYPE], limit=1, lease=LEASE)
        return [claim.id for claim in found]

    mouth.send("ready")
    mouth.recv()
    ids: list[str] = []
    while taken := await claim():
        ids += taken
    mouth.send((ids, await claim()))
    await store.close()


def work_and_note(mouth: Connection, path: Path, ledger: Path) -> None:
    """Be a worker until nothing is due, noting every execution in the ledger."""
    asyncio.run(_work_and_note(mouth, path, ledger))


async def _work_and_note(mouth: Connection, path: Path, ledger: Path) -> None:
    app = Holdfast(f"sqlite:///{path}", poll="5ms")

    @app.job(name=TYPE)
    def story(run: Run) -> None:
        with ledger.open("a", encoding="ascii") as book:  # appending is atomic, unlike our memory
            book.write(f"{run.job_id} {os.getpid()}\n")

    async with app:
        mouth.send("ready")
        mouth.recv()
        async with app.worker(concurrency=2, instance_id=f"worker-{os.getpid()}") as worker:
            await worker.drained()
        mouth.send(worker.refused)

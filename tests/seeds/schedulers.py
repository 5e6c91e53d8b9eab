"""Schedulers in processes of their own, by a clock they are told."""

import secrets
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

from outlast import Outlast
from outlast.core.ids import Ids
from outlast.core.schedule import SlotRecord
from outlast.scheduler.trigger import Trigger
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.open import open_store
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.verify import verify

from .child_process import Child

SCHEDULES: Final = 20
SCHEDULERS: Final = 3
MANY: Final = 10_000
S0: Final[dict[str, Any]] = {"coalesce": True, "misfire_grace": "300s", "max_instances": 1}
"""The settings S0 wants of every job."""


async def declare(place: Path | str, cron: str) -> None:
    """Twenty schedules of that expression, each of a `once` job of its own name."""
    store = store_at(place, FakeClock())
    await store.open()
    app = Outlast(store)
    app.job(name="brief", delivery="once")(_nothing)
    for number in range(SCHEDULES):
        name = f"brief-{number}"
        await app.schedules.save(name, cron, "brief", job_name=name, **S0)
    await store.close()


def storm(place: Path | str, *, minutes: int, kills: int) -> None:
    """Three schedulers go through that many minutes; so many times one is killed at its work."""
    random = Random(11)
    deaths = set(random.sample(range(minutes), kills))
    workers = [Child(trigger_when_told, place) for _ in range(SCHEDULERS)]
    assert [child.hear() for child in workers] == ["ready"] * SCHEDULERS
    for minute in range(minutes):
        moment = START + timedelta(minutes=minute + 1)
        for child in workers:
            child.tell(moment)
        if minute in deaths:
            victim = random.randrange(SCHEDULERS)
            workers[victim].kill_within(random.random() * 0.02)
            workers[victim] = Child(trigger_when_told, place)
            assert workers[victim].hear() == "ready"
            workers[victim].tell(moment)
        for child in workers:
            child.hear()
    for child in workers:
        child.__exit__(None, None, None)


async def proved(place: Path | str) -> list[SlotRecord]:
    """Every slot that was answered; each has a job of its own, and nothing is refuted."""
    store = store_at(place, FakeClock())
    await store.open()
    rows = [
        row
        for number in range(SCHEDULES)
        for row in await store.slots(f"brief-{number}", limit=MANY)
    ]
    jobs = {job.id for job in await store.find(Filter(), limit=MANY)}
    assert len(jobs) == len(rows)
    assert {row.job_id for row in rows} == jobs
    assert (await verify(store)).violations == ()
    await store.close()
    return rows


async def trigger_when_told(mouth: Connection, place: Path | str) -> None:
    """Trigger what is due at each moment it is told; tells how many slots it answered."""
    clock = FakeClock()
    store = store_at(place, clock)
    await store.open()
    trigger = Trigger(store, Ids(clock.now, secrets.randbits).job)
    mouth.send("ready")
    while (moment := mouth.recv()) is not None:
        clock.set_wall(moment)
        done = await trigger.run_once()
        mouth.send(sum(done.outcomes.values()))
    await store.close()


async def trigger_at_once(mouth: Connection, place: Path | str, moment: datetime) -> None:
    """Wait for the word, then trigger what is due at that moment."""
    clock = FakeClock(moment)
    store = store_at(place, clock)
    await store.open()
    trigger = Trigger(store, Ids(clock.now, secrets.randbits).job)
    mouth.send("ready")
    mouth.recv()
    done = await trigger.run_once()
    mouth.send(sum(done.outcomes.values()))
    await store.close()


def store_at(place: Path | str, clock: FakeClock) -> Store:
    """The file of that path, or what is at that URL."""
    if isinstance(place, str):
        return open_store(place, clock=clock)
    return SqliteStore(place, clock=clock)


def _nothing() -> None: ...

"""Programs of child processes that use a store; each reports through the pipe it gets first."""

import os
import resource
import signal
import uuid
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from outlast.core.decide import decide, succeed
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.ids import JobId
from outlast.core.job import NewJob, Slot
from outlast.core.run import LeaseHolder
from outlast.errors import OperatorError
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.worker.maintenance.history_inspector import HistoryInspector

SECOND: Final = timedelta(seconds=1)
LEASE: Final = timedelta(seconds=15)
TYPE: Final = "story"


async def enqueue(
    mouth: Connection, path: Path, priorities: list[int], *, wait: bool = False
) -> None:
    """Enqueue a job of each priority and tell the order of the queue."""
    store = SqliteStore(path, clock=FakeClock())
    await store.open()
    for priority in priorities:
        job = NewJob(id=_uuid(), type=TYPE, name=TYPE, params="{}", priority=priority)
        assert (await store.add([job]))[0].created
    mouth.send([job.id for job in await store.peek("default", limit=100)])
    if wait:
        mouth.recv()
    await store.close()


async def enqueue_and_wait(mouth: Connection, path: Path, priorities: list[int]) -> None:
    """The same, and wait with the store still open: to be killed."""
    await enqueue(mouth, path, priorities, wait=True)


async def read_jobs(mouth: Connection, path: Path) -> None:
    """Tell every job and every run that a fresh process finds."""
    store = SqliteStore(path, clock=FakeClock())
    await store.open()
    jobs = await store.find(Filter(), limit=1000)
    mouth.send((jobs, [run for job in jobs for run in await store.runs(job.id)]))
    await store.close()


async def settle_elsewhere(mouth: Connection, path: Path, job_id: JobId, event: Event) -> None:
    """Decide on a job by what this process reads, and apply it; tells whether it was applied."""
    store = SqliteStore(path, clock=FakeClock())
    await store.open()
    [job] = await store.get([job_id])
    assert job is not None
    mouth.send((await store.apply([decide(job, event, new_id=_uuid)]))[0])
    await store.close()


async def recover_together(mouth: Connection, path: Path) -> None:
    """Boot at the same moment as others do; tells how many successors this process wrote."""
    store = SqliteStore(path)
    await store.open()
    inspector = HistoryInspector(store, _uuid)
    mouth.send("ready")
    mouth.recv()
    mouth.send((await inspector.inspect()).continued)
    await store.close()


async def claim_slots(mouth: Connection, path: Path, slots: int) -> None:
    """Claim every slot, then run whatever this process gets; tells which it ran."""
    store = SqliteStore(path)
    await store.open()
    mouth.send("ready")
    mouth.recv()
    await store.add([slot_job(number) for number in range(slots)])
    mouth.send(await run_slots(store, f"worker-{os.getpid()}"))
    await store.close()


async def run_slots(store: SqliteStore, name: str) -> list[str]:
    """Run `once` jobs until there is none to take; the ids of those that were run, in order."""
    holder = LeaseHolder(instance_id=name, boot_id=name)
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


async def claim_everything(mouth: Connection, path: Path, name: str) -> None:
    """Claim one job at a time until there is none; tells the ids, and one claim more."""
    store = SqliteStore(path)
    await store.open()
    holder = LeaseHolder(instance_id=f"{name}-{os.getpid()}", boot_id=f"{name}-{os.getpid()}")

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


async def enqueue_on_a_full_disk(mouth: Connection, path: Path) -> None:
    """Enqueue three, then one more when no file may grow, then one more when it may again."""
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
        reported = f"{type(error).__name__}: {error}"
    else:
        reported = "no error"
    counted = sum((await store.counts()).values())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    mouth.send((reported, counted, await add()))
    await store.close()


def _uuid() -> JobId:
    return JobId(str(uuid.uuid4()))

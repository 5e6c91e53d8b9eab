"""Programs of child processes that run an app or a worker until they are killed."""

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from outlast import Backoff, Outlast, Run
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock

from .store_programs import TYPE


async def hold_a_story(
    mouth: Connection, path: Path, delivery: str, settings: dict[str, Any]
) -> None:
    """Enqueue a story, run it, tell its id from inside the handler, and never come back."""
    app = Outlast(f"sqlite:///{path}", **settings)

    @app.job(delivery=delivery)
    async def story(run: Run, title: str) -> None:
        mouth.send(run.job_id)
        await asyncio.Event().wait()

    async with app, app.worker(instance_id="first"):
        await story.enqueue("The Kraken")
        await asyncio.Event().wait()


async def hold_a_brief(mouth: Connection, path: Path) -> None:
    """Take the slot of a `once` job, tell its id from inside the handler, and never come back."""
    app = Outlast(f"sqlite:///{path}")

    @app.job(delivery="once")
    async def brief(run: Run) -> None:
        mouth.send(run.job_id)
        await asyncio.Event().wait()

    async with app, app.worker(instance_id="first"):
        await brief.options(slot=START).enqueue()
        await asyncio.Event().wait()


async def fail_two_stories(mouth: Connection, path: Path) -> None:
    """Let a `linked` and a `lease` job fail, retry in an hour; send both ids and wait."""
    app = Outlast(SqliteStore(path, clock=FakeClock()), poll="5ms")
    backoff = Backoff(3, base="1h", jitter=False)

    def broken() -> None:
        raise TimeoutError("no answer")

    linked = app.job(name="linked", delivery="linked", retry=backoff)(broken)
    lease = app.job(name="lease", retry=backoff)(broken)
    async with app, app.worker() as worker:
        handles = [await linked.enqueue(), await lease.enqueue()]
        await worker.drained()
        mouth.send([handle.id for handle in handles])
        mouth.recv()


async def schedule_summary(mouth: Connection, path: Path) -> None:
    """Schedule the one summary of a user's day; tells the job and whether it is new."""
    app = Outlast(f"sqlite:///{path}")

    @app.job
    def daily_summary(user: str) -> None: ...

    async with app:
        mouth.send("ready")
        mouth.recv()
        once = daily_summary.options(key="summary#u1", bucket="2026-01-05")
        handle = await once.enqueue("u1")
        mouth.send((handle.id, handle.created))


async def work_and_note(mouth: Connection, path: Path, ledger: Path) -> None:
    """Be a worker until nothing is due, noting every execution in the ledger."""
    app = Outlast(f"sqlite:///{path}", poll="5ms")

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

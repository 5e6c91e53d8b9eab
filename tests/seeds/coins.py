"""The parts that S3's workers play in processes of their own, on whichever store."""

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from outlast import Outlast, Run
from outlast.core.run import LeaseHolder
from outlast.store.open import open_store
from outlast.testing.conformance.factories import LEASE

TYPE: Final = "scrape"


async def claim_all(mouth: Connection, url: str) -> None:
    """Claim one job at a time until there is none; tells the ids, and one claim more."""
    store = open_store(url)
    await store.open()
    holder = LeaseHolder(instance_id=f"worker-{os.getpid()}", boot_id=f"boot-{os.getpid()}")

    async def claim() -> list[str]:
        found = await store.claim(holder, queue="default", types=[TYPE], limit=1, lease=LEASE)
        return [claim.id for claim in found]

    await claim_none(store)
    mouth.send("ready")
    mouth.recv()
    ids: list[str] = []
    while taken := await claim():
        ids += taken
    mouth.send((ids, await claim()))
    await store.close()


async def claim_none(store: Any) -> None:
    """So that everything is connected before the race begins."""
    nobody = LeaseHolder(instance_id="nobody", boot_id="nobody")
    await store.claim(nobody, queue="nothing-here", types=[TYPE], limit=1, lease=LEASE)


async def collect(mouth: Connection, url: str, ledger: Path) -> None:
    """Be a worker until nothing is due, noting every execution in the ledger."""
    app = Outlast(url, poll="20ms")

    @app.job(name=TYPE)
    def scrape(run: Run) -> None:
        with ledger.open("a", encoding="ascii") as book:  # appending is atomic, unlike our memory
            book.write(f"{run.job_id} {os.getpid()}\n")

    async with app:
        mouth.send("ready")
        mouth.recv()
        async with app.worker(concurrency=2, instance_id=f"worker-{os.getpid()}") as worker:
            await worker.drained()
        mouth.send(worker.refused)


async def hold(mouth: Connection, url: str, settings: dict[str, Any]) -> None:
    """Take a job, tell its id from inside the handler, and never come back."""
    app = Outlast(url, **settings)

    @app.job(name=TYPE)
    async def scrape(run: Run) -> None:
        mouth.send(run.job_id)
        await asyncio.Event().wait()

    async with app, app.worker(instance_id="worker-1"):
        await asyncio.Event().wait()

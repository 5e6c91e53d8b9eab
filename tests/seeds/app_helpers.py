"""Apps of the seed tests: open one, run what is due, list its jobs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outlast import Outlast
from outlast.core.job import Job
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.worker.embedded import Worker


async def jobs_of(store: Store) -> list[Job]:
    """Every job, the oldest first."""
    return (await store.find(Filter(), limit=10_000))[::-1]


async def order_of(store: Store, queue: str = "default") -> list[str]:
    """The queue as it would be taken."""
    return [job.id for job in await store.peek(queue, limit=1000)]


async def drain(app: Outlast, **options: Any) -> Worker:
    """Let a worker of the app do all that is due, and stop it."""
    async with app.worker(**options) as worker:
        await worker.drained()
    return worker


def live(path: Path, **settings: Any) -> Outlast:
    """An app by the machine's own clock, on that file."""
    return Outlast(f"sqlite:///{path}", **settings)


def ids_of(things: Iterable[Any]) -> list[str]:
    return [thing.id for thing in things]

"""Callers of direct runs and the workers that take them, in processes that can be killed."""

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from outlast import Outlast, Run
from outlast.errors import CallerError

from .timeouts import LONG, QUICK, SOON

QUEUE = "SELECT status, reason FROM outlast_reservations ORDER BY seq"


async def s1(path: Path | str, **settings: Any) -> Outlast:
    """An app with S1's one queue: in order, one at a time."""
    app = Outlast(f"sqlite:///{path}", **{**QUICK, **settings})
    await app.queues.save("default", ordering="position", concurrency=1)
    return app


def register(app: Outlast, ledger: Path, *, hold: bool = False) -> Any:
    """A story that notes each execution, and with `hold` never ends."""

    @app.job
    async def story(run: Run, title: str) -> str:
        with ledger.open("a", encoding="ascii") as book:
            book.write(f"{title} {run.job_id}\n")
        if hold:
            await asyncio.Event().wait()
        return title

    return story


def executed(ledger: Path) -> list[str]:
    """The titles of all executions, in order."""
    lines = ledger.read_text("ascii").splitlines() if ledger.exists() else []
    return [line.split()[0] for line in lines]


async def call(mouth: Connection, path: Path, ledger: Path, title: str) -> None:
    """Ask for a direct run; tells the job's id once a worker has it, then waits to be killed."""
    app = await s1(path)
    handle = await register(app, ledger).run_now(title)
    mouth.send(handle.id)
    await asyncio.Event().wait()


async def work(mouth: Connection, path: Path, ledger: Path, hold: bool) -> None:
    """Be a worker until killed."""
    app = await s1(path, **LONG)
    register(app, ledger, hold=hold)
    async with app, app.worker(instance_id=f"worker-{os.getpid()}"):
        mouth.send("ready")
        await asyncio.Event().wait()


async def call_at_once(mouth: Connection, path: Path, ledger: Path) -> None:
    """Ask at the same moment as others do, rejecting a busy queue; tells the answer and stays."""
    app = await s1(path)
    story = register(app, ledger).options(on_busy="reject", wait=SOON, request=f"{os.getpid()}")
    mouth.send("ready")
    await asyncio.to_thread(mouth.recv)
    calling = asyncio.create_task(story.run_now("direct"))
    while not (calling.done() or await _holds(app, f"{os.getpid()}")):  # noqa: ASYNC110 - nobody signals it
        await asyncio.sleep(0.01)
    mouth.send(_told(calling))
    await asyncio.to_thread(mouth.recv)
    calling.cancel()
    await asyncio.wait([calling])
    mouth.send("left")


async def _holds(app: Outlast, request: str) -> bool:
    held = await app.store.reservations(active_only=True, limit=1)
    return [each.request for each in held] == [request]


def _told(calling: "asyncio.Task[Any]") -> str:
    if not calling.done():
        return "holds"
    error = calling.exception()
    return type(error).__name__ if isinstance(error, CallerError) else "taken"

"""A worker in a process of its own: `worker_child.py FILE ROLE SETTINGS`.

It says on its standard output what it does, one line each; its handlers have the names that the
tests enqueue, and a role that says where they stop to be killed.
"""

import asyncio
import json
import logging
import os
import sqlite3
import sys
import time
from pathlib import Path

import mixed_jobs
from worker_helpers import quick

from outlast import Backoff, Outlast, Run
from outlast.errors import TransactionTimeout


def say(*words: object) -> None:
    """One write per line: threads must not share one."""
    os.write(sys.stdout.fileno(), f"{' '.join(map(str, words))}\n".encode())


async def stay() -> None:
    await asyncio.Event().wait()


def holding(app: Outlast) -> None:
    """Takes one job of each delivery and never ends any."""

    async def hold(run: Run) -> None:
        say("holding", run.job_id)
        await stay()

    app.job(name="leased", retry=Backoff(3))(hold)
    app.job(name="chained", delivery="linked", retry=Backoff(3))(hold)
    app.job(name="once", delivery="once")(hold)


def frozen(app: Outlast) -> None:
    """Ends when told to: long after the parent has frozen and thawed it."""

    @app.job(name="leased", retry=Backoff(3))
    async def leased(run: Run) -> str:
        say("holding", run.job_id)
        await asyncio.to_thread(sys.stdin.readline)
        return "from the zombie"


def blocking(app: Outlast) -> None:
    """Blocks the event loop itself, until it is told to go on."""

    @app.job(name="leased", retry=Backoff(3))
    async def leased(run: Run, blocks: bool) -> int:
        say("holding", run.job_id)
        if blocks:
            sys.stdin.readline()
        return run.token


def effect_inside(app: Outlast) -> None:
    """Stops inside its transaction, the effect written."""

    @app.job(name="effect", retry=Backoff(3, base="1ms"))
    async def effect(run: Run) -> None:
        async with run.transaction() as conn:
            conn.execute("INSERT INTO effects VALUES ('child', ?)", (run.token,))
            say("holding", run.job_id)
            await stay()


def effect_after(app: Outlast) -> None:
    """Stops after its transaction, just before it returns."""

    @app.job(name="effect", retry=Backoff(3, base="1ms"))
    def effect(run: Run) -> None:
        with run.transaction() as conn:
            conn.execute("INSERT INTO effects VALUES ('child', ?)", (run.token,))
        say("holding", run.job_id)
        time.sleep(60)


ENDLESS = """
INSERT INTO effects
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)
SELECT 'late', n FROM numbers
"""
ONE = "INSERT INTO effects VALUES ('late', 0)"


def write_on(run: Run, conn: sqlite3.Connection) -> None:
    """Without a pause, and on through the first errors: SQLite rolls a transaction back by
    itself when it interrupts one of its writes, and what follows would commit alone."""
    refused = 0
    while refused < 50:
        try:
            conn.execute(ENDLESS if run.attempt % 2 and not refused else ONE)
        except (sqlite3.Error, TransactionTimeout):
            refused += 1


def overrun(app: Outlast) -> None:
    """Writes as fast as it can until it is stopped."""

    @app.job(name="pay", retry=Backoff(10, base="1ms", cap="1ms"))
    async def pay(run: Run) -> None:
        async with run.transaction() as conn:
            write_on(run, conn)


def overrun_thread(app: Outlast) -> None:
    """The same in a thread."""

    @app.job(name="pay", retry=Backoff(10, base="1ms", cap="1ms"))
    def pay(run: Run) -> None:
        with run.transaction() as conn:
            write_on(run, conn)


def idle(app: Outlast) -> None:
    """Says when it has found nothing to do, and holds whatever it gets until it is cancelled."""

    class Idle(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "nothing to claim" in record.getMessage():
                say("idle")

    worker = logging.getLogger("outlast.worker")
    worker.setLevel(logging.DEBUG)
    worker.addHandler(Idle())
    holding(app)


def storm(app: Outlast) -> None:
    mixed_jobs.register(app, started=lambda job_id: say("started", job_id))


ROLES = {
    role.__name__: role
    for role in (
        holding,
        frozen,
        blocking,
        effect_inside,
        effect_after,
        overrun,
        overrun_thread,
        idle,
        storm,
    )
}


async def main(path: str, role: str, settings: str) -> None:
    app = quick(Path(path), **json.loads(settings))
    ROLES[role](app)
    async with app, app.worker(queues=["child", "default"], instance_id=role) as worker:
        say("ready")
        while not worker.refused:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.01)
        say("refused", worker.refused)
        await stay()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""The job types of the storm, shared by the test and its other process."""

import asyncio
from collections.abc import Callable
from typing import Any

from outlast import Backoff, Outlast, Run, Snooze

PATIENT = Backoff(200, base="5ms", cap="50ms")
IMPATIENT = Backoff(2, base="1ms")


def register(app: Outlast, *, started: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The types by name. Those that succeed leave exactly one row in `effects`."""

    @app.job(retry=PATIENT)
    async def steady(run: Run, n: int) -> int:
        started(run.job_id)
        async with run.transaction() as conn:
            leave(conn, run, n)
        return n

    @app.job(retry=PATIENT)
    def threaded(run: Run, n: int) -> int:
        started(run.job_id)
        with run.transaction() as conn:
            leave(conn, run, n)
        return n

    @app.job(retry=PATIENT)
    async def flaky(run: Run, n: int) -> int:
        started(run.job_id)
        async with run.transaction() as conn:
            leave(conn, run, n)
        if run.attempt < 3:
            raise ValueError("after its effect")
        return n

    @app.job(retry=PATIENT)
    async def sleepy(run: Run, n: int) -> int | Snooze:
        started(run.job_id)
        async with run.transaction() as conn:
            leave(conn, run, n)
        return n if run.token > 2 else Snooze("5ms")

    @app.job(delivery="linked", retry=PATIENT)
    async def chained(run: Run, n: int) -> int:
        started(run.job_id)
        async with run.transaction() as conn:
            leave(conn, run, n)
        if run.attempt < 3:
            raise ValueError("after its effect")
        return n

    @app.job(retry=IMPATIENT)
    def doomed(run: Run, n: int) -> None:
        started(run.job_id)
        raise ValueError(n)

    @app.job(retry=PATIENT)
    async def endless(run: Run, n: int) -> None:
        started(run.job_id)
        await asyncio.Event().wait()

    return {each.name: each for each in (steady, threaded, flaky, sleepy, chained, doomed, endless)}


def leave(conn: Any, run: Run, n: int) -> None:
    conn.execute("INSERT INTO effects VALUES (?, ?)", (str(n), run.token))

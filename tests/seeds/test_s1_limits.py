"""S1 runs one job at a time: a queue of concurrency 1, whoever works on it."""

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from outlast import Outlast, Run

from .app_helpers import drain
from .child_process import Child
from .database_file import Sql, Witness, opened
from .timeouts import SOON

JOBS = 5
OPEN = "SELECT count(*) FROM outlast_open_runs"


async def stories(path: Path, number: int) -> None:
    """S1's settings: one queue in order, one at a time."""
    async with Outlast(f"sqlite:///{path}") as app:
        await app.queues.save("default", ordering="position", concurrency=1)

        @app.job
        def story(n: int) -> None: ...

        await app.enqueue_many(story.bind(n) for n in range(number))


@pytest.mark.req("S1-6.1.x")
async def test_no_two_runs_are_ever_open_in_the_queue(path: Path) -> None:
    await stories(path, JOBS)
    witness, ran = Witness(path, OPEN), []
    async with Outlast(await opened(path, probe=witness), poll="5ms") as app:

        @app.job
        def story(n: int) -> None:
            ran.append(n)

        await drain(app, concurrency=10)

    assert ran == list(range(JOBS))
    assert witness.seen == [[(0,)], [(1,)]], "looked at between any two statements"


async def work_and_log(mouth: Connection, path: Path, ledger: Path) -> None:
    """A worker that notes when each handler begins and ends, until the queue is empty."""
    # Nobody looks by himself: that one process's end lets another begin, only a hint can tell.
    app = Outlast(f"sqlite:///{path}", poll="10m", tick="10m")

    def note(word: str, n: int) -> None:
        with ledger.open("a", encoding="ascii") as book:  # appending is atomic
            book.write(f"{word} {n} {os.getpid()}\n")

    @app.job
    def story(run: Run, n: int) -> None:
        note("begin", n)
        note("end", n)

    async with app, app.worker(concurrency=5, instance_id=f"worker-{os.getpid()}"):
        mouth.send("ready")
        await asyncio.to_thread(mouth.recv)


@pytest.mark.req("S1-6.1.x")
async def test_two_processes_share_the_queue_one_job_at_a_time_and_without_a_pause(
    path: Path, tmp_path: Path, sql: Sql
) -> None:
    ledger, number = tmp_path / "ledger", 40
    await stories(path, 0)

    with Child(work_and_log, path, ledger) as one, Child(work_and_log, path, ledger) as other:
        assert [one.hear(), other.hear()] == ["ready"] * 2
        await stories(path, number)
        async with Outlast(f"sqlite:///{path}") as app:
            [(last,)] = sql.rows("SELECT id FROM outlast_jobs ORDER BY seq DESC LIMIT 1")
            await app.wait(last, SOON)
        for child in (one, other):
            child.tell("leave")
            assert child.end() == 0

    lines = [line.split()[:2] for line in ledger.read_text("ascii").splitlines()]
    expected = [[word, str(n)] for n in range(number) for word in ("begin", "end")]
    assert lines == expected, "in order, and none began before the one before it had ended"

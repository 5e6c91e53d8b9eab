"""S1: why it exists: an order never in doubt, and jobs that outlive whoever queued them."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    SUCCEEDED,
    claim_order,
    make_job,
    settle,
    take_many,
)

from .app_helpers import ids_of, jobs_of, order_of
from .child_process import Child
from .database_file import names_in, opened
from .store_programs import TYPE, enqueue_and_wait
from .timeouts import SOON


@pytest.mark.req("S1-0.a")
async def test_jobs_alike_in_everything_keep_one_order_at_every_read_and_restart(
    store: SqliteStore,
) -> None:
    twins = [make_job() for _ in range(12)]
    backwards = twins[::-1]  # so that their ids would give another order
    await store.add(backwards)
    alike = {(job.priority, job.position, job.created_at) for job in await jobs_of(store)}

    reads = [await order_of(store) for _ in range(5)]
    for _ in range(3):
        await store.close()
        await store.open()
        reads.append(await order_of(store))
    taken = await claim_order(store)

    assert len(alike) == 1
    assert [*reads, taken] == [ids_of(backwards)] * 9


@pytest.mark.req("S1-0.c")
async def test_ten_queued_jobs_are_there_in_order_after_a_kill(path: Path) -> None:
    with Child(enqueue_and_wait, path, [0, 5, 0, 9, 5, 0, 1, 9, 0, 2]) as scheduler:
        order = scheduler.hear()
        scheduler.kill()

    store = await opened(path, clock=FakeClock())
    queued = [job.id for job in await jobs_of(store) if job.state is State.QUEUED]
    found = await order_of(store)
    taken = await claim_order(store, types=[TYPE])
    await store.close()

    assert len(order) == 10
    assert sorted(queued) == sorted(order)
    assert found == taken == order


def _on_this_machine(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Processes may wake each other through a file's socket; the network is never asked."""

    def checked(own: socket.socket, *given: Any) -> Any:
        assert own.family is socket.AF_UNIX, "the network was asked"
        return verb(own, *given)

    return checked


CLIENTS = """
import asyncio, sys
from outlast import Outlast

async def main():
    async with Outlast("sqlite:///other.db"):
        print(sorted({"asyncpg", "psycopg", "boto3", "aetcd"} & sys.modules.keys()))

asyncio.run(main())
"""


def _loaded_by_a_store_on_a_file(folder: Path) -> str:
    """Which clients of servers a process of its own has loaded."""
    asked = [sys.executable, "-c", CLIENTS]
    return subprocess.run(
        asked, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.mark.req("S1-R.a")
async def test_the_default_is_one_file_and_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, verb, _on_this_machine(getattr(socket.socket, verb)))
    monkeypatch.chdir(tmp_path)
    app = Outlast("sqlite:///jobs.db")

    @app.job
    def tell(story: str) -> str:
        return story.upper()

    async with app, app.worker():
        handle = await tell.enqueue("once upon a time")
        assert await handle.result(timeout=SOON) == "ONCE UPON A TIME"

    assert names_in(tmp_path) == ["jobs.db"]
    assert _loaded_by_a_store_on_a_file(tmp_path) == "[]"


@pytest.mark.req("S1-1.1.a")
async def test_with_the_cache_dropped_at_every_moment_all_answers_are_the_same(
    tmp_path: Path,
) -> None:
    answers, looked = [], []
    for forgetful in (False, True):
        asked: list[str] = []
        clock = FakeClock()
        store = await opened(
            tmp_path / f"{forgetful}.db",
            clock=clock,
            probe=lambda name, after, asked=asked: after or asked.append(name),
        )
        answers.append([answer async for answer in _a_day(store, clock, forgetful)])
        looked.append(asked.count("jobs.counts"))
        await store.close()

    assert answers[0] == answers[1]
    assert looked[0] < looked[1], "nothing was cached, so nothing was dropped"
    assert answers[0][-2] == {("default", State.SUCCEEDED): 6}


async def _a_day(store: SqliteStore, clock: FakeClock, forgetful: bool) -> AsyncIterator[object]:
    """Ordinary work; what each step answers. Ids are numbered, for both days to have the same."""

    async def forget() -> None:
        if forgetful:  # all that is in memory, the cache included
            await store.close()
            await store.open()

    for number in range(6):
        await forget()
        yield await store.add([make_job(id=f"{number:036}", priority=number % 3)])
        for _ in range(4):
            await forget()
            yield await store.counts()
        claims = await take_many(store, limit=number % 2 + 1)
        yield [(claim.id, claim.token) for claim in claims]
        await forget()
        for claim in claims:
            yield await settle(store, claim, SUCCEEDED if number % 3 else FAILED)
        clock.advance("1s")
        await forget()
        yield await store.counts()
        yield await order_of(store)

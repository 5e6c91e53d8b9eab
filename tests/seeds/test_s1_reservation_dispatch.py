"""S1 3.3 and 7: what a claim takes while a direct reservation is made, held or absent."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlast import Handle, Outlast
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import MANY, SUCCEEDED, claim_order, put, settle, take
from outlast.testing.conformance.reservations import reserve

from .app_helpers import order_of
from .database_file import Witness, opened
from .timeouts import PATIENCE, QUICK, SOON


@pytest.mark.req("S1-3.3.b")
async def test_nobody_reserves_between_the_look_and_the_claim(path: Path, clock: FakeClock) -> None:
    refusals: list[str] = []

    def probe(name: str, after: bool) -> None:
        """Try to slip in right after the claim has looked, as another process would."""
        if (name, after) == ("claim.gate", True):
            with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
                try:
                    other.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    refusals.append(str(error))

    store = await opened(path, clock=clock, probe=probe)
    head = await put(store)
    taken = await claim_order(store)
    await store.close()

    assert (taken, refusals) == ([head], ["database is locked"])


@pytest.mark.req("S1-3.3.b")
async def test_reservation_committed_just_before_the_claim_begins_is_obeyed(
    path: Path, clock: FakeClock
) -> None:
    other = await opened(path, clock=clock)
    loop, held = asyncio.get_running_loop(), []

    def probe(name: str, after: bool) -> None:
        """The dispatcher has asked; before its transaction begins, somebody reserves."""
        if (name, after) == ("unit_of_work.begin", False) and armed and not held:
            asked = asyncio.run_coroutine_threadsafe(reserve(other), loop)
            held.append(asked.result(30))

    armed = False
    store = await opened(path, clock=clock, probe=probe)
    await put(store)
    armed = True

    taken = await claim_order(store)

    assert taken == [held[0].job_id]
    for each in (store, other):
        await each.close()


@pytest.mark.req("S1-3.3.d")
async def test_without_one_the_head_of_the_queue_is_dispatched(store: SqliteStore) -> None:
    head, _ = await put(store), await put(store)
    held = await reserve(store, queue="lane")

    assert (await take(store)).id == head
    assert held.is_active


@pytest.mark.req("S1-3.3.e", "S1-3.3.f")
async def test_order_before_during_and_after_is_one(store: SqliteStore) -> None:
    for priority in (0, 7, 0, -3):
        await put(store, priority=priority)
    before, places = await order_of(store), await store.peek("default", limit=MANY)

    await reserve(store)
    during = await store.peek("default", limit=MANY)
    await settle(store, await take(store), SUCCEEDED)

    assert during == places
    assert await order_of(store) == before
    assert await store.peek("default", limit=MANY) == places
    assert (await take(store)).id == before[0]


@pytest.mark.req("S1-7.b")
@pytest.mark.parametrize("how", ["tick", "wake", "direct"])
async def test_running_and_its_run_come_together_however_it_is_dispatched(
    path: Path, how: str
) -> None:
    query = """SELECT s.state, (SELECT count(*) FROM outlast_open_runs)
        FROM outlast_job_state AS s"""
    witness = Witness(path, query)
    store = await opened(path, probe=witness)
    settings = {**QUICK, "poll": "5ms" if how == "tick" else "10m"}
    async with Outlast(store, **settings) as app:
        if how == "tick":
            store.subscribe = lambda *_, **__: lambda: None  # type: ignore[method-assign]

        @app.job
        async def story() -> None: ...

        async with app.worker() as worker:
            await worker.drained()
            if how == "tick":  # or one commit may hold both the job and a claim that came by
                await app.queues.pause("default")
            handle = await (story.run_now() if how == "direct" else story.enqueue())
            await app.queues.resume("default")
            await handle.wait(SOON) if how != "tick" else await _polled(app, handle)

    assert [("queued", 0)] in witness.seen
    assert [("running", 1)] in witness.seen
    assert {row for seen in witness.seen for row in seen} == {
        ("queued", 0), ("running", 1), ("succeeded", 0)
    }  # fmt: skip


async def _polled(app: Outlast, handle: Handle[Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not (await handle.read()).is_final:  # noqa: ASYNC110 - hints are off
            await asyncio.sleep(0.005)

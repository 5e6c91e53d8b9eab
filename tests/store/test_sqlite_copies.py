"""The file is all there is: copied, vacuumed or opened elsewhere it is the same store."""

# ruff: noqa: ASYNC240 - a test may wait for the disk

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Failed
from outlast.core.job import DedupeKey
from outlast.core.ordering import Ordering
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    make_job,
    put,
    settle,
    started,
)
from support.crash.sqlite_target import dump

from .sqlite_helpers import FILES, files, opened, raw


async def _busy_life(store: SqliteStore) -> None:
    """Jobs in every state, two kinds of order, keys, a pruned gap in the numbers."""
    await store.set_queue(Queue(name="lane", ordering=Ordering.POSITION, gap=10))
    await ended(store, SUCCEEDED)
    await store.prune(older_than=-HOUR, limit=1)
    await ended(store, Failed("it broke"), delivery=Delivery.LINKED)
    await store.add([make_job(queue="lane", priority=n % 2) for n in range(6)])
    await started(store, queue="third", key=DedupeKey(key="k"))
    await ended(store, Failed("it broke", HOUR), queue="third")
    await settle(store, await job_of(store, await put(store)), CancelRequested("no"))
    await store.add([make_job(priority=n % 3) for n in range(9)])


async def _everything(store: SqliteStore) -> list[Any]:
    jobs = await store.find(Filter(), limit=MANY)
    return [
        jobs,
        [await store.runs(job.id) for job in jobs],
        [await store.events(job.id) for job in jobs],
        [await store.peek(queue, limit=MANY) for queue in ("default", "lane")],
        dict(await store.counts()),
        await store.queue("lane"),
    ]


def _copied(path: Path, to: Path) -> None:
    shutil.copy(path, to)


def _vacuumed(path: Path, to: Path) -> None:
    shutil.copy(path, to)
    with raw(to) as operator:
        operator.execute("VACUUM")


def _vacuumed_into(path: Path, to: Path) -> None:
    with raw(path) as operator:
        operator.execute("VACUUM INTO ?", (str(to),))


def _dumped(path: Path, to: Path) -> None:
    with raw(path) as old, raw(to) as new:
        new.execute("PRAGMA foreign_keys = OFF")
        new.executescript("\n".join(old.iterdump()))


def _with_bigger_pages(path: Path, to: Path) -> None:
    shutil.copy(path, to)
    with raw(to) as operator:
        operator.execute("PRAGMA journal_mode = DELETE")
        operator.execute("PRAGMA page_size = 16384")
        operator.execute("VACUUM")


WAYS = [_copied, _vacuumed, _vacuumed_into, _dumped, _with_bigger_pages]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_store_is_the_same_elsewhere(
    path: Path, clock: FakeClock, way: Callable[[Path, Path], None]
) -> None:
    async with opened(path, clock=clock) as store:
        await _busy_life(store)
        here = await _everything(store)
        order = [job.id for job in here[3][0]]
    elsewhere = path.with_name("elsewhere.db")

    way(path, elsewhere)

    async with opened(elsewhere, clock=clock) as store:
        there = await _everything(store)
        assert there == here
        assert await claim_order(store) == order


async def test_numbers_go_on_from_where_they_were_elsewhere(path: Path) -> None:
    async with opened(path) as store:
        last = await job_of(store, await put(store))
    elsewhere = path.with_name("elsewhere.db")
    _vacuumed_into(path, elsewhere)

    async with opened(elsewhere) as store:
        following = await job_of(store, await put(store))

    assert following.seq == last.seq + 1


async def test_copy_made_while_jobs_come_and_go_is_whole(store: SqliteStore, path: Path) -> None:
    await _busy_life(store)
    elsewhere = path.with_name("elsewhere.db")

    with raw(path) as here, raw(elsewhere) as there:
        here.backup(there, pages=1, progress=None)
    await put(store)

    assert len(dump(elsewhere)["outlast_jobs"]) == len(dump(path)["outlast_jobs"]) - 1
    async with opened(elsewhere) as copy:
        assert await copy.peek("default", limit=MANY)


async def test_all_three_files_copied_as_they_lie_are_the_store(
    store: SqliteStore, path: Path
) -> None:
    await _busy_life(store)
    here = await _everything(store)
    elsewhere = path.with_name("elsewhere.db")

    assert files(path) == list(FILES)
    for ending in FILES:
        shutil.copy(f"{path}{ending}", f"{elsewhere}{ending}")

    async with opened(elsewhere, clock=store._clock) as copy:
        assert await _everything(copy) == here


async def test_vacuum_beside_an_open_store_disturbs_nobody(store: SqliteStore, path: Path) -> None:
    await _busy_life(store)
    before = await _everything(store)

    with raw(path) as operator:
        operator.execute("VACUUM")

    assert await _everything(store) == before
    assert await put(store)


async def test_file_renamed_while_closed_is_the_same_store(path: Path) -> None:
    async with opened(path) as store:
        job_id = await put(store)
    moved = path.rename(path.with_name("moved.db"))

    async with opened(moved) as store:
        assert await claim_order(store) == [job_id]


async def test_outsider_reads_every_job_through_the_view(store: SqliteStore, path: Path) -> None:
    await _busy_life(store)
    jobs = await store.find(Filter(), limit=MANY)

    with raw(path) as outsider:
        outsider.row_factory = sqlite3.Row
        rows = outsider.execute("SELECT * FROM outlast_job_state").fetchall()

    assert {(row["id"], row["state"]) for row in rows} == {(job.id, job.state) for job in jobs}

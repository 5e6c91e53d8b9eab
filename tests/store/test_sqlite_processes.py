"""Several processes on one file: what one has written, the others see."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.core.state import State
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.reader import THREADS
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    MANY,
    SUCCEEDED,
    claim_order,
    job_of,
    put,
    settle,
    started,
)

from .sqlite_helpers import Peer, Trace, opened, raw

QUEUED = ("default", State.QUEUED)
DONE = ("default", State.SUCCEEDED)


@pytest.fixture
async def other(peer: Peer, path: Path, store: SqliteStore) -> AsyncIterator[Peer]:
    """The other process, with the same file open."""
    assert peer.ask("open", path) is None
    yield peer
    assert peer.ask("close") is None


async def test_job_of_another_process_is_seen_and_taken(store: SqliteStore, other: Peer) -> None:
    theirs = other.ask("add", 3)

    assert await claim_order(store) == theirs


async def test_end_written_by_another_process_is_seen(store: SqliteStore, other: Peer) -> None:
    job_id = await put(store)

    other.ask("finish", 1)

    assert (await job_of(store, job_id)).state is State.SUCCEEDED


async def test_another_process_never_takes_what_this_one_runs(
    store: SqliteStore, other: Peer
) -> None:
    claim = await started(store)

    taken = other.ask("finish", 10)

    assert taken == []
    assert await settle(store, claim, SUCCEEDED)


async def test_jobs_of_two_processes_are_numbered_together(store: SqliteStore, other: Peer) -> None:
    expected = []
    for _ in range(3):
        expected += [await put(store), *other.ask("add", 1)]

    newest_first = await store.find(Filter(), limit=MANY)

    assert [job.id for job in reversed(newest_first)] == expected


async def test_two_processes_that_write_at_once_lose_nothing(
    store: SqliteStore, other: Peer
) -> None:
    other.tell("add", 500)
    mine = await asyncio.gather(*(put(store) for _ in range(100)))
    theirs = other.answer()

    found = await store.find(Filter(), limit=MANY)

    assert {job.id for job in found} == {*mine, *theirs}
    assert len(found) == 600


async def test_process_that_closes_leaves_the_file_to_the_others(
    store: SqliteStore, path: Path, peer: Peer
) -> None:
    peer.ask("open", path)
    theirs = peer.ask("add", 1)
    peer.ask("close")

    mine = await put(store)

    assert set(await claim_order(store)) == {*theirs, mine}


async def test_counts_come_from_memory_while_nobody_writes(
    store: SqliteStore, trace: Trace
) -> None:
    await put(store)
    trace.steps.clear()

    found = [dict(await store.counts()) for _ in range(20)]

    assert found == [{QUEUED: 1}] * 20
    assert trace.count("jobs.counts") <= THREADS  # each reader may have to look once


async def test_counts_are_asked_again_when_this_process_has_written(
    store: SqliteStore, trace: Trace
) -> None:
    await put(store)
    before = dict(await store.counts())
    trace.steps.clear()

    await put(store)

    assert (before, dict(await store.counts())) == ({QUEUED: 1}, {QUEUED: 2})
    assert trace.count("jobs.counts") == 1


async def test_counts_are_asked_again_when_another_process_has_written(
    store: SqliteStore, trace: Trace, other: Peer
) -> None:
    other.ask("add", 2)
    before = dict(await store.counts())
    trace.steps.clear()

    other.ask("finish", 1)

    assert (before, dict(await store.counts())) == ({QUEUED: 2}, {QUEUED: 1, DONE: 1})
    assert trace.count("jobs.counts") == 1


async def test_counts_are_asked_again_when_anybody_has_edited_the_file(
    store: SqliteStore, path: Path
) -> None:
    await put(store)
    before = dict(await store.counts())

    with raw(path) as outsider:
        outsider.execute("UPDATE outlast_waiting SET state = 'blocked'")

    assert before == {QUEUED: 1}
    assert dict(await store.counts()) == {("default", State.BLOCKED): 1}


async def test_file_edited_while_closed_is_read_afresh(path: Path) -> None:
    async with opened(path) as store:
        await put(store)
        await store.counts()
        await store.close()
        with raw(path) as outsider:
            outsider.execute("UPDATE outlast_waiting SET state = 'blocked'")
        await store.open()

        assert dict(await store.counts()) == {("default", State.BLOCKED): 1}


async def test_what_a_caller_does_to_the_counts_is_his_own_affair(store: SqliteStore) -> None:
    await put(store)
    mine = await store.counts()
    assert isinstance(mine, dict)

    mine.clear()

    assert dict(await store.counts()) == {QUEUED: 1}


async def test_counts_come_from_memory_whichever_reader_is_asked(
    store: SqliteStore, trace: Trace
) -> None:
    await put(store)
    holds = [trace.acquire_lock("schema.data_version") for _ in range(THREADS)]
    asked = [asyncio.create_task(store.counts()) for _ in range(THREADS)]
    for held in holds:  # all readers are awake, each with a question of its own
        await held.reached()
    for held in holds:
        held.let_go()
    await asyncio.gather(*asked)
    trace.steps.clear()

    for _ in range(20):
        await store.counts()

    assert trace.count("jobs.counts") == 0

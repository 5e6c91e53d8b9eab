"""A file that another process has locked: waited for, then named; readers do not notice."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic

import pytest

from outlast.core.decide import decide
from outlast.core.state import State
from outlast.errors import OutlastError, StoreBusy
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    LEASE,
    SECOND,
    SUCCEEDED,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    started,
    take_many,
)
from support.crash.sqlite_target import dump

from .sqlite_helpers import PATIENCE, Peer, Trace, files, opened, raw

SHORT = 0.2
TELLS_WHO = Path("/proc/locks").exists()


@pytest.fixture
async def store(path: Path, trace: Trace) -> AsyncIterator[SqliteStore]:
    """A store that gives up soon."""
    async with opened(path, busy=SHORT, probe=trace) as sqlite:
        yield sqlite


@pytest.fixture
def locked(peer: Peer, path: Path, store: SqliteStore) -> Iterator[Peer]:
    """The other process, which holds the write lock."""
    peer.ask("lock_file", path)
    yield peer
    peer.ask("unlock_file")


def _names_the_lock(error: OutlastError, path: Path, peer: Peer) -> bool:
    who = f"by process {peer.pid}" if TELLS_WHO else ""
    return all(part in str(error) for part in (str(path), "locked", who, "wait longer"))


async def test_write_waits_and_then_names_file_and_process(
    store: SqliteStore, path: Path, locked: Peer
) -> None:
    began = monotonic()

    with pytest.raises(StoreBusy) as busy:
        await store.add([make_job()])

    assert monotonic() - began >= SHORT * 0.9
    assert _names_the_lock(busy.value, path, locked)


async def test_all_who_wait_are_told(store: SqliteStore, locked: Peer) -> None:
    waiting = [store.add([make_job()]), take_many(store), store.promote_due(limit=1)]

    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(answer) for answer in answers] == [StoreBusy] * 3


async def test_nothing_is_written_by_whoever_gave_up(
    store: SqliteStore, path: Path, peer: Peer
) -> None:
    claim = await started(store)
    await put(store)
    before = dump(path)
    peer.ask("lock_file", path)

    for write in (
        store.add([make_job()]),
        take_many(store),
        store.apply([decide(claim, SUCCEEDED, new_id=new_id)]),
        store.renew([claim.lease], span=LEASE),
    ):
        with pytest.raises(StoreBusy):
            await write

    peer.ask("unlock_file")
    assert dump(path) == before


async def test_reading_goes_on_while_the_file_is_locked(
    store: SqliteStore, path: Path, peer: Peer
) -> None:
    job_id = await put(store)
    peer.ask("lock_file", path)

    found = await store.find(Filter(), limit=10)
    counts = dict(await store.counts())

    peer.ask("unlock_file")
    assert [job.id for job in found] == [job_id]
    assert counts == {("default", State.QUEUED): 1}


async def test_everything_works_once_the_lock_is_gone(
    store: SqliteStore, path: Path, peer: Peer
) -> None:
    claim = await started(store)
    peer.ask("lock_file", path)
    with pytest.raises(StoreBusy):
        await settle(store, claim, SUCCEEDED)

    peer.ask("unlock_file")

    assert await settle(store, claim, SUCCEEDED)
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED
    assert await put(store)


async def test_lock_shorter_than_the_wait_is_waited_out(
    path: Path, peer: Peer, trace: Trace
) -> None:
    async with opened(path, busy=PATIENCE, probe=trace) as store:
        peer.ask("lock_file", path)
        at_the_lock = trace.acquire_lock("unit_of_work.begin")
        adding = asyncio.create_task(store.add([make_job()]))
        await at_the_lock.reached()
        at_the_lock.let_go()
        was_waiting = not adding.done()
        peer.ask("unlock_file")

        [added] = await adding

    assert was_waiting
    assert added.created


async def test_transaction_waits_and_then_names_file_and_process(
    store: SqliteStore, path: Path, peer: Peer
) -> None:
    peer.ask("lock_file", path)

    with pytest.raises(StoreBusy) as busy:
        await store.begin(within=SECOND)

    assert _names_the_lock(busy.value, path, peer)
    peer.ask("unlock_file")
    assert await put(store), "the transaction that never began holds nobody up"


async def test_own_process_is_never_named(store: SqliteStore, path: Path) -> None:
    with raw(path) as outsider:
        outsider.execute("BEGIN IMMEDIATE")

        with pytest.raises(StoreBusy) as busy:
            await store.add([make_job()])

    assert f"process {os.getpid()}" not in str(busy.value)


async def test_opening_a_locked_store_waits_and_then_names_it(
    store: SqliteStore, path: Path, locked: Peer
) -> None:
    began = monotonic()

    with pytest.raises(StoreBusy) as busy:
        await SqliteStore(path, busy=SHORT).open()

    assert monotonic() - began >= SHORT * 0.9
    assert _names_the_lock(busy.value, path, locked)


async def test_opening_a_file_not_yet_in_wal_mode_waits_for_its_lock_too(
    path: Path, peer: Peer
) -> None:
    with raw(path) as theirs:
        theirs.execute("CREATE TABLE books (title TEXT)")
    peer.ask("lock_file", path)
    began = monotonic()

    with pytest.raises(StoreBusy):
        await SqliteStore(path, busy=SHORT, adopt=True).open()

    waited = monotonic() - began
    peer.ask("unlock_file")
    assert waited >= SHORT * 0.9


async def test_store_that_met_a_lock_lets_go_of_the_file_when_closed(
    path: Path, peer: Peer
) -> None:
    gc.collect()
    gc.disable()  # closing must be enough; whoever unmounts the disk cannot wait for a collector
    try:
        async with opened(path, busy=SHORT) as store:
            peer.ask("lock_file", path)
            with pytest.raises(StoreBusy):
                await store.add([make_job()])
            peer.ask("unlock_file")

        assert files(path) == [""]
    finally:
        gc.enable()

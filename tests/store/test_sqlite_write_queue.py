"""Writers of all processes queue for the write lock, so that none of them starves another."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.errors import StoreBusy
from outlast.store.sqlite.locks import lock_folder
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.write_queue import QueuedLock
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import make_job

from .sqlite_helpers import PATIENCE, Peer, opened

LONG = timedelta(hours=1)


class Transactions:
    """Handler transactions of other processes, back to back; each ends when it is told to."""

    def __init__(self, folder: Path, path: Path, peers: list[Peer]) -> None:
        self._folder = folder
        self._path = path
        self.peers = peers
        for peer in peers:
            assert peer.ask("open", path) is None

    @property
    def jobs_seen(self) -> list[int]:
        """How many jobs each transaction found when it began, in their order."""
        log = self._folder / "log"
        return [int(line) for line in log.read_text().splitlines() or []] if log.exists() else []

    async def begin(self, count: int) -> None:
        """Let each process begin that many; return once one runs and all others queue."""
        for peer in self.peers:
            peer.tell("transactions", count, self._folder)
        await self.until(lambda: len(self.jobs_seen) == 1)
        await self.until(lambda: self.waiting("write") == 1)
        await self.until(lambda: self.waiting("transaction") == len(self.peers) - 2)

    def waiting(self, queue: str) -> int:
        """How many requests the kernel holds back on that file."""
        file = lock_folder(self._path) / f"{queue}.queue"
        inode = f":{file.stat().st_ino} "
        lines = Path("/proc/locks").read_text().splitlines()
        return sum(inode in line and "->" in line for line in lines)

    def end(self, number: int) -> None:
        (self._folder / f"end-{number}").touch()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():  # noqa: ASYNC110 - the kernel sends no event
                await asyncio.sleep(0.005)


@pytest.fixture
def others(request: pytest.FixtureRequest, path: Path, tmp_path: Path) -> Iterator[Transactions]:
    processes = getattr(request, "param", sizes.SIZES.race_processes)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer()) for _ in range(processes)]
        yield Transactions(tmp_path, path, peers)


@pytest.fixture
async def own(path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(path, busy=PATIENCE) as store:
        yield store


async def _queued_add(others: Transactions, store: SqliteStore) -> "asyncio.Task[object]":
    adding = asyncio.create_task(store.add([make_job()]))
    await others.until(lambda: others.waiting("write") == 2)
    return adding


async def test_at_most_two_transactions_pass_before_a_short_write(
    others: Transactions, own: SqliteStore
) -> None:
    rounds = 3
    await others.begin(rounds)

    adding = await _queued_add(others, own)
    later = asyncio.create_task(own.add([make_job()]))  # joins the write that waits
    for number in range(rounds * len(others.peers)):
        await others.until(lambda number=number: len(others.jobs_seen) > number)  # type: ignore[misc]
        others.end(number)
    await asyncio.gather(adding, later)

    assert [peer.answer() for peer in others.peers] == [None] * len(others.peers)
    assert others.jobs_seen == [0, 0, *[2] * (rounds * len(others.peers) - 2)]


@pytest.mark.parametrize("others", [2], indirect=True)
async def test_the_place_of_a_killed_process_is_given_up(
    others: Transactions, own: SqliteStore
) -> None:
    await others.begin(1)
    adding = await _queued_add(others, own)
    running = _holder(others)

    for peer in sorted(others.peers, key=lambda peer: peer.pid == running):
        peer.kill()  # first the one that waits, then the one that runs

    await asyncio.wait_for(adding, PATIENCE)


def _holder(others: Transactions) -> int:
    file = lock_folder(others._path) / "write.queue"
    lines = Path("/proc/locks").read_text().splitlines()
    [line] = [line for line in lines if f":{file.stat().st_ino} " in line and "->" not in line]
    return int(line.split()[4])


async def test_a_write_gives_up_in_time_and_its_place_blocks_no_other(path: Path) -> None:
    async with opened(path, busy=0.1) as impatient, opened(path, busy=PATIENCE) as patient:
        transaction = await patient.begin(within=LONG)
        with pytest.raises(StoreBusy):
            await impatient.add([make_job()])

        await transaction.rollback()

        [added] = await patient.add([make_job()])
        assert added.created
        [added] = await impatient.add([make_job()])
        assert added.created


def test_a_forked_child_keeps_no_place_in_the_queue(path: Path) -> None:
    lock, other = (QueuedLock(path, path.with_name("write.queue")) for _ in range(2))
    assert lock.acquire(PATIENCE)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)

    assert not other.acquire(0), "the parent still has it"
    lock.close()

    assert other.acquire(PATIENCE)
    os.close(writing)
    os.waitpid(child, 0)
    other.close()


async def test_writes_go_on_where_no_file_can_be_locked(path: Path) -> None:
    lock_folder(path).write_text("not a folder")
    async with opened(path, busy=PATIENCE) as store, opened(path, busy=PATIENCE) as other:
        transaction = await store.begin(within=LONG)
        adding = asyncio.create_task(other.add([make_job()]))
        await asyncio.sleep(0)

        await transaction.rollback()

        [added] = await adding
        assert added.created

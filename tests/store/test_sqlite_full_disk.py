"""A full disk: it says so, nothing is half-written, and all goes on when there is room again."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from outlast.core.decide import decide
from outlast.core.event import Succeeded
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import StoreFull
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    SECOND,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    started,
    take_many,
)
from support.crash.sqlite_target import dump

from .sqlite_helpers import opened, writing

BIG = '"' + "x" * 200_000 + '"'
CROWD = 2000


class Disk(Protocol):
    """Somewhere a store lives that can be filled up and cleared again."""

    folder: Path

    def fill(self, store: SqliteStore) -> None: ...
    def clear(self, store: SqliteStore) -> None: ...


class Tmpfs:
    """A small disk of its own, filled up with ballast; OSError where mounting is not allowed."""

    def __init__(self, folder: Path) -> None:
        mount = shutil.which("mount") or "/bin/mount"
        command = [mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            raise PermissionError(f"{folder} cannot be mounted")
        self.folder = folder

    def fill(self, _: SqliteStore) -> None:
        with suppress(OSError), (self.folder / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)) == 4096:
                pass

    def clear(self, _: SqliteStore) -> None:
        (self.folder / "ballast").unlink()

    def unmount(self) -> None:
        umount = shutil.which("umount") or "/bin/umount"
        subprocess.run([umount, "--lazy", str(self.folder)], check=True)


class Pages:
    """The next best thing, for everybody: SQLite is told that the file may grow no more."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, store: SqliteStore) -> None:
        [pages] = writing(store).execute("PRAGMA page_count").fetchone()
        writing(store).execute(f"PRAGMA max_page_count = {pages}")

    def clear(self, store: SqliteStore) -> None:
        writing(store).execute("PRAGMA max_page_count = 1000000")


@pytest.fixture(params=["disk", "pages"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "disk":
        with suppress(PermissionError):
            mounted = Tmpfs(tmp_path)
            yield mounted
            mounted.unmount()
            return
    yield Pages(tmp_path)


@pytest.fixture
async def store(disk: Disk) -> AsyncIterator[SqliteStore]:
    async with opened(disk.folder / "jobs.db") as sqlite:
        yield sqlite


def _finish(claim: Claim) -> list[object]:
    return [decide(claim, Succeeded(BIG), new_id=new_id)]


async def test_enqueue_on_a_full_disk_says_so_and_writes_nothing(
    disk: Disk, store: SqliteStore
) -> None:
    await put(store)
    before = dump(store.path)
    disk.fill(store)

    with pytest.raises(StoreFull) as full:
        await store.add([make_job(params=BIG), make_job()])

    assert str(store.path) in str(full.value)
    assert "nothing was written" in str(full.value)
    assert "Make room" in str(full.value)
    assert dump(store.path) == before


async def test_finish_on_a_full_disk_leaves_the_run_open(disk: Disk, store: SqliteStore) -> None:
    claim = await started(store)
    before = dump(store.path)
    disk.fill(store)

    with pytest.raises(StoreFull):
        await settle(store, claim, Succeeded(BIG))

    assert dump(store.path) == before
    assert (await job_of(store, claim.id)).state is State.RUNNING


async def test_claim_on_a_full_disk_takes_nothing(disk: Disk, store: SqliteStore) -> None:
    await store.add([make_job() for _ in range(CROWD)])
    before = dump(store.path)
    disk.fill(store)

    with pytest.raises(StoreFull):
        await take_many(store, limit=CROWD)

    assert dump(store.path) == before
    assert dict(await store.counts()) == {("default", State.QUEUED): CROWD}


async def test_transaction_on_a_full_disk_keeps_neither_effect_nor_finish(
    disk: Disk, store: SqliteStore
) -> None:
    claim = await started(store)
    writing(store).execute("CREATE TABLE effects (what TEXT)")
    before = dump(store.path)
    disk.fill(store)
    transaction = await store.begin(within=30 * SECOND)
    [pages] = transaction.connection.execute("PRAGMA page_count").fetchone()
    transaction.connection.execute(f"PRAGMA max_page_count = {pages}")
    transaction.connection.execute("INSERT INTO effects VALUES ('invoice')")

    with pytest.raises(StoreFull):
        await transaction.commit(_finish(claim))

    assert dump(store.path) == before


async def test_reading_goes_on_while_the_disk_is_full(disk: Disk, store: SqliteStore) -> None:
    job_id = await put(store)
    disk.fill(store)
    with pytest.raises(StoreFull):
        await store.add([make_job(params=BIG)])

    found = await store.find(Filter(), limit=10)

    assert [job.id for job in found] == [job_id]
    assert dict(await store.counts()) == {("default", State.QUEUED): 1}


async def test_everything_works_again_when_there_is_room(disk: Disk, store: SqliteStore) -> None:
    claim = await started(store)
    disk.fill(store)
    with pytest.raises(StoreFull):
        await store.add([make_job(params=BIG)])
    with pytest.raises(StoreFull):
        await settle(store, claim, Succeeded(BIG))

    disk.clear(store)

    waiting = await put(store, params=BIG)
    assert await settle(store, claim, Succeeded(BIG))
    [taken] = await take_many(store)
    assert taken.id == waiting
    assert await settle(store, taken, Succeeded(BIG))
    assert dict(await store.counts()) == {("default", State.SUCCEEDED): 2}


async def test_full_disk_harms_nothing_that_was_acknowledged(
    disk: Disk, store: SqliteStore
) -> None:
    acknowledged = {await put(store, params=BIG) for _ in range(5)}
    disk.fill(store)
    with suppress(StoreFull):
        for _ in range(100):
            acknowledged.add(await put(store, params=BIG))
    await store.close()

    await store.open()

    found = await store.find(Filter(), limit=1000)
    assert {job.id for job in found} == acknowledged
    assert dump(store.path), "and the file is sound"

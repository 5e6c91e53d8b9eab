"""What happens where nothing may be written, root or not: root becomes nobody for a moment."""

# ruff: noqa: ASYNC240 - a test may wait for the disk

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from outlast.errors import OperatorError, OutlastError, StoreReadOnly
from outlast.store.sqlite.file_modes import create_private
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import make_job, put

from .sqlite_helpers import opened

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """As somebody whom permissions bind."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own are closed to nobody."""
    with TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o777)
        yield place
        place.chmod(0o777)


@pytest.fixture
async def path(folder: Path) -> Path:
    """A store's file that anybody may read and write."""
    file = folder / "jobs.db"
    async with opened(file) as store:
        await put(store)
    file.chmod(0o666)
    return file


async def _refusal(path: Path) -> OutlastError:
    with unprivileged(), pytest.raises(OutlastError) as refused:
        await SqliteStore(path).open()
    return refused.value


async def test_file_that_may_only_be_read_is_refused_untouched(path: Path) -> None:
    path.chmod(0o444)
    before = path.read_bytes()

    error = await _refusal(path)

    assert isinstance(error, StoreReadOnly)
    assert str(path) in str(error)
    assert "allow this user to write there" in str(error)
    assert path.read_bytes() == before


async def test_file_in_a_folder_that_may_only_be_read_is_refused_untouched(path: Path) -> None:
    path.parent.chmod(0o555)
    before = path.read_bytes()

    error = await _refusal(path)

    assert isinstance(error, StoreReadOnly)
    assert str(path) in str(error)
    assert "or its folder cannot be written" in str(error)
    assert path.read_bytes() == before


async def test_new_file_in_a_folder_that_may_only_be_read_is_refused(folder: Path) -> None:
    folder.chmod(0o555)

    error = await _refusal(folder / "new.db")

    assert isinstance(error, StoreReadOnly)
    assert str(folder / "new.db") in str(error)
    assert "write" in str(error)
    assert list(folder.iterdir()) == []


async def test_file_that_may_not_even_be_read_is_refused(path: Path) -> None:
    path.chmod(0)

    error = await _refusal(path)

    assert isinstance(error, OperatorError)
    assert str(path) in str(error)


async def test_place_where_no_file_can_be_made_is_refused() -> None:
    error = await _refusal(Path("/proc/outlast-jobs.db"))

    assert isinstance(error, OperatorError)
    assert "/proc/outlast-jobs.db" in str(error)


async def test_permissions_put_right_the_same_store_opens(path: Path) -> None:
    path.chmod(0o444)
    store = SqliteStore(path)
    with unprivileged(), pytest.raises(StoreReadOnly):
        await store.open()
    path.chmod(0o666)

    with unprivileged():
        await store.open()
        [added] = await store.add([make_job()])
        await store.close()

    assert added.created


@pytest.mark.parametrize("umask", [0o022, 0o000, 0o077])
async def test_new_files_are_open_to_their_owner_alone(folder: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        async with opened(folder / "jobs.db") as store:
            await put(store)
            lock = await store.acquire_lock("mine")
            assert lock is not None
            modes = {each: each.stat().st_mode & 0o777 for each in folder.rglob("*")}
    finally:
        os.umask(before)

    names = {each.name for each in modes}
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-locks", "mine.lock"} <= names
    expected = {each: 0o700 if each.is_dir() else 0o600 for each in modes if not each.is_socket()}
    assert {each: mode for each, mode in modes.items() if each in expected} == {
        each: expected[each] for each in expected
    }


async def test_existing_file_keeps_its_mode_and_is_named_if_everyone_may_read_it(
    path: Path,
) -> None:
    for mode, told in ((0o644, f"may read {path}"), (0o666, f"may write {path}"), (0o660, "")):
        path.chmod(mode)
        async with opened(path) as store:
            await put(store)
            warnings = [each for each in await store.health_warnings() if "every user" in each]

        assert path.stat().st_mode & 0o777 == mode
        assert bool(warnings) is bool(told)
        assert told in "".join(warnings)


async def test_new_files_beside_a_shared_database_follow_its_mode(path: Path) -> None:
    for each in path.parent.glob("jobs.db-locks"):
        each.rename(path.parent / "old-locks")
    path.chmod(0o660)
    before = os.umask(0)
    try:
        async with opened(path) as store:
            await put(store)
            assert await store.acquire_lock("mine") is not None
    finally:
        os.umask(before)

    locks = path.parent / "jobs.db-locks"
    assert locks.stat().st_mode & 0o777 == 0o770
    assert (locks / "mine.lock").stat().st_mode & 0o777 == 0o660


def test_opening_a_database_again_keeps_the_locks_of_its_other_connections(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    begin = f"import sqlite3; sqlite3.connect({str(path)!r}, timeout=0).execute('BEGIN IMMEDIATE')"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
        database.execute("BEGIN IMMEDIATE")

        create_private(path)
        other = subprocess.run([sys.executable, "-c", begin], capture_output=True, check=False)

    assert b"database is locked" in other.stderr

"""What happens where nothing may be written, root or not: root becomes nobody for a moment."""

# ruff: noqa: ASYNC240 - a test may wait for the disk

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from outlast.errors import OperatorError, OutlastError, StoreReadOnly
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

"""Locks beside the file: no child keeps one, no link gets around one, no tidying breaks one."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.errors import OperatorError, StoreReadOnly
from outlast.store.sqlite.locks import lock_folder
from outlast.store.sqlite.store import SqliteStore

from .sqlite_helpers import PATIENCE, environment, opened

HOLDER = """
import asyncio, os, subprocess, sys
from pathlib import Path
from outlast.store.sqlite.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
asyncio.run(store.open())
held = asyncio.run(store.acquire_lock("host-1"))
assert held is not None
if sys.argv[2] == "fork":
    child = os.fork()
else:
    child = subprocess.Popen(["sleep", "600"], close_fds=False, stdout=subprocess.DEVNULL).pid
if child == 0:
    print(os.getpid(), flush=True)  # by now it has let go of what its parent holds
    os.close(1)
    os.read(0, 1)
    os._exit(0)
if sys.argv[2] != "fork":
    print(child, flush=True)
os.read(0, 1)
"""


# Python 3.12 warns of what these tests are about: a fork beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def _fork(act: Callable[[], object]) -> None:
    """Do it in a child, and wait for that to end."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.parametrize("how", ["fork", "exec"])
async def test_child_that_outlives_a_killed_holder_does_not_keep_its_lock(
    store: SqliteStore, path: Path, how: str
) -> None:
    holder = subprocess.Popen(  # noqa: ASYNC220 - the test waits for it
        [sys.executable, "-W", "ignore", "-c", HOLDER, str(path), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    child = int(holder.stdout.readline())
    while_it_lived = await store.acquire_lock("host-1")

    holder.kill()
    holder.wait(PATIENCE)
    after = await store.acquire_lock("host-1")

    os.kill(child, 0)  # the child lives on
    os.kill(child, 9)
    holder.stdin.close()
    holder.stdout.close()
    assert while_it_lived is None
    assert after is not None


async def test_forked_child_that_lets_go_does_not_free_its_parent_s_lock(
    store: SqliteStore,
) -> None:
    held = await store.acquire_lock("host-1")
    assert held is not None

    _fork(held.drop)

    assert await store.acquire_lock("host-1") is None


async def test_two_stores_of_one_process_exclude_each_other(store: SqliteStore, path: Path) -> None:
    async with opened(path) as rival:
        held = await store.acquire_lock("host-1")

        assert held is not None
        assert await rival.acquire_lock("host-1") is None
        await held.release()
        assert await rival.acquire_lock("host-1") is not None


async def test_link_to_the_file_leads_to_the_same_lock(store: SqliteStore, path: Path) -> None:
    link = path.parent / "elsewhere"
    link.mkdir()
    (link / "other.db").symlink_to(path)

    async with opened(link / "other.db") as rival:
        assert await store.acquire_lock("host-1") is not None
        assert await rival.acquire_lock("host-1") is None
    assert not lock_folder(link / "none.db").exists()


async def test_file_tidied_away_while_it_is_waited_for_excludes_nobody(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lock_folder(path) / "host-1.lock"
    really, removed = os.open, []

    def removing(*given: object) -> int:
        opened_file = really(*given)
        if given[0] == file and not removed:
            removed.append(file)
            file.unlink()
        return opened_file

    monkeypatch.setattr(os, "open", removing)
    held = await store.acquire_lock("host-1")

    assert held is not None
    assert removed
    assert file.exists()
    assert await store.acquire_lock("host-1") is None


async def test_cancelled_taking_leaves_the_lock_free(store: SqliteStore) -> None:
    for _ in range(20):
        taking = asyncio.create_task(store.acquire_lock("host-1"))
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait([taking])

    async with asyncio.timeout(PATIENCE):
        while (held := await store.acquire_lock("host-1")) is None:  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0)
    await held.release()


async def test_folder_that_cannot_be_written_is_named(path: Path) -> None:
    async with opened(path) as store:
        lock_folder(path).write_text("no folder")

        with pytest.raises(OperatorError, match=r"host-1\.lock") as refused:
            await store.acquire_lock("host-1")
    assert not isinstance(refused.value, StoreReadOnly)


async def test_link_in_the_place_of_a_lock_is_not_followed(store: SqliteStore, path: Path) -> None:
    lock_folder(path).mkdir()
    (lock_folder(path) / "host-1.lock").symlink_to(path.parent / "precious")

    with pytest.raises(OperatorError):
        await store.acquire_lock("host-1")

    assert not (path.parent / "precious").exists()


async def test_forks_and_holds_of_many_threads_end(store: SqliteStore) -> None:
    stop = threading.Event()

    def take() -> None:
        while not stop.is_set():
            held = store._locks.acquire("host-2")
            if held is not None:
                held.drop()

    takers = [threading.Thread(target=take) for _ in range(3)]
    for taker in takers:
        taker.start()
    for _ in range(20):
        _fork(lambda: None)
    stop.set()
    for taker in takers:
        taker.join(PATIENCE)

    assert not any(taker.is_alive() for taker in takers)
    assert await store.acquire_lock("host-2") is not None

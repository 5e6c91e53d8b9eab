"""Wake-ups between processes: quick, quiet, and never in anybody's way."""

import asyncio
import logging
import os
import queue
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.decide import succeed
from outlast.core.event import CancelRequested, Edited, Moved
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.sqlite.notify import notifier
from outlast.store.sqlite.notify.socket_dir import socket_dir_for
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SUCCEEDED,
    job_of,
    make_job,
    put,
    settle,
    started,
)

from .kit import PATIENCE, Peer, environment, opened

ALL = [str(topic) for topic in Topic]


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of this test alone; a test's own folder has too long a name for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="hf-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def place(path: Path, store: SqliteStore) -> Path:
    return socket_dir_for(path)


@pytest.fixture
def other() -> Iterator[Peer]:
    """A process that is this test's alone, to be killed if it likes."""
    with Peer() as process:
        yield process


@pytest.fixture
async def rival(path: Path, store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """A second store on the same file, in this process."""
    async with opened(path) as second:
        yield second


def _sockets(place: Path) -> list[str]:
    return sorted(each.name for each in place.iterdir()) if place.exists() else []


def _is_there(place: Path) -> bool:
    return place.exists()


def _squat(place: Path, name: str, kind: int = socket.SOCK_DGRAM) -> socket.socket:
    """Somebody's socket under that name."""
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    found = socket.socket(socket.AF_UNIX, kind)
    found.bind(str(place / name))
    return found


class Heard:
    """Collects hints, on whichever thread they come."""

    def __init__(self) -> None:
        self._hints: queue.SimpleQueue[Notification] = queue.SimpleQueue()
        self.hear = self._hints.put

    async def next(self) -> Notification:
        return await asyncio.to_thread(self._hints.get, timeout=PATIENCE)

    @property
    def rest(self) -> int:
        return self._hints.qsize()


async def test_other_process_is_told_of_work_of_an_end_and_of_a_cancel_request(
    store: SqliteStore, path: Path, other: Peer
) -> None:
    other.ask("open", path)
    other.ask("subscribe", ALL)

    claim = await started(store)
    work = other.ask("heard")
    await settle(store, claim, CancelRequested())
    cancel = other.ask("heard")
    await settle(store, claim, SUCCEEDED)
    end = other.ask("heard")

    assert (work, cancel, end) == (["work"], ["cancelled"], ["ended"])
    other.ask("close")


async def test_other_process_is_not_woken_for_what_it_did_not_ask_for(
    store: SqliteStore, path: Path, other: Peer
) -> None:
    other.ask("open", path)
    other.ask("subscribe", ["ended"])

    claim = await started(store)
    await settle(store, claim, CancelRequested())
    await settle(store, claim, SUCCEEDED)

    assert other.ask("heard") == ["ended"]
    assert other.ask("heard_more") == 0
    other.ask("close")


async def test_listener_here_is_told_once_and_which_queue(store: SqliteStore) -> None:
    heard, again = Heard(), Heard()
    store.subscribe(heard.hear)
    store.subscribe(again.hear, topics=[Topic.ENDED])

    await put(store, queue="lane")
    claim = await started(store)
    await settle(store, claim, SUCCEEDED)

    assert (await heard.next()).queues == {"lane"}
    assert (await heard.next()).queues == {"default"}
    assert (await heard.next()).topics == {Topic.ENDED}
    assert (await again.next()).topics == {Topic.ENDED}
    assert (heard.rest, again.rest) == (0, 0)


async def test_nobody_is_woken_for_what_is_due_later(store: SqliteStore) -> None:
    heard = Heard()
    store.subscribe(heard.hear)

    await store.add([make_job(delay=HOUR, queue="later") for _ in range(3)])
    await put(store, delay=HOUR, queue="later")
    await put(store, queue="now")

    assert (await heard.next()).queues == {"now"}
    assert heard.rest == 0


async def test_job_made_due_now_wakes_and_one_moved_or_put_off_does_not(
    store: SqliteStore,
) -> None:
    later, waiting = await put(store, delay=HOUR), await put(store)
    heard = Heard()
    store.subscribe(heard.hear)

    for job_id, event in [
        (waiting, Moved(MoveTo(Anchor.FRONT))),
        (waiting, Edited(JobEdit(priority=3))),
        (waiting, Edited(JobEdit(delay=HOUR))),
        (later, Edited(JobEdit(delay=timedelta(0)))),
    ]:
        assert await settle(store, await job_of(store, job_id), event)

    assert (await heard.next()).topics == {Topic.WORK}
    assert heard.rest == 0


async def test_two_stores_of_one_process_tell_each_other(
    store: SqliteStore, rival: SqliteStore
) -> None:
    heard, theirs = Heard(), Heard()
    store.subscribe(heard.hear)
    rival.subscribe(theirs.hear)

    await put(rival)

    assert (await heard.next()).queues == {""}
    assert (await theirs.next()).queues == {"default"}
    assert (heard.rest, theirs.rest) == (0, 0)


async def test_listener_may_come_before_the_store_is_open(path: Path, rival: SqliteStore) -> None:
    heard = Heard()
    store = SqliteStore(path)
    store.subscribe(heard.hear)
    await store.open()

    await put(rival)

    assert await heard.next()
    await store.close()


async def test_store_opened_again_listens_again(
    store: SqliteStore, rival: SqliteStore, place: Path
) -> None:
    heard = Heard()
    store.subscribe(heard.hear)
    await store.close()
    gone = _sockets(place)
    await store.open()

    await put(rival)

    assert gone == []
    assert await heard.next()


async def test_socket_says_what_is_wanted_and_goes_with_the_last_listener(
    store: SqliteStore, place: Path
) -> None:
    before = _sockets(place)
    first = store.subscribe(Heard().hear, topics=[Topic.ENDED])
    ended = _sockets(place)
    second = store.subscribe(Heard().hear, topics=[Topic.WORK, Topic.CANCELLED])
    everything = _sockets(place)
    first()
    work = _sockets(place)
    second()

    assert before == []
    assert [name[0] for name in (*ended, *everything, *work)] == ["2", "7", "5"]
    assert {name[1:] for name in (*ended, *everything, *work)} == {ended[0][1:]}
    assert not _is_there(place)


async def test_listener_that_changes_its_wishes_is_found_at_once(
    store: SqliteStore, rival: SqliteStore
) -> None:
    heard = Heard()
    store.subscribe(heard.hear, topics=[Topic.WORK])
    await put(rival)
    await heard.next()
    store.subscribe(Heard().hear, topics=[Topic.ENDED])

    await put(rival)

    assert (await heard.next()).topics == {Topic.WORK}


async def test_closing_takes_the_socket_and_the_thread_away(path: Path) -> None:
    async with opened(path) as store:
        place = socket_dir_for(path)
        store.subscribe(Heard().hear)
        while_open = _sockets(place)

    assert len(while_open) == 1
    assert not _is_there(place)
    assert "outlast-hints" not in [thread.name for thread in threading.enumerate()]


async def test_listener_may_leave_from_its_own_hint(
    store: SqliteStore, rival: SqliteStore, place: Path
) -> None:
    left = threading.Event()

    def leave(_: Notification) -> None:
        unlisten()
        left.set()

    unlisten = store.subscribe(leave)
    await put(rival)

    assert await asyncio.to_thread(left.wait, PATIENCE)
    assert _sockets(place) == []


async def test_socket_of_a_killed_listener_is_forgotten(
    store: SqliteStore, path: Path, place: Path, other: Peer
) -> None:
    other.ask("open", path)
    other.ask("subscribe", ALL)
    before = _sockets(place)
    other.kill()
    after_its_death = _sockets(place)

    await put(store)

    assert before == after_its_death != []
    assert not _is_there(place)


FORKING = """
import asyncio, os, sys
from pathlib import Path
from outlast.store.sqlite.store import SqliteStore

store = SqliteStore(Path(sys.argv[1]))
asyncio.run(store.open())
store.subscribe(lambda hint: None)
child = os.fork()
if child == 0:
    asyncio.run(store.close())
    print(os.getpid(), flush=True)  # by now it has let go of what its parent holds
    os.read(0, 1)
    os._exit(0)
os.read(0, 1)
"""


async def test_forked_child_neither_answers_for_its_parent_nor_takes_its_socket(
    store: SqliteStore, path: Path, place: Path
) -> None:
    parent = subprocess.Popen(  # noqa: ASYNC220 - the test waits for it
        [sys.executable, "-W", "ignore", "-c", FORKING, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    child = int(parent.stdout.readline())
    before = _sockets(place)

    parent.kill()
    parent.wait(PATIENCE)
    await put(store)

    os.kill(child, 0)  # it lives on
    os.kill(child, 9)
    parent.stdin.close()
    parent.stdout.close()
    assert len(before) == 1
    assert _sockets(place) == []


async def test_hostile_files_in_the_folder_harm_nobody(
    store: SqliteStore, rival: SqliteStore, place: Path, runtime: Path
) -> None:
    elsewhere = _squat(runtime / "elsewhere", "precious")
    stream = _squat(place, "7-2-00000000", socket.SOCK_STREAM)
    (place / "7-1-00000000").write_text("no socket")
    (place / "7-3-00000000").symlink_to(runtime / "elsewhere" / "precious")
    (place / "7-4-00000000").mkdir()
    os.mkfifo(place / "7-5-00000000")
    (place / "7-6-00000000").symlink_to(place / "7-6-00000000")
    (place / "7-7").write_text("no name")
    (place / "\udcff").write_text("no text")
    hostile = _sockets(place)
    heard = Heard()
    store.subscribe(heard.hear)

    for _ in range(3):
        await put(rival)
        await heard.next()

    elsewhere.setblocking(False)
    with pytest.raises(BlockingIOError):
        elsewhere.recv(1)
    assert set(hostile) < set(_sockets(place)), "nothing was taken away"
    elsewhere.close()
    stream.close()


async def test_listener_that_reads_nothing_holds_up_nobody(store: SqliteStore, place: Path) -> None:
    deaf = _squat(place, "7-1-00000000")

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(put(store) for _ in range(50)))
        for _ in range(600):
            store._listeners.publish(Notification(ended=True))

    deaf.close()


async def test_nonsense_sent_to_a_listener_is_no_news(
    store: SqliteStore, rival: SqliteStore, place: Path
) -> None:
    heard = Heard()
    store.subscribe(heard.hear)
    [name] = _sockets(place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as liar:
        for nonsense in (b"", b"\0", b"\xf8" * 100, b"\x08"):
            liar.sendto(nonsense, str(place / name))

    await put(rival)

    hints = [await heard.next()]
    assert Notification(queues=frozenset({""})) in hints
    assert heard.rest == 0


async def test_copy_of_the_file_has_listeners_of_its_own(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    await put(store)
    copy = tmp_path / "copy.db"
    await store.close()
    shutil.copy(path, copy)
    await store.open()
    heard = Heard()
    store.subscribe(heard.hear)

    async with opened(copy) as elsewhere:
        await put(elsewhere)
    await put(store)

    assert (await heard.next()).queues == {"default"}
    assert heard.rest == 0


async def test_link_to_the_file_leads_to_the_same_listeners(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    heard = Heard()
    store.subscribe(heard.hear)

    async with opened(link) as same:
        await put(same)

    assert (await heard.next()).queues == {""}


async def test_folder_is_read_again_only_when_it_has_changed(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, really = [], os.scandir
    monkeypatch.setattr(
        notifier.os, "scandir", lambda folder: reads.append(folder) or really(folder)
    )
    first, second = Heard(), Heard()
    async with opened(path) as listener, opened(path, clock=clock) as teller:
        listener.subscribe(first.hear)
        await put(teller)
        clock.advance("1s")
        await put(teller)
        reads.clear()
        for _ in range(20):
            await put(teller)
        while_nothing_changed = list(reads)
        async with opened(path) as late:
            late.subscribe(second.hear)
            await put(teller)
            assert await second.next()

    assert while_nothing_changed == []
    assert reads, "and the newcomer was found"


async def test_newcomer_within_the_same_time_stamp_is_found(path: Path, clock: FakeClock) -> None:
    first, second = Heard(), Heard()
    async with opened(path) as store, opened(path, clock=clock) as teller:
        place = socket_dir_for(path)
        store.subscribe(first.hear)
        os.utime(place, ns=(1, 1))
        await put(teller)
        async with opened(path) as late:
            late.subscribe(second.hear)
            os.utime(place, ns=(1, 1))  # as if both had come within one tick of the file system
            await put(teller)

            assert (await second.next()).topics == {Topic.WORK}


@pytest.mark.parametrize("trouble", ["long", "not ours", "a file", "no sockets"])
async def test_without_a_place_to_meet_all_is_right_and_only_slower(
    path: Path,
    runtime: Path,
    trouble: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "outlast.store")
    ours = runtime / f"outlast-{os.geteuid()}"
    if trouble == "long":
        (runtime / ("x" * 100)).mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / ("x" * 100)))
    elif trouble == "not ours":
        ours.mkdir()
        ours.chmod(0o777)
    elif trouble == "a file":
        ours.write_text("no folder")
    else:
        monkeypatch.delattr(socket, "AF_UNIX")
    heard, theirs = Heard(), Heard()
    async with opened(path) as store, opened(path) as rival:
        leave = store.subscribe(heard.hear)
        rival.subscribe(theirs.hear)
        claim = await started(store)
        assert await settle(store, claim, SUCCEEDED)
        leave()

    assert (await heard.next()).queues == {"default"}
    assert (await heard.next()).topics == {Topic.ENDED}
    assert theirs.rest == 0
    assert "no hints" in caplog.text
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_without_a_runtime_folder_the_temporary_one_will_do(
    path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(runtime))
    heard = Heard()

    async with opened(path) as store, opened(path) as rival:
        store.subscribe(heard.hear)
        await put(rival)

        assert await heard.next()
        assert socket_dir_for(path).parent == runtime / f"outlast-{os.geteuid()}"
        assert socket_dir_for(path).parent.stat().st_mode & 0o777 == 0o700


async def test_folder_taken_away_while_somebody_listens_is_no_trouble(
    store: SqliteStore, rival: SqliteStore, place: Path
) -> None:
    leave = store.subscribe(Heard().hear)
    shutil.rmtree(place)

    await put(rival)
    store.subscribe(Heard().hear, topics=[Topic.ENDED])()
    leave()
    await store.close()

    assert not _is_there(place)


async def test_transaction_of_a_handler_tells_the_others_too(
    store: SqliteStore, rival: SqliteStore
) -> None:
    claim = await started(store)
    heard = Heard()
    rival.subscribe(heard.hear, topics=[Topic.ENDED])

    transaction = await store.begin(within=timedelta(seconds=PATIENCE))
    assert await transaction.commit([succeed(claim.id, claim.token, None)])

    assert (await heard.next()).topics == {Topic.ENDED}

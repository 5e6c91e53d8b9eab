"""Sockets of notifications: made, removed, found, and harmless when damaged or missing."""

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from outlast.store.contract.notifications import Notification, Topic
from outlast.store.sqlite.notify import notifier
from outlast.store.sqlite.notify.socket_dir import socket_dir_for
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, put, settle, started
from store.sqlite_helpers import PATIENCE, Peer, environment, opened

from .notification_sockets import ALL, ReceivedNotifications, is_there, sockets, squat


async def test_socket_says_what_is_wanted_and_goes_with_the_last_listener(
    store: SqliteStore, place: Path
) -> None:
    before = sockets(place)
    first = store.subscribe(ReceivedNotifications().hear, topics=[Topic.ENDED])
    ended = sockets(place)
    second = store.subscribe(ReceivedNotifications().hear, topics=[Topic.WORK, Topic.CANCELLED])
    everything = sockets(place)
    first()
    work = sockets(place)
    second()

    assert before == []
    assert [name[0] for name in (*ended, *everything, *work)] == ["2", "7", "5"]
    assert {name[1:] for name in (*ended, *everything, *work)} == {ended[0][1:]}
    assert not is_there(place)


async def test_closing_takes_the_socket_and_the_thread_away(path: Path) -> None:
    async with opened(path) as store:
        place = socket_dir_for(path)
        store.subscribe(ReceivedNotifications().hear)
        while_open = sockets(place)

    assert len(while_open) == 1
    assert not is_there(place)
    assert "outlast-listener" not in [thread.name for thread in threading.enumerate()]


async def test_socket_of_a_killed_listener_is_forgotten(
    store: SqliteStore, path: Path, place: Path, other: Peer
) -> None:
    other.ask("open", path)
    other.ask("subscribe", ALL)
    before = sockets(place)
    other.kill()
    after_its_death = sockets(place)

    await put(store)

    assert before == after_its_death != []
    assert not is_there(place)


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
    before = sockets(place)

    parent.kill()
    parent.wait(PATIENCE)
    await put(store)

    os.kill(child, 0)  # it lives on
    os.kill(child, 9)
    parent.stdin.close()
    parent.stdout.close()
    assert len(before) == 1
    assert sockets(place) == []


async def test_hostile_files_in_the_folder_harm_nobody(
    store: SqliteStore, rival: SqliteStore, place: Path, runtime: Path
) -> None:
    elsewhere = squat(runtime / "elsewhere", "precious")
    stream = squat(place, "7-2-00000000", socket.SOCK_STREAM)
    (place / "7-1-00000000").write_text("no socket")
    (place / "7-3-00000000").symlink_to(runtime / "elsewhere" / "precious")
    (place / "7-4-00000000").mkdir()
    os.mkfifo(place / "7-5-00000000")
    (place / "7-6-00000000").symlink_to(place / "7-6-00000000")
    (place / "7-7").write_text("no name")
    (place / "\udcff").write_text("no text")
    hostile = sockets(place)
    received = ReceivedNotifications()
    store.subscribe(received.hear)

    for _ in range(3):
        await put(rival)
        await received.next()

    elsewhere.setblocking(False)
    with pytest.raises(BlockingIOError):
        elsewhere.recv(1)
    assert set(hostile) < set(sockets(place)), "nothing was taken away"
    elsewhere.close()
    stream.close()


async def test_listener_that_reads_nothing_holds_up_nobody(store: SqliteStore, place: Path) -> None:
    deaf = squat(place, "7-1-00000000")

    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(put(store) for _ in range(50)))
        for _ in range(600):
            store._subscribers.publish(Notification(ended=True))

    deaf.close()


async def test_nonsense_sent_to_a_listener_is_no_news(
    store: SqliteStore, rival: SqliteStore, place: Path
) -> None:
    received = ReceivedNotifications()
    store.subscribe(received.hear)
    [name] = sockets(place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as liar:
        for nonsense in (b"", b"\0", b"\xf0" * 100, b"\x10"):
            liar.sendto(nonsense, str(place / name))

    await put(rival)

    hints = [await received.next()]
    assert Notification(queues=frozenset({""})) in hints
    assert received.rest == 0


async def test_folder_is_read_again_only_when_it_has_changed(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, really = [], os.scandir
    monkeypatch.setattr(
        notifier.os, "scandir", lambda folder: reads.append(folder) or really(folder)
    )
    first, second = ReceivedNotifications(), ReceivedNotifications()
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
    first, second = ReceivedNotifications(), ReceivedNotifications()
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
    received, theirs = ReceivedNotifications(), ReceivedNotifications()
    async with opened(path) as store, opened(path) as rival:
        leave = store.subscribe(received.hear)
        rival.subscribe(theirs.hear)
        claim = await started(store)
        assert await settle(store, claim, SUCCEEDED)
        leave()

    assert (await received.next()).queues == {"default"}
    assert (await received.next()).topics == {Topic.ENDED}
    assert theirs.rest == 0
    assert "unavailable" in caplog.text
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_without_a_runtime_folder_the_temporary_one_will_do(
    path: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(runtime))
    received = ReceivedNotifications()

    async with opened(path) as store, opened(path) as rival:
        store.subscribe(received.hear)
        await put(rival)

        assert await received.next()
        assert socket_dir_for(path).parent == runtime / f"outlast-{os.geteuid()}"
        assert socket_dir_for(path).parent.stat().st_mode & 0o777 == 0o700


async def test_folder_taken_away_while_somebody_listens_is_no_trouble(
    store: SqliteStore, rival: SqliteStore, place: Path
) -> None:
    leave = store.subscribe(ReceivedNotifications().hear)
    shutil.rmtree(place)

    await put(rival)
    store.subscribe(ReceivedNotifications().hear, topics=[Topic.ENDED])()
    leave()
    await store.close()

    assert not is_there(place)

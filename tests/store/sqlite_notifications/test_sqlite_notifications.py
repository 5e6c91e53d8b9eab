"""Notifications between processes: which subscriber is told of what, and how often."""

import asyncio
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from outlast.core.decide import succeed
from outlast.core.event import CancelRequested, Edited, Moved
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    HOUR,
    SUCCEEDED,
    job_of,
    make_job,
    put,
    settle,
    started,
)
from store.sqlite_helpers import PATIENCE, Peer, opened, raw

from .notification_sockets import ALL, ReceivedNotifications, sockets


async def test_other_process_is_told_of_work_of_an_end_and_of_a_cancel_request(
    store: SqliteStore, path: Path, other: Peer
) -> None:
    other.ask("open", path)
    other.ask("subscribe", ALL)

    claim = await started(store)
    work = other.ask("received")
    await settle(store, claim, CancelRequested())
    cancel = other.ask("received")
    await settle(store, claim, SUCCEEDED)
    end = other.ask("received")

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

    assert other.ask("received") == ["ended"]
    assert other.ask("heard_more") == 0
    other.ask("close")


async def test_listener_here_is_told_once_and_which_queue(store: SqliteStore) -> None:
    received, again = ReceivedNotifications(), ReceivedNotifications()
    store.subscribe(received.hear)
    store.subscribe(again.hear, topics=[Topic.ENDED])

    await put(store, queue="lane")
    claim = await started(store)
    await settle(store, claim, SUCCEEDED)

    assert (await received.next()).queues == {"lane"}
    assert (await received.next()).queues == {"default"}
    assert (await received.next()).topics == {Topic.ENDED}
    assert (await again.next()).topics == {Topic.ENDED}
    assert (received.rest, again.rest) == (0, 0)


async def test_workers_are_woken_for_what_is_due_later_to_learn_when(store: SqliteStore) -> None:
    received = ReceivedNotifications()
    store.subscribe(received.hear)

    await store.add([make_job(delay=HOUR, queue="later") for _ in range(3)])
    await put(store, delay=HOUR, queue="later")
    await put(store, queue="now")

    heard = [(await received.next()).queues for _ in range(3)]
    assert heard == [{"later"}, {"later"}, {"now"}]
    assert received.rest == 0


async def test_job_made_due_now_wakes_and_one_moved_or_put_off_does_not(
    store: SqliteStore,
) -> None:
    later, waiting = await put(store, delay=HOUR), await put(store)
    received = ReceivedNotifications()
    store.subscribe(received.hear)

    for job_id, event in [
        (waiting, Moved(MoveTo(Anchor.FRONT))),
        (waiting, Edited(JobEdit(priority=3))),
        (waiting, Edited(JobEdit(delay=HOUR))),
        (later, Edited(JobEdit(delay=timedelta(0)))),
    ]:
        assert await settle(store, await job_of(store, job_id), event)

    assert (await received.next()).topics == {Topic.WORK}
    assert received.rest == 0


async def test_two_stores_of_one_process_tell_each_other(
    store: SqliteStore, rival: SqliteStore
) -> None:
    received, theirs = ReceivedNotifications(), ReceivedNotifications()
    store.subscribe(received.hear)
    rival.subscribe(theirs.hear)

    await put(rival)

    assert (await received.next()).queues == {""}
    assert (await theirs.next()).queues == {"default"}
    assert (received.rest, theirs.rest) == (0, 0)


async def test_listener_may_come_before_the_store_is_open(path: Path, rival: SqliteStore) -> None:
    received = ReceivedNotifications()
    store = SqliteStore(path)
    store.subscribe(received.hear)
    await store.open()

    await put(rival)

    assert await received.next()
    await store.close()


async def test_store_opened_again_listens_again(
    store: SqliteStore, rival: SqliteStore, place: Path
) -> None:
    received = ReceivedNotifications()
    store.subscribe(received.hear)
    await store.close()
    gone = sockets(place)
    await store.open()

    await put(rival)

    assert gone == []
    assert await received.next()


async def test_listener_that_changes_its_wishes_is_found_at_once(
    store: SqliteStore, rival: SqliteStore
) -> None:
    received = ReceivedNotifications()
    store.subscribe(received.hear, topics=[Topic.WORK])
    await put(rival)
    await received.next()
    store.subscribe(ReceivedNotifications().hear, topics=[Topic.ENDED])

    await put(rival)

    assert (await received.next()).topics == {Topic.WORK}


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
    assert sockets(place) == []


async def test_copy_of_the_file_has_listeners_of_its_own(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    await put(store)
    copy = tmp_path / "copy.db"
    await store.close()
    shutil.copy(path, copy)
    await store.open()
    received = ReceivedNotifications()
    store.subscribe(received.hear)

    async with opened(copy) as elsewhere:
        await put(elsewhere)
    await put(store)

    assert (await received.next()).queues == {"default"}
    assert received.rest == 0


async def test_link_to_the_file_leads_to_the_same_listeners(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    received = ReceivedNotifications()
    store.subscribe(received.hear)

    async with opened(link) as same:
        await put(same)

    assert (await received.next()).queues == {""}


async def test_transaction_of_a_handler_tells_the_others_too(
    store: SqliteStore, rival: SqliteStore
) -> None:
    claim = await started(store)
    received = ReceivedNotifications()
    rival.subscribe(received.hear, topics=[Topic.ENDED])

    transaction = await store.begin(within=timedelta(seconds=PATIENCE))
    assert await transaction.commit([succeed(claim.id, claim.token, None)])

    assert (await received.next()).topics == {Topic.ENDED}


@pytest.mark.parametrize("how", ["writer", "transaction"])
async def test_what_a_notification_announces_is_there_at_the_first_look(
    store: SqliteStore, path: Path, how: str
) -> None:
    """The subscriber looks by a connection of its own before the store goes on."""
    claim = await started(store)
    found: list[int] = []

    def look(_: Notification) -> None:
        with raw(path) as own:
            found.append(own.execute("SELECT count(*) FROM outlast_ends").fetchone()[0])

    store.subscribe(look, topics=[Topic.ENDED])
    change = succeed(claim.id, claim.token, None)
    if how == "writer":
        await store.apply([change])
    else:
        await (await store.begin(within=HOUR)).commit([change])

    assert found == [1]

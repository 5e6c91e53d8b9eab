"""Wake-ups through PostgreSQL: heard elsewhere, taken up again after a break, never relied on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from outlast.core.decide import succeed
from outlast.core.event import CancelRequested
from outlast.store.contract.notifications import Notification, Topic
from outlast.store.postgres.connection import connect
from outlast.store.postgres.notify import listener, notifier
from outlast.store.postgres.notify.channels import EVERYTHING, MAX_PAYLOAD_BYTES, payload
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.url import PostgresUrl
from outlast.testing.conformance.factories import put, settle, started


class Ears:
    """What somebody heard, and a way to wait for it."""

    def __init__(self) -> None:
        self.received: list[Notification] = []
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()

    def __call__(self, hint: Notification) -> None:
        self.received.append(hint)
        self._loop.call_soon_threadsafe(self._news.set)

    async def until(self, is_so: Callable[[Notification], bool]) -> Notification:
        async with asyncio.timeout(120):
            while not (found := [hint for hint in self.received if is_so(hint)]):
                self._news.clear()
                await self._news.wait()
        return found[0]


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    postgres = PostgresStore(postgres_url)
    await postgres.open()
    yield postgres
    await postgres.close()


@pytest.fixture
async def other(postgres_url: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another process's store, as far as the server can tell."""
    postgres = PostgresStore(postgres_url)
    await postgres.open()
    yield postgres
    await postgres.close()


@pytest.fixture
async def operator(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url.partition("?")[0])
    yield connection
    await connection.close()


async def listening(store: PostgresStore, *topics: Topic) -> Ears:
    """Somebody who listens, once the server knows."""
    ears = Ears()
    store.subscribe(ears, topics=topics or frozenset(Topic))
    async with asyncio.timeout(120):
        while not await _listeners(store):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
    return ears


async def _listeners(store: PostgresStore) -> int:
    """How many sessions of our database listen and are done with it."""
    connection = await asyncpg.connect(store.address.dsn)
    try:
        count: int = await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND state = 'idle' AND query LIKE 'UNLISTEN%'"
        )
        return count
    finally:
        await connection.close()


async def test_added_work_is_heard_elsewhere_with_its_queue(
    store: PostgresStore, other: PostgresStore
) -> None:
    ears = await listening(other, Topic.WORK)

    await put(store, queue="lane")

    assert (await ears.until(lambda hint: bool(hint.queues))).queues == {"lane"}


async def test_end_and_cancel_request_are_heard_elsewhere(
    store: PostgresStore, other: PostgresStore
) -> None:
    ears = await listening(other, Topic.ENDED, Topic.CANCELLED)
    claim = await started(store)

    await settle(store, claim, CancelRequested())
    await ears.until(lambda hint: hint.cancelled)
    await store.apply([succeed(claim.job_id, claim.token, None)])

    assert await ears.until(lambda hint: hint.ended)


async def test_nobody_hears_what_nobody_asked_for(
    store: PostgresStore, other: PostgresStore
) -> None:
    ears = await listening(other, Topic.CANCELLED)
    claim = await started(store)

    await settle(store, claim, CancelRequested())
    await ears.until(lambda hint: hint.cancelled)

    assert {topic for hint in ears.received for topic in hint.topics} == {Topic.CANCELLED}


async def test_who_listens_again_after_a_break_is_woken_for_everything(
    store: PostgresStore, other: PostgresStore, operator: asyncpg.Connection
) -> None:
    ears = await listening(other, Topic.WORK)

    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'UNLISTEN%' "
    await operator.execute(f"{cut} AND datname = current_database()")
    await ears.until(lambda hint: hint == EVERYTHING)
    await put(store, queue="lane")

    assert await ears.until(lambda hint: hint.queues == {"lane"})


async def test_without_notify_nobody_else_is_told(
    postgres_url: str, store: PostgresStore, operator: asyncpg.Connection
) -> None:
    received: list[str] = []
    await operator.add_listener(
        f"{store.address.schema}_work", lambda *reported: received.append(str(reported[3]))
    )
    quiet = PostgresStore(f"{postgres_url}&notify=false")
    await quiet.open()
    ears = Ears()
    quiet.subscribe(ears, topics=[Topic.WORK])

    await put(quiet, queue="quiet")
    await ears.until(lambda hint: hint.queues == {"quiet"})  # who is in the same process hears it
    await put(store, queue="loud")
    async with asyncio.timeout(120):
        while not received:  # noqa: ASYNC110 - the driver calls back on this loop
            await asyncio.sleep(0.01)

    assert received == ["loud"]
    assert await quiet.health_warnings() == [
        concern for concern in await quiet.health_warnings() if "notifications" not in concern
    ]
    await quiet.close()


async def test_who_cannot_hear_says_so_once_and_goes_on(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a pooler, where what is told never arrives."""

    async def never(*_: object) -> bool:
        return False

    monkeypatch.setattr(listener, "notify_roundtrip_works", never)
    monkeypatch.setattr("outlast.store.postgres.notify.bridge.notify_roundtrip_works", never)
    with caplog.at_level(logging.WARNING):
        ears = Ears()
        store.subscribe(ears, topics=[Topic.WORK])
        async with asyncio.timeout(120):
            while "notifications do not arrive" not in caplog.text:  # noqa: ASYNC110 - a thread aside
                await asyncio.sleep(0.01)

    assert listener.LISTEN_UNAVAILABLE in await store.health_warnings()
    assert caplog.text.count("notifications do not arrive") == 1
    assert await put(store)


def test_more_queues_than_fit_are_some_queue() -> None:
    few, many = {"a", "b"}, {f"queue-{number:0120}" for number in range(100)}

    assert payload(few) == "a b"
    assert payload(many) == ""
    assert len(payload({"x" * 128 for _ in range(50)})) <= MAX_PAYLOAD_BYTES


async def test_two_who_speak_at_once_share_one_connection(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[asyncpg.Connection] = []

    async def counted(where: PostgresUrl) -> asyncpg.Connection:
        opened.append(await connect(where))
        return opened[-1]

    monkeypatch.setattr(notifier, "connect", counted)
    speaker = notifier.PgNotifier(store.address)

    await asyncio.gather(*(speaker.send({"nobody_listens": ""}) for _ in range(3)))
    await speaker.close()

    assert [each.is_closed() for each in opened] == [True]


async def test_schema_with_the_longest_name_works_with_notifications(postgres_url: str) -> None:
    """Names of channels are as long as names of schemas at most."""
    url = f"{postgres_url.partition('?')[0]}?schema={'s' * 63}"
    store, other = PostgresStore(url), PostgresStore(url)
    await store.open()
    await other.open()
    ears = await listening(other)

    claim = await started(store)
    await store.apply([succeed(claim.job_id, claim.token, "1")])

    await ears.until(lambda hint: "default" in hint.queues)
    await ears.until(lambda hint: hint.ended and hint != EVERYTHING)
    await other.close()
    await store.close()

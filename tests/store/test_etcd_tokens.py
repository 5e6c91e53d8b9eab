"""Auth tokens of a real etcd expire at any moment: no caller, watch or lease notices."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from outlast.store.contract import Store
from outlast.store.keyvalue.engine import Key, Write
from outlast.store.keyvalue.engines.etcd.engine import EtcdEngine
from outlast.store.open import open_store
from outlast.testing.conformance.factories import put
from support.servers.etcd_alone import SecureEtcd, secure_etcd

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("etcd_tokens"), pytest.mark.timeout(300)]

PREFIX = "ours"
PRODUCERS = 8
INVALIDATIONS = 6
SOON = 120.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureEtcd]:
    folder = tmp_path_factory.mktemp("etcd")
    with secure_etcd(folder, prefix=PREFIX, password="s3cret") as started:  # noqa: S106 - a test's
        yield started


@pytest.fixture
async def store(server: SecureEtcd) -> AsyncIterator[Store]:
    opened = open_store(server.url(PREFIX))
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def engines(server: SecureEtcd) -> AsyncIterator[tuple[EtcdEngine, EtcdEngine]]:
    pair = tuple(EtcdEngine(server.cluster, prefix=PREFIX) for _ in "12")
    for engine in pair:
        await engine.open()
    yield pair
    for engine in pair:
        await engine.close()


class Producers:
    """Enqueue until they are stopped; every error ends one of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._is_stopped = False
        self.acknowledged = 0
        self._is_more = asyncio.Event()
        self._tasks = [asyncio.create_task(self._enqueue()) for _ in range(PRODUCERS)]

    async def _enqueue(self) -> None:
        while not self._is_stopped:
            await put(self._store)
            self.acknowledged += 1
            self._is_more.set()

    async def more(self) -> None:
        """Wait until each has enqueued another job, or one has failed."""
        wanted = self.acknowledged + 2 * PRODUCERS
        while self.acknowledged < wanted and not any(task.done() for task in self._tasks):
            self._is_more.clear()
            await asyncio.wait(
                [asyncio.ensure_future(self._is_more.wait()), *self._tasks],
                return_when=asyncio.FIRST_COMPLETED,
            )

    async def stop(self) -> None:
        self._is_stopped = True
        await asyncio.gather(*self._tasks)


async def _invalidate(store: Store, times: int, act: Callable[[], None]) -> None:
    producers = Producers(store)
    async with asyncio.timeout(SOON):
        for _ in range(times):
            await producers.more()
            await asyncio.to_thread(act)
        await producers.more()
        await producers.stop()


async def test_no_enqueue_fails_while_tokens_expire(server: SecureEtcd, store: Store) -> None:
    await _invalidate(store, INVALIDATIONS, lambda: server.change_password(server.password))


async def test_no_enqueue_fails_after_a_member_forgot_all_tokens(
    server: SecureEtcd, store: Store
) -> None:
    await _invalidate(store, 1, server.restart)


async def test_watch_of_an_idle_client_recovers_after_tokens_were_forgotten(
    server: SecureEtcd, engines: tuple[EtcdEngine, EtcdEngine]
) -> None:
    watching, writing = engines
    heard = asyncio.Event()
    watching.watch(["ready#"], lambda _: heard.set())

    async def hear() -> None:
        heard.clear()
        while not heard.is_set():
            await writing.transact({}, [Write(Key("ready#a", "1"), {"n": 1})])
            await asyncio.sleep(0.1)

    async with asyncio.timeout(SOON):
        await hear()
        await asyncio.to_thread(server.restart)
        await hear()


async def test_lease_is_renewed_with_an_expired_token(
    server: SecureEtcd, engines: tuple[EtcdEngine, EtcdEngine]
) -> None:
    engine, _ = engines
    renew = await engine.leases.put(Write(Key("liveness", "me"), {}), span=SOON)

    server.change_password(server.password)

    assert await renew()
    assert await engine.leases.put(Write(Key("liveness", "me"), {}), span=SOON)

"""DynamoDB and etcd fail under a real worker: a line says so, it goes on, and nothing is lost."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from outlast import Handle, Outlast, State
from outlast.errors import StoreUnavailable
from outlast.store.keyvalue import pacing
from outlast.testing.servers import dynamodb as local
from outlast.testing.servers.dynamodb import dynamodb_local
from outlast.testing.servers.etcd import EtcdCluster, etcd_cluster
from outlast.verify import verify
from support.servers.dynamodb_proxy import dynamodb_proxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUICK = {"poll": "200ms", "tick": "500ms", "renew": "500ms", "lease": "3s"}
PATIENCE = 120.0
"""Seconds after which a write counts as stuck."""


class Workload:
    """An app with a worker, and what its jobs did."""

    def __init__(self, url: str) -> None:
        self.app = Outlast(url, **QUICK)  # type: ignore[arg-type]  # spans
        self.ran: list[int] = []
        self.handles: list[Handle[None]] = []
        self.work = self.app.job(name="work")(self._work)

    async def _work(self, n: int) -> None:
        self.ran.append(n)
        await asyncio.sleep(0.2)  # so that some are under way when it happens

    async def enqueue(self, count: int = 1) -> None:
        first = len(self.handles)
        jobs = [self.work.bind(n) for n in range(first, first + count)]
        self.handles += await self.app.enqueue_many(jobs)

    async def all_done(self) -> None:
        for handle in self.handles:
            await handle.wait("120s")
        jobs = [await handle.read() for handle in self.handles]
        assert {job.state for job in jobs} == {State.SUCCEEDED}
        assert set(self.ran) == set(range(len(self.handles))), "one was lost"
        assert (await verify(self.app.store)).is_sound


@asynccontextmanager
async def at_work(url: str) -> AsyncIterator[Workload]:
    workers = Workload(url)
    async with workers.app, workers.app.worker():
        await workers.enqueue(10)
        yield workers
        await workers.enqueue(3)
        await workers.all_done()


class Ear(logging.Handler):
    """Hears every line of ours from a warning on, whichever thread says it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []
        self._loop = asyncio.get_running_loop()
        self._more = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._loop.call_soon_threadsafe(self._more.set)

    async def hear(self, *words: str) -> None:
        """Until a line has all of those words."""
        while not any(all(word in line for word in words) for line in self.lines):
            self._more.clear()
            await self._more.wait()

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def told_in_few_lines(self) -> None:
        bad = [each for each in self.records if each.exc_info or "\n" in each.getMessage()]
        assert bad == [], "a page of traceback is no clear line"
        takes = [line for line in self.lines if "cannot claim jobs" in line]
        assert 1 <= len(takes) <= 4, takes


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    ear, log = Ear(), logging.getLogger("outlast")
    log.addHandler(ear)
    yield ear
    log.removeHandler(ear)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own tries come one after the other."""
    monkeypatch.setattr(pacing, "MAX_PAUSE_S", 0.02)


@pytest.mark.usefixtures("hasty")
async def test_dynamodb_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ear: Ear
) -> None:
    for name, value in local.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with dynamodb_local(tmp_path) as server:
        async with at_work(local.url(server.endpoint, "killed")):
            await asyncio.to_thread(server.kill)
            await ear.hear("cannot claim jobs", "table killed cannot be reached")

            await asyncio.to_thread(server.start)

    ear.told_in_few_lines()


@pytest.mark.usefixtures("hasty")
async def test_dynamodb_is_asked_too_much_for_a_while(dynamodb: str, ear: Ear) -> None:
    code = "ProvisionedThroughputExceededException"
    with dynamodb_proxy(dynamodb) as proxy:
        async with at_work(local.url(proxy.endpoint, f"proxy-{secrets.token_hex(4)}")):
            proxy.refuse(code, "The level of configured provisioned throughput was exceeded")
            await ear.hear("cannot claim jobs", "throttles table")

            proxy.open()

        assert proxy.refused

    ear.told_in_few_lines()


@pytest.mark.usefixtures("hasty")
async def test_credentials_expire_and_are_renewed_in_their_file(
    dynamodb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ear: Ear
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in local.CREDENTIALS:
        monkeypatch.delenv(name)
    words = "[default]\naws_access_key_id = {}\naws_secret_access_key = secret\n"
    file.write_text(words.format("first"))
    with dynamodb_proxy(dynamodb) as proxy:
        proxy.key = "first"
        async with at_work(local.url(proxy.endpoint, f"proxy-{secrets.token_hex(4)}")):
            proxy.key = "second"
            await ear.hear("cannot claim jobs", "renew the credentials")

            (tmp_path / "new").write_text(words.format("second"))
            (tmp_path / "new").replace(file)  # atomically, as a credential helper does

    ear.told_in_few_lines()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with etcd_cluster(tmp_path) as own:
        yield own


async def _accepted(workers: Workload) -> None:
    """Enqueue again while no leader is elected, which may take longer than `busy`."""
    while True:
        with suppress(StoreUnavailable):
            return await workers.enqueue()


async def test_etcd_loses_its_leader_and_then_all_members_for_a_while(
    cluster: EtcdCluster, ear: Ear
) -> None:
    async with at_work(f"{cluster.url('outage')}?busy=3") as workers:
        leader = await asyncio.to_thread(lambda: cluster.leader)
        await asyncio.to_thread(leader.kill)
        async with asyncio.timeout(PATIENCE):
            await _accepted(workers)
        await asyncio.to_thread(leader.start)
        await asyncio.to_thread(leader.program.wait, leader.answers)

        for node in cluster.nodes:
            await asyncio.to_thread(node.kill)
        await ear.hear("cannot claim jobs", "no etcd endpoint of", "answered for 3 s")
        for node in cluster.nodes:
            await asyncio.to_thread(node.start)
        for node in cluster.nodes:
            await asyncio.to_thread(node.program.wait, node.answers)

    ear.told_in_few_lines()

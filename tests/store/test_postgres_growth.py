"""What a job costs on PostgreSQL does not grow with what waits and what is done.

Counted in blocks that the statements touch, which are the same on a busy machine. On a server of
its own, where nothing but the test opens a snapshot: while a snapshot is open, dead rows stay where
they are, and a renewal touches twice as many blocks. Autovacuum opens one when it analyses the
catalog.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from outlast.core.decide import decide
from outlast.core.event import Moved
from outlast.core.ids import JobId
from outlast.core.position import Anchor, MoveTo
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.store.contract.jobs import Filter
from outlast.store.postgres import pooled_connection
from outlast.store.postgres.connection import connect
from outlast.store.postgres.migrate import migrate
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.unit_of_work import AsyncpgRunner, Row
from outlast.store.postgres.url import parse_url
from outlast.testing.conformance.factories import LEASE, SUCCEEDED, make_holder, make_job, new_id
from outlast.testing.servers.postgres import PostgresServer, postgres_server

from .pg_worlds import GROUP, JOB, crowd

pytestmark = pytest.mark.xdist_group("postgres_growth")
"""One after the other, so that the worlds are made once."""

FEW, CROWD, RUNNING, BATCH = 2_000, 20_000, 200, 10
TYPES = ("type-0", "type-1", "type-2")
PLAIN, PLACED = "queue-2", "queue-0"
DEEPER, SOME = 1.5, 30
"""An index of many thousands is a block deeper than one of a few. Of hundreds, tables are read as
they lie, and it is left to chance whether that is cheaper."""

UNATTENDED = {"autovacuum": "off", "default_statistics_target": "200"}
"""Nothing opens a snapshot by itself, and the planner has seen every row, not a sample."""

Act = Callable[[PostgresStore], Awaitable[object]]


class CountingLane(AsyncpgRunner):
    """Has each statement explained, and undone, before it is run."""

    blocks: ClassVar[Counter[str]] = Counter()

    async def fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        await self._count(name, values)
        return await super().fetch(name, values)

    async def change(self, name: str, values: dict[str, Any]) -> int:
        await self._count(name, values)
        return await super().change(name, values)

    async def _count(self, name: str, values: dict[str, Any]) -> None:
        if not name.startswith(("unit_of_work.", "savepoint.")):
            # A session reads the catalog when it first runs a statement.
            reported = [await self._explained(name, values) for _ in range(3)]
            self.blocks[name] += min(reported)

    async def _explained(self, name: str, values: dict[str, Any]) -> int:
        statement = self._statements[name]
        is_inside = self.connection.is_in_transaction()
        await self.connection.execute("SAVEPOINT counted" if is_inside else "BEGIN")
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.text}"
        try:
            reported = json.loads(await self.connection.fetchval(explain, *statement.bind(values)))
        finally:
            await self.connection.execute("ROLLBACK TO counted" if is_inside else "ROLLBACK")
        plan = reported[0]["Plan"]
        blocks: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return blocks


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(settings=UNATTENDED) as server:
        yield server


@pytest.fixture(scope="module")
def worlds(server: PostgresServer) -> tuple[str, str]:
    """The databases of a store of few, and of one of many."""
    urls = server.new_database(), server.new_database()
    for url, number in zip(urls, (FEW, CROWD), strict=True):
        asyncio.run(_made(url, number))
    few, many = (url.rpartition("/")[2] for url in urls)
    return few, many


@contextmanager
def _copied(server: PostgresServer, world: str) -> Iterator[str]:
    """A copy to the letter, so that nothing is left of what acted before."""
    name = f"{world}_copy"
    server.execute(f"CREATE DATABASE {name} TEMPLATE {world} STRATEGY file_copy")
    yield server.url(name)
    server.drop_database(name)


async def _made(url: str, number: int) -> None:
    where = parse_url(url)
    connection = await connect(where)
    await migrate(AsyncpgRunner(connection, where.schema), where)
    await crowd(connection, where.schema, done=number, waiting=number, running=RUNNING)
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


async def _cost(url: str, act: Act, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    store = PostgresStore(url)
    await store.open()
    with monkeypatch.context() as patched:
        patched.setattr(pooled_connection, "AsyncpgRunner", CountingLane)
        CountingLane.blocks.clear()
        await act(store)
        await store.close()
    return CountingLane.blocks.copy()


async def claim(store: PostgresStore, queue: str = PLAIN) -> list[Claim]:
    claims = await store.claim(
        make_holder(), queue=queue, types=TYPES, limit=BATCH, prefetch=BATCH, lease=LEASE
    )
    assert len(claims) >= BATCH
    return claims


async def claim_and_finish(store: PostgresStore) -> None:
    claims = await claim(store)
    await store.renew([each.lease for each in claims], span=LEASE)
    changes = [decide(each, SUCCEEDED, new_id=new_id) for each in claims]
    assert await store.apply(changes) == [True] * len(changes)


async def add(store: PostgresStore) -> None:
    await store.add([make_job(queue=PLAIN, type="type-1") for _ in range(BATCH)])
    await store.add([make_job(queue=PLAIN, active_key=new_id()) for _ in range(BATCH)])


async def add_placed(store: PostgresStore) -> None:
    await store.add([make_job(queue=PLACED, type="type-1") for _ in range(BATCH)])


async def move(store: PostgresStore) -> None:
    *_, target, moved = await store.peek(PLACED, limit=BATCH)
    for where in (Anchor.FRONT, Anchor.BACK):
        [job] = await store.get([moved.id])
        assert job is not None
        assert await store.apply([decide(job, Moved(MoveTo(where)), new_id=new_id)]) == [True]
    [job] = await store.get([moved.id])
    assert job is not None
    change = decide(job, Moved(MoveTo(Anchor.BEFORE, target.id)), new_id=new_id)
    assert await store.apply([change]) == [True]


async def read(store: PostgresStore) -> None:
    job = JobId(JOB)
    await store.get([job])
    await store.runs(job)
    await store.events(job)
    await store.peek(PLAIN, limit=BATCH)
    await store.stream(limit=BATCH)
    await store.find(Filter(), limit=BATCH)
    await store.find(Filter(states=frozenset({State.FAILED})), limit=BATCH)
    await store.find(Filter(key="key-7"), limit=BATCH)
    await store.find(Filter(prefix=JOB[:-1]), limit=BATCH)


async def upkeep(store: PostgresStore) -> None:
    await store.expired_leases(limit=BATCH)
    await store.missed_start_deadline(limit=BATCH)
    await store.promote_due(limit=BATCH)
    await store.running_under_other_boots(besides="nobody", limit=BATCH)
    await store.reservations(active_only=True, limit=BATCH)
    await store.expired_reservations(limit=BATCH)


async def groups(store: PostgresStore) -> None:
    await store.groups_finished([GROUP])
    await store.closing_groups(limit=BATCH)
    await store.mark_groups_closed(limit=BATCH)
    await store.expire_groups(older_than=timedelta(days=365_000), limit=BATCH)


async def prune(store: PostgresStore) -> None:
    await store.prune(older_than=timedelta(days=365), limit=BATCH)


@pytest.mark.parametrize(
    "act",
    [claim_and_finish, add, add_placed, move, read, upkeep, groups, prune],
    ids=lambda act: act.__name__,
)
async def test_it_costs_the_same_in_any_crowd(
    server: PostgresServer, worlds: tuple[str, str], act: Act, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[Counter[str]] = []
    for world in worlds:
        with _copied(server, world) as url:
            costs.append(await _cost(url, act, monkeypatch))
    alone, crowded = costs

    assert crowded.total() > 0
    both = {name: (alone[name], cost) for name, cost in crowded.items()}
    assert not {name: each for name, each in both.items() if each[1] > each[0] * DEEPER + SOME}

"""Four processes on one PostgreSQL: limits, order and names hold, and nobody waits in a circle."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import asyncpg
import pytest

from outlast.core.delivery import Delivery
from outlast.core.state import State
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import MANY, make_job
from outlast.testing.conformance.sizes import SIZES

from .pg_waiting import until_somebody_waits
from .sqlite_helpers import Peer

pytestmark = pytest.mark.xdist_group("postgres_races")
"""One after the other, so that the other processes are started once."""

PEERS = 4
ROUNDS = SIZES.race_rounds


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Peer]]:
    """Started once for all tests, which takes longer than any of them."""
    with ExitStack() as running:
        yield [running.enter_context(Peer("pg_peer.py")) for _ in range(PEERS)]


@pytest.fixture
def peers(
    processes: list[Peer],
    postgres_url: str,
    store: PostgresStore,
) -> Iterator[list[Peer]]:
    """The other processes, each with the same schema open."""
    _all(processes, "open", postgres_url)
    yield processes
    _all(processes, "close")


async def test_limit_is_reached_and_never_exceeded_by_four_processes(
    store: PostgresStore, peers: list[Peer]
) -> None:
    await store.set_queue(Queue(name="default", concurrency=7))
    await store.add([make_job() for _ in range(7 * ROUNDS)])

    for _ in range(ROUNDS):
        taken = [job for jobs in _all(peers, "take", 3) for job in jobs]

        assert len(taken) == len(set(taken)) == 7
        assert all(all(answers) for answers in _all(peers, "finish"))


async def test_limit_waits_for_claims_that_did_not_know_it(
    store: PostgresStore, postgres_url: str
) -> None:
    """Else one that counts at once would not see what they are taking."""
    await store.add([make_job() for _ in range(2)])
    other = await asyncpg.connect(postgres_url.partition("?")[0])
    under_way = other.transaction()
    await under_way.start()
    table = f'"{store.address.schema}".open_runs'
    await other.execute(f"DELETE FROM {table}")  # noqa: S608 - as a claim does: it writes there

    limit = asyncio.create_task(store.set_queue(Queue(name="default", concurrency=1)))
    await until_somebody_waits(store.address.dsn)

    assert not limit.done()
    await under_way.commit()
    await limit
    await other.close()


async def test_order_at_concurrency_one_is_strict_across_four_processes(
    store: PostgresStore, peers: list[Peer], tmp_path: Path
) -> None:
    await store.set_queue(Queue(name="default", concurrency=1))
    jobs = [make_job(priority=-(number % 3)) for number in range(20 * ROUNDS)]
    await store.add(jobs)
    log = tmp_path / "order"
    log.touch()

    _all(peers, "drain_in_order", str(log), len(jobs))

    expected = [job.id for job in sorted(jobs, key=lambda job: -job.priority)]
    assert log.read_text(encoding="utf-8").split() == expected


async def test_one_name_runs_once_whoever_claims(store: PostgresStore, peers: list[Peer]) -> None:
    names = [f"name-{number}" for number in range(10)]
    await store.add(
        [make_job(name=name, delivery=Delivery.ONCE) for name in names for _ in range(ROUNDS)]
    )

    for _ in range(ROUNDS):
        taken = [job for jobs in _all(peers, "take", 4) for job in jobs]

        running = await store.get(taken)
        assert sorted(job.name for job in running if job) == names
        _all(peers, "finish")


async def test_four_processes_that_do_everything_never_wait_in_a_circle(
    store: PostgresStore, peers: list[Peer], postgres_url: str
) -> None:
    await store.add([make_job(max_attempts=3) for _ in range(200 * ROUNDS)])
    before = await _deadlocks(postgres_url)

    _all(peers, "mix", 10 * ROUNDS)

    assert await _deadlocks(postgres_url) == before
    found = await store.find(Filter(states=frozenset({State.RUNNING})), limit=MANY)
    assert found == []


def _all(peers: list[Peer], order: str, *given: object) -> list[list[str]]:
    """All at once."""
    for peer in peers:
        peer.tell(order, *given)
    return [peer.answer() for peer in peers]


async def _deadlocks(url: str) -> int:
    connection = await asyncpg.connect(url.partition("?")[0])
    try:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        asked = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        return int(await connection.fetchval(asked))
    finally:
        await connection.close()

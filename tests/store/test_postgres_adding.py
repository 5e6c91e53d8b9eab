"""Adding on PostgreSQL when the server goes away, answers get lost, and others add the same."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import psycopg
import pytest

from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Slot
from outlast.core.ordering import Ordering
from outlast.errors import StoreUnavailable
from outlast.store.contract.jobs import Added
from outlast.store.contract.queues import Queue
from outlast.store.postgres import retry
from outlast.store.postgres.store import PostgresStore
from outlast.testing.clock import START
from outlast.testing.conformance.factories import job_of, make_job
from outlast.testing.servers.postgres import PostgresServer
from support.corruption.postgres import empty


@pytest.fixture(scope="module")
def own_url(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url
    postgres.drop_database(url.rpartition("/")[2])


class Cutter:
    """A probe that cuts the connection of whoever adds, before or after a statement, some times."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.place: tuple[str, bool] | None = None
        self.times = 0

    def __call__(self, name: str, is_done: bool) -> None:
        if self.times and self.place == (name, is_done):
            self.times -= 1
            if is_done:
                raise ConnectionResetError("the answer was lost")
            with psycopg.connect(self._url, autocommit=True) as killer:
                killer.execute(
                    "SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity "
                    "WHERE application_name = 'outlast' AND datname = current_database()"
                )


@pytest.fixture
def cutter(own_url: str) -> Cutter:
    return Cutter(own_url)


@pytest.fixture
async def store(own_url: str, cutter: Cutter) -> AsyncIterator[PostgresStore]:
    opened = PostgresStore(f"{own_url}?wait=120", probe=cutter)
    await opened.open()
    await empty(opened.address)
    yield opened
    await opened.close()


KINDS = {
    "add.uniform": [{}, {}],
    "add.mixed": [
        {},
        {"priority": 3, "key": DedupeKey(key="k")},
        {"slot": Slot(series="s", at=START)},
    ],
}


@pytest.mark.parametrize("answered", [False, True], ids=["cut before", "answer lost"])
@pytest.mark.parametrize("statement", KINDS)
async def test_add_whose_connection_breaks_is_asked_again_and_stored_once(
    store: PostgresStore, cutter: Cutter, statement: str, answered: bool
) -> None:
    jobs = [make_job(**over) for over in KINDS[statement]]
    await store.add([make_job(), make_job(key=DedupeKey(key="other"))])
    cutter.place, cutter.times = (statement, answered), 3

    added = await store.add(jobs)

    assert cutter.times < 3, "it was cut"
    assert [answer.id for answer in added] == [job.id for job in jobs]
    assert [answer.refused for answer in added] == [None] * len(jobs)
    assert [(await job_of(store, job.id)).id for job in jobs] == [job.id for job in jobs]


async def test_server_that_stays_away_is_named_in_the_end(
    own_url: str, store: PostgresStore, cutter: Cutter
) -> None:
    impatient = PostgresStore(f"{own_url}?wait=0.3", probe=cutter)
    await impatient.open()
    cutter.place, cutter.times = ("add.uniform", False), 10_000

    with pytest.raises(StoreUnavailable, match="does not answer"):
        await impatient.add([make_job()])

    cutter.times = 0
    [added] = await impatient.add([make_job()])
    assert added.created
    await impatient.close()


async def test_everybody_in_a_group_is_told_at_once_that_the_server_is_away(
    own_url: str, store: PostgresStore, cutter: Cutter
) -> None:
    impatient = PostgresStore(f"{own_url}?wait=0", probe=cutter)
    await impatient.open()
    cutter.place, cutter.times = ("add.uniform", False), 10_000

    reported = await asyncio.gather(
        *(impatient.add([make_job()]) for _ in range(30)), return_exceptions=True
    )

    tries, cutter.times = 10_000 - cutter.times, 0
    assert {type(each) for each in reported} == {StoreUnavailable}
    assert tries < len(reported), "one try is for many"
    await impatient.close()


async def test_pauses_grow_and_are_drawn() -> None:
    draws = iter([0.5] * 3)
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise ConnectionResetError
        return "answered"

    store = PostgresStore("postgresql://localhost/nowhere?wait=60")
    assert (
        await retry.retry_while_unavailable(ask, store.address, lambda: next(draws)) == "answered"
    )
    assert (asked, list(draws)) == (4, [])


async def test_two_processes_that_add_the_same_keys_store_each_once(own_url: str) -> None:
    stores = [PostgresStore(own_url) for _ in range(4)]
    for each in stores:
        await each.open()
    await empty(stores[0].address)
    keys = [DedupeKey(key=f"k{number}") for number in range(40)]

    async def add_all(store: PostgresStore, turn: int) -> list[Added]:
        wanted = [make_job(key=key) for key in keys[turn * 10 :] + keys[: turn * 10]]
        return await store.add(wanted)

    answers = await asyncio.gather(*(add_all(each, turn) for turn, each in enumerate(stores)))

    assert sum(added.created for each in answers for added in each) == len(keys)
    assert {added.id for each in answers for added in each} == {
        added.id for each in answers for added in each if added.created
    }
    for each in stores:
        await each.close()


async def test_places_of_an_ordered_queue_are_given_once_by_many(own_url: str) -> None:
    stores = [PostgresStore(own_url) for _ in range(3)]
    for each in stores:
        await each.open()
    await empty(stores[0].address)
    await stores[0].set_queue(Queue(name="lane", ordering=Ordering.POSITION))

    async def add_some(store: PostgresStore) -> list[JobId]:
        jobs = [make_job(queue="lane") for _ in range(20)]
        for start in range(0, 20, 5):
            await store.add(jobs[start : start + 5])
        return [job.id for job in jobs]

    added = await asyncio.gather(*(add_some(each) for each in stores))

    positions = [
        [(await job_of(stores[0], job_id)).position for job_id in of_one] for of_one in added
    ]
    assert all(of_one == sorted(of_one) for of_one in positions)
    assert sorted(p for of_one in positions for p in of_one) == list(range(100, 6100, 100))
    for each in stores:
        await each.close()


@pytest.mark.parametrize("bad", ["no json", "1\x1e2", "\x1e", ""])
async def test_one_bad_job_among_many_is_found_in_few_steps(own_url: str, bad: str) -> None:
    seen: list[str] = []
    store = PostgresStore(own_url, probe=lambda name, is_done: seen.append(name))
    await store.open()
    await empty(store.address)
    jobs = [make_job(params=bad if number == 321 else "{}") for number in range(500)]
    seen.clear()

    added = await store.add(jobs)

    assert [number for number, each in enumerate(added) if not each.created] == [321]
    assert added[321].refused == "its params are not JSON"
    assert len(seen) < 100
    connection = await asyncpg.connect(store.address.dsn)
    numbers = await connection.fetch("SELECT id::text FROM outlast.jobs ORDER BY seq")
    await connection.close()
    assert [row[0] for row in numbers] == [job.id for job in jobs if job is not jobs[321]]
    await store.close()

"""A deadlock or a serialisation failure begins an operation anew; the caller does not see it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from outlast.core.decide import succeed
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import OperatorError
from outlast.store.contract.jobs import Filter
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import LEASE, MANY, put, started, take_many

from .pg_waiting import until_somebody_waits

Verb = Callable[[PostgresStore, list[Claim]], Awaitable[list[bool]]]


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    postgres_store = PostgresStore(postgres_url)
    await postgres_store.open()
    yield postgres_store
    await postgres_store.close()


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url.partition("?")[0])
    await connection.execute("SET deadlock_timeout = '60s'")  # the server ends the store's session
    yield connection
    await connection.close()


async def _finish(store: PostgresStore, claims: list[Claim]) -> list[bool]:
    return await store.apply([succeed(claim.job_id, claim.token, "1") for claim in claims])


async def _renew(store: PostgresStore, claims: list[Claim]) -> list[bool]:
    renewed = await store.renew([claim.lease for claim in claims], span=LEASE)
    return [each.held for each in renewed]


async def _record_progress(store: PostgresStore, claims: list[Claim]) -> list[bool]:
    return await store.record_progress([(claim.lease, "{}") for claim in claims])


@pytest.mark.parametrize(
    ("verb", "keys"),
    [
        pytest.param(_finish, ("one", "two"), id="finish"),
        pytest.param(_finish, (None, None), id="plain_finish"),
        pytest.param(_renew, (None, None), id="renew"),
        pytest.param(_record_progress, (None, None), id="record_progress"),
    ],
)
async def test_deadlock_is_begun_anew(
    store: PostgresStore, other: asyncpg.Connection, verb: Verb, keys: tuple[str | None, ...]
) -> None:
    claims = [await started(store, active_key=key) for key in keys]
    first, second = sorted(claims, key=lambda claim: claim.id)
    table = f'"{store.address.schema}".open_runs'
    lock = f"SELECT 1 FROM {table} WHERE job = $1 FOR UPDATE"  # noqa: S608 - a test's own schema
    locking = other.transaction()
    await locking.start()
    await other.execute(lock, second.id)

    asked = asyncio.create_task(verb(store, [first, second]))
    await until_somebody_waits(store.address.dsn)
    await other.execute(lock, first.id)  # the store has locked the first and waits for the second
    await locking.commit()

    assert await asked == [True, True]


async def test_serialisation_failures_are_begun_anew(store: PostgresStore) -> None:
    """Behind a pooler single statements may be stricter than READ COMMITTED; no job is lost."""
    jobs = [await put(store) for _ in range(10)]
    url = f"{store.address.dsn}?schema={store.address.schema}&pooler=true&notify=false"
    strict = f"{url}&default_transaction_isolation=serializable"
    workers = [PostgresStore(strict), PostgresStore(strict)]
    for worker in workers:
        await worker.open()

    ended = await asyncio.gather(*(_work_off(worker) for worker in workers))
    for worker in workers:
        await worker.close()

    assert sorted(ended[0] + ended[1]) == sorted(jobs)
    found = await store.find(Filter(), limit=MANY)
    assert {job.state for job in found} == {State.SUCCEEDED}


async def _work_off(store: PostgresStore) -> list[str]:
    """Claim and finish until every job has ended; repeat what the store reports as busy."""
    done: list[str] = []
    while any(job.state is not State.SUCCEEDED for job in await store.find(Filter(), limit=MANY)):
        try:
            claims = await take_many(store, limit=1)
        except OperatorError:
            continue
        for claim in claims:
            while not await _is_finished(store, claim):
                pass
            done.append(claim.id)
    return done


async def _is_finished(store: PostgresStore, claim: Claim) -> bool:
    try:
        return (await _finish(store, [claim]))[0]
    except OperatorError:
        return False

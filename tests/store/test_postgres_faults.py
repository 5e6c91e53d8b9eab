"""When the server or the network fails: nothing acknowledged is lost, and nothing counts twice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import asyncpg
import pytest

from outlast.clock import SystemClock
from outlast.core.decide import succeed
from outlast.core.run import Claim
from outlast.core.state import State
from outlast.errors import StoreReadOnly, StoreUnavailable
from outlast.store.contract.jobs import Filter
from outlast.store.postgres.operations.scan_floor import TIMELESS
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import (
    LEASE,
    MANY,
    job_of,
    make_holder,
    make_job,
    make_worker,
    put,
    started,
    take,
    take_many,
)
from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import FaultProxy, fault_proxy

HOUR = timedelta(hours=1)


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    url = postgres.new_database()
    yield url.rpartition("/")[2]
    postgres.drop_database(url.rpartition("/")[2])


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[FaultProxy]:
    with fault_proxy(postgres.port) as between:
        yield between


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(
    postgres: PostgresServer, database: str, proxy: FaultProxy
) -> AsyncIterator[PostgresStore]:
    """Behind the proxy."""
    async with opened(postgres.url(database, port=proxy.port)) as postgres_store:
        yield postgres_store


@pytest.fixture
async def operator(postgres: PostgresServer, database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres.url(database))
    yield connection
    await connection.close()


async def finish(store: PostgresStore, *claims: Claim) -> list[bool]:
    return await store.apply([succeed(claim.job_id, claim.token, "1") for claim in claims])


async def test_add_whose_answer_was_lost_is_stored_once(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    await put(store)  # so that the connection stands
    cut = proxy.lose_reply(".jobs (")

    job = make_job()
    [added] = await store.add([job])

    assert cut.is_set()
    assert added.id == job.id
    assert added.refused is None
    assert [each.id for each in await store.find(Filter(), limit=MANY)].count(job.id) == 1


async def test_add_that_never_arrived_is_stored_once(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    await put(store)
    cut = proxy.lose_request(".jobs (")

    job = make_job()
    await store.add([job])

    assert cut.is_set()
    assert [each.id for each in await store.find(Filter(), limit=MANY)].count(job.id) == 1


@pytest.mark.parametrize("key", [None, "key"])
async def test_finish_whose_answer_was_lost_counts_once(
    store: PostgresStore, proxy: FaultProxy, key: str | None
) -> None:
    """The short way, and with an active key the long one."""
    await finish(store, await started(store, active_key=key))
    claim = await started(store, active_key=key)
    cut = proxy.lose_reply("COMMIT" if key else ".ends (")

    try:
        await finish(store, claim)
    except StoreUnavailable:
        await finish(store, claim)  # as whoever finishes does

    assert cut.is_set()
    assert (await job_of(store, claim.id)).state is State.SUCCEEDED
    [run] = await store.runs(claim.id)
    assert run.result == "1"
    assert await store.expired_leases(limit=MANY) == []


async def test_claim_whose_answer_was_lost_is_answered_all_the_same(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    """Asked again it finds the runs that it had opened, and opens no others."""
    await take_many(store)
    job_id = await put(store)
    cut = proxy.lose_reply(".open_runs (")

    [claim] = await take_many(store)

    assert cut.is_set()
    assert (claim.id, claim.token) == (job_id, 1)
    assert [run.run_id for run in await store.runs(job_id)] == [claim.run_id]
    assert await finish(store, claim) == [True]


FAULT = """
CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'another was in the way' USING ERRCODE = 'deadlock_detected'; END $$;
CREATE TRIGGER fault BEFORE INSERT ON outlast.open_runs FOR EACH ROW WHEN (NEW.priority < 0)
EXECUTE FUNCTION fault();
"""


async def test_jobs_taken_before_a_claim_fails_beyond_its_limit_are_answered(
    store: PostgresStore, operator: asyncpg.Connection
) -> None:
    first = await put(store)
    second = await put(store, priority=-1)
    await operator.execute(FAULT)

    claims = await _take_one_and_more(store)

    assert [claim.id for claim in claims] == [first]
    assert (await job_of(store, second)).state is State.QUEUED
    assert await finish(store, *claims) == [True]


async def test_jobs_taken_by_both_halves_of_a_claim_are_answered_though_the_second_is_cut(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    jobs = [await put(store), await put(store)]
    cut = proxy.lose_reply("ranges AS MATERIALIZED")

    claims = await _take_one_and_more(store)

    assert cut.is_set()
    assert [claim.id for claim in claims] == jobs
    assert len({claim.run_id for claim in claims}) == 2
    assert await finish(store, *claims) == [True, True]


async def _take_one_and_more(store: PostgresStore) -> list[Claim]:
    types = [make_job().type]
    store._pool.floors.pace = TIMELESS  # a slow first half would not be asked for a second one
    return await store.claim(
        make_holder(), queue="default", types=types, limit=1, prefetch=5, lease=LEASE
    )


@pytest.mark.xdist_group("roles")  # a role is of the whole server
async def test_server_without_room_for_connections_is_waited_for(
    postgres: PostgresServer, database: str, operator: asyncpg.Connection
) -> None:
    await operator.execute("CREATE ROLE crowded LOGIN SUPERUSER PASSWORD 'x'")
    url = postgres.url(database).replace(f"postgres:{postgres.password}", "crowded:x")
    try:
        async with opened(url) as store:
            await put(store)
            await operator.execute("ALTER ROLE crowded NOSUPERUSER CONNECTION LIMIT 0")
            await operator.execute(
                "GRANT ALL ON SCHEMA outlast TO crowded; "
                "GRANT ALL ON ALL TABLES IN SCHEMA outlast TO crowded; "
                "GRANT ALL ON ALL SEQUENCES IN SCHEMA outlast TO crowded"
            )
            await _drop_connections(operator)
            adding = asyncio.create_task(put(store))
            done, _ = await asyncio.wait([adding], timeout=0.3)
            assert not done, "it waits"
            await operator.execute("ALTER ROLE crowded CONNECTION LIMIT -1")

            assert (await job_of(store, await adding)).state is State.QUEUED
    finally:
        await _drop_connections(operator)
        await operator.execute("DROP OWNED BY crowded CASCADE; DROP ROLE crowded")


async def _drop_connections(operator: asyncpg.Connection) -> None:
    await operator.execute(
        "SELECT pg_terminate_backend(pid, 120000) FROM pg_stat_activity WHERE usename = 'crowded'"
    )


async def test_read_only_server_is_said_and_still_read(
    postgres: PostgresServer, database: str, operator: asyncpg.Connection
) -> None:
    async with opened(postgres.url(database)) as store:
        job_id = await put(store)
    await operator.execute(f"ALTER DATABASE {database} SET default_transaction_read_only = on")

    async with opened(postgres.url(database)) as store:
        with pytest.raises(StoreReadOnly, match="accepts no writes"):
            await store.add([make_job()])
        with pytest.raises(StoreReadOnly):
            await store.pause("default", reason=None, span=None)

        assert (await job_of(store, job_id)).state is State.QUEUED


async def test_slow_server_slows_down_and_breaks_nothing(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    proxy.delay(0.05)

    claim = await started(store)
    finished = await finish(store, claim)
    hold = await store.acquire_lock("host-1")

    assert finished == [True]
    assert hold is not None


async def test_server_that_hangs_is_given_up_when_the_time_is_over(
    postgres: PostgresServer, database: str, proxy: FaultProxy
) -> None:
    async with opened(f"{postgres.url(database, port=proxy.port)}?wait=1") as store:
        await put(store)
        proxy.refuse()
        try:
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await store.add([make_job()])
        finally:
            proxy.accept()

        assert await put(store)


@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["ahead", "behind"])
async def test_workers_whose_clocks_are_wrong_steal_no_lease(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, skew: timedelta
) -> None:
    """The database's clock judges: a worker's own may be an hour off."""
    right = SystemClock.now

    def wrong(self: SystemClock) -> datetime:
        return right(self) + skew

    claim = await started(store)
    monkeypatch.setattr(SystemClock, "now", wrong)

    due = await put(store)
    later = await put(store, delay=HOUR / 2)
    renewed = await store.renew([claim.lease], span=HOUR / 2)
    await store.register_worker(make_worker())
    await store.heartbeat(make_holder(), span=HOUR / 2)

    assert await store.expired_leases(limit=MANY) == []
    assert [renewal.held for renewal in renewed] == [True]
    assert [taken.id for taken in await take_many(store)] == [due]
    assert (await job_of(store, later)).state is State.SCHEDULED
    assert [worker.is_alive for worker in await store.workers()] == [True]
    assert await finish(store, claim) == [True]


async def test_connections_that_were_cut_are_opened_again(
    store: PostgresStore, proxy: FaultProxy
) -> None:
    claim = await started(store)
    for _ in range(5):
        proxy.cut()
        assert await put(store)
        proxy.cut()
        assert [r.held for r in await store.renew([claim.lease], span=LEASE)] == [True]
        proxy.cut()
        assert await store.find(Filter(), limit=MANY)
    proxy.cut()

    assert await take(store)

"""A write whose reply is lost is answered as it happened, and happens once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from outlast.core.decide import succeed
from outlast.core.event import EventKind
from outlast.core.state import State
from outlast.errors import StoreUnavailable
from outlast.store.contract.jobs import Filter
from outlast.testing.conformance.factories import MANY, job_of, put, started, take_many
from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import FaultProxy

from .pg_network import database, opened, proxy
from .sqlite_helpers import PATIENCE

__all__ = ["database", "proxy"]


@pytest.mark.parametrize("key", [None, "key"], ids=["plain", "under a lock"])
async def test_an_end_whose_reply_was_lost_is_answered_true_and_is_no_late_write(
    postgres: PostgresServer, database: str, proxy: FaultProxy, key: str | None
) -> None:
    async with opened(postgres.url(database, port=proxy.port)) as store:
        claim = await started(store, active_key=key)
        lost = proxy.lose_reply("COMMIT" if key else ".ends (")

        answers = await store.apply([succeed(claim.job_id, claim.token, "1")])

        assert lost.is_set()
        assert answers == [True]
        kinds = [event.kind for event in await store.events(claim.id)]
        assert EventKind.LATE_WRITE_REFUSED not in kinds
        assert (await job_of(store, claim.id)).state is State.SUCCEEDED


WAITING = """
    SELECT pid FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database() AND pid <> ALL($1::integer[])
"""


async def _waiting_session(dsn: str, *known: int) -> int:
    """Another session that waits for a lock."""
    watcher = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(PATIENCE):
            while not (pid := await watcher.fetchval(WAITING, list(known))):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return int(pid)
    finally:
        await watcher.close()


@asynccontextmanager
async def _locked(dsn: str, table: str) -> AsyncIterator[None]:
    """No row can be added to that table."""
    operator = await asyncpg.connect(dsn)
    try:
        async with operator.transaction():
            await operator.execute(f"LOCK TABLE outlast.{table} IN SHARE MODE")
            yield
    finally:
        await operator.close()


async def test_a_claim_that_the_server_still_runs_when_its_connection_breaks_opens_no_run(
    postgres: PostgresServer, database: str, proxy: FaultProxy
) -> None:
    """The server does not notice that its client is gone, and would commit for no worker."""
    direct = postgres.url(database)
    async with opened(postgres.url(database, port=proxy.port)) as store:
        assert await take_many(store) == []
        jobs = [await put(store) for _ in range(2)]
        async with _locked(direct, "open_runs"):
            claiming = asyncio.create_task(take_many(store, limit=1))
            first = await _waiting_session(direct)
            proxy.cut()
            await _waiting_session(direct, first)  # the next attempt

        claims = await claiming

        states = Counter([(await job_of(store, job)).state for job in jobs])
        assert len(claims) == 1
        assert states == {State.RUNNING: 1, State.QUEUED: 1}


@pytest.mark.parametrize("options", ["?wait=0", "?wait=0&pooler=true"], ids=["direct", "pooler"])
async def test_runs_of_a_claim_that_was_given_up_are_returned_by_the_next_one(
    postgres: PostgresServer, database: str, proxy: FaultProxy, options: str
) -> None:
    async with opened(postgres.url(database, port=proxy.port) + options) as store:
        assert await take_many(store) == []
        job_id = await put(store)
        lost = proxy.lose_reply(".open_runs (")
        with pytest.raises(StoreUnavailable):
            await take_many(store)
        assert lost.is_set()

        [claim] = await take_many(store)

        assert (claim.id, claim.token) == (job_id, 1)
        assert await take_many(store) == [], "they are returned once"
        assert len(await store.runs(job_id)) == 1
        assert len(await store.find(Filter(), limit=MANY)) == 1

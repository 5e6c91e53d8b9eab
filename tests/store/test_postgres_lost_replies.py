"""A write whose reply is lost is answered as it happened, and happens once."""

import pytest

from outlast.core.decide import succeed
from outlast.core.event import EventKind
from outlast.core.state import State
from outlast.testing.conformance.factories import job_of, started
from outlast.testing.servers.postgres import PostgresServer
from support.servers.fault_proxy import FaultProxy

from .pg_network import database, opened, proxy

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

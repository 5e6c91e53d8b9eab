"""What the crash test needs to know of PostgreSQL: its own scenarios, and how to look at a schema.

A world's path is a file that holds the address of its schema.
"""
# ruff: noqa: S608 - the words that make up these statements are ours

from pathlib import Path
from typing import Any, Final

import asyncpg

from outlast.core.decide import decide
from outlast.core.event import Succeeded
from outlast.core.ids import Ids
from outlast.core.run import Claim
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.url import PostgresUrl, parse_url
from outlast.testing.clock import FakeClock
from support.corruption.postgres import TABLES, PostgresCorrupter
from support.crash.runner import Probe
from support.crash.scenarios import SCENARIOS
from support.crash.scenarios_groups import GROUP_SCENARIOS
from support.crash.scenarios_positions import PLACES
from support.crash.scenarios_recovery import broken_scenarios
from support.crash.scenarios_schedules import SCHEDULES
from support.crash.scenarios_transfer import MOVING
from support.crash.world import SECOND, Scenario, World

OWN_NUMBERS: Final = frozenset({"seq", "claim_order", "version"})
"""Columns whose values a sequence chooses; only their order counts, and the ids tell that too."""


class PostgresBench:
    """Plays every scenario in a PostgreSQL schema."""

    def store(self, path: Path, clock: FakeClock, ids: Ids, probe: Probe | None) -> PostgresStore:
        return PostgresStore(path.read_text(), clock=clock, ids=ids, probe=probe)

    @property
    def scenarios(self) -> dict[str, Scenario]:
        return SCENARIOS | PLACES | GROUP_SCENARIOS | SCHEDULES | MOVING | OWN


async def dump(connection: asyncpg.Connection, schema: str) -> dict[str, list[Any]]:
    """Return every row of every table, without generated numbers."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = {
            name: await connection.fetch(f'SELECT * FROM "{schema}".{name}')
            for name in (*TABLES, "effects")
        }
    who = {row["id"]: (row["instance_id"], row["boot_id"]) for row in found["workers"]}
    return {
        name: sorted((_plain(name, row, who) for row in rows), key=repr)
        for name, rows in found.items()
    }


def _plain(table: str, row: asyncpg.Record, who: dict[int, Any]) -> list[Any]:
    chosen = {k: v for k, v in row.items() if k not in OWN_NUMBERS}
    if table in {"events", "workers"}:
        del chosen["id"]
    if "worker" in chosen:
        chosen["worker"] = who.get(chosen["worker"])
    return [*chosen.values()]


async def make(url: str) -> PostgresUrl:
    """Our tables there, and a handler's own one beside them."""
    store = PostgresStore(url)
    await store.open()
    await store.close()
    await _run(store.address, "CREATE TABLE {}.effects (what text)")
    return store.address


async def _run(where: PostgresUrl, statement: str) -> None:
    connection = await asyncpg.connect(where.dsn)
    try:
        await connection.execute(statement.format(f'"{where.schema}"'))
    finally:
        await connection.close()


def _corrupter(w: World) -> PostgresCorrupter:
    return PostgresCorrupter(parse_url(w.path.read_text()))


def _store(w: World) -> PostgresStore:
    assert isinstance(w.store, PostgresStore)
    return w.store


async def _nothing(_: World) -> None:
    pass


async def _add_within(w: World, _: None) -> None:
    store = _store(w)
    own = await asyncpg.connect(store.address.dsn)
    try:
        async with own.transaction():
            await own.execute(f'INSERT INTO "{store.address.schema}".effects VALUES ($1)', "3")
            bad = w.job(params="no json")  # refused, and the caller's transaction goes on
            await store.add_within(own, [w.job(), bad, w.job(active_key="inv:3")])
    finally:
        await own.close()


async def _one_started(w: World) -> Claim:
    return await w.started()


async def _finish_with_effect(w: World, claim: Claim) -> None:
    store = _store(w)
    transaction = await store.begin(within=5 * SECOND)
    effect = f'INSERT INTO "{store.address.schema}".effects VALUES ($1)'
    await transaction.connection.execute(effect, claim.id)
    await transaction.commit([decide(claim, Succeeded(), new_id=w.new_id)])


async def _overstay(w: World, claim: Claim) -> None:
    store = _store(w)
    transaction = await store.begin(within=SECOND / 50)
    await transaction.expired.wait()
    await transaction.rollback()
    await store.apply([decide(claim, Succeeded(), new_id=w.new_id)])


async def _look(w: World, _: Any) -> None:
    """Questions that write nothing."""
    store = _store(w)
    await store.describe()
    await store.overview(span=SECOND)
    await store.health_warnings()


async def _lock(w: World, _: Any) -> None:
    hold = await w.store.acquire_lock("host-1")
    assert hold is not None
    assert await w.store.free_locks(["host-1"]) == frozenset()
    await hold.release()


OWN = {
    **broken_scenarios(_corrupter),
    "look": Scenario(_nothing, _look),
    "lock": Scenario(_nothing, _lock),
    "transaction_that_takes_too_long": Scenario(_one_started, _overstay),
    "add_within_own_transaction": Scenario(_nothing, _add_within),
    "finish_with_effect": Scenario(_one_started, _finish_with_effect),
}

BENCH = PostgresBench()

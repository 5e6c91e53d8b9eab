"""What the crash test needs to know of SQLite: its own scenarios, and how to look at a file."""

import sqlite3
from pathlib import Path
from typing import Any

from outlast.core.decide import decide
from outlast.core.event import Succeeded
from outlast.core.ids import Ids
from outlast.core.run import Claim
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from support.corruption.sqlite import SqliteCorrupter
from support.crash.runner import Probe
from support.crash.scenarios import SCENARIOS
from support.crash.scenarios_groups import GROUP_SCENARIOS
from support.crash.scenarios_positions import PLACES
from support.crash.scenarios_recovery import broken_scenarios
from support.crash.scenarios_schedules import SCHEDULES
from support.crash.scenarios_transfer import MOVING
from support.crash.world import SECOND, Scenario, World, nothing


class SqliteBench:
    """Plays every scenario on a SQLite file."""

    def store(self, path: Path, clock: FakeClock, ids: Ids, probe: Probe | None) -> SqliteStore:
        return SqliteStore(path, clock=clock, ids=ids, probe=probe)

    @property
    def scenarios(self) -> dict[str, Scenario]:
        return SCENARIOS | PLACES | GROUP_SCENARIOS | SCHEDULES | MOVING | OWN


def dump(path: Path, *, sound: bool = True) -> dict[str, list[Any]]:
    """Every row of every table, after checking that the file is sound, if it should be."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        loose = connection.execute("PRAGMA foreign_key_check").fetchall()
        assert not (sound and loose), loose
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        return {
            name: sorted(connection.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr)  # noqa: S608 - the schema's own names
            for (name,) in sorted(tables.fetchall())
        }
    finally:
        connection.close()


def dump_jobs(path: Path) -> dict[str, list[Any]]:
    """The same without documents: maintenance notes there when it inspected the history."""
    notes = {"outlast_documents", "sqlite_sequence"}
    return {name: rows for name, rows in dump(path).items() if name not in notes}


async def _open(w: World, _: None) -> None:
    await w.store.open()


async def _left_running(w: World) -> None:
    await w.store.open()
    await w.started()
    await w.store.close()
    w.clock.reboot()


async def _with_statistics(w: World) -> None:
    await w.store.open()
    await w.add()
    await w.store.close()
    own = sqlite3.connect(w.path)
    own.execute("ANALYZE")
    own.close()


def _store(w: World) -> SqliteStore:
    assert isinstance(w.store, SqliteStore)
    return w.store


async def _add_within(w: World, _: None) -> None:
    own = sqlite3.connect(w.path)
    own.execute("INSERT INTO effects VALUES ('invoice 3')")
    await _store(w).add_within(own, [w.job(), w.job(active_key="inv:3")])
    own.commit()
    own.close()


async def _own_table(w: World) -> None:
    own = sqlite3.connect(w.path)
    own.execute("CREATE TABLE effects (what TEXT)")
    own.commit()
    own.close()


async def _one_started(w: World) -> Claim:
    await _own_table(w)
    return await w.started()


async def _finish_with_effect(w: World, claim: Claim) -> None:
    transaction = await _store(w).begin(within=5 * SECOND)
    transaction.connection.execute("INSERT INTO effects VALUES (?)", (claim.id,))
    await transaction.commit([decide(claim, Succeeded(), new_id=w.new_id)])


async def _finish_too_late(w: World, claim: Claim) -> None:
    transaction = await _store(w).begin(within=5 * SECOND)
    transaction.connection.execute("INSERT INTO effects VALUES (?)", (claim.id,))
    stale = decide(Claim(claim.job_id, 99, *_rest(claim)), Succeeded(), new_id=w.new_id)
    assert not await transaction.commit([stale])


def _rest(claim: Claim) -> tuple[Any, ...]:
    return (
        claim.run_id,
        claim.type,
        claim.params,
        claim.delivery,
        claim.failures,
        claim.losses,
        claim.max_attempts,
    )


OWN = {
    **broken_scenarios(lambda w: SqliteCorrupter(w.path)),
    "open_new_file": Scenario(nothing, _open, opened=False),
    "open_after_restart": Scenario(_left_running, _open, opened=False),
    "open_with_statistics": Scenario(_with_statistics, _open, opened=False),
    "add_within_own_transaction": Scenario(_own_table, _add_within),
    "finish_with_effect": Scenario(_one_started, _finish_with_effect),
    "finish_too_late_with_effect": Scenario(_one_started, _finish_too_late),
}

BENCH = SqliteBench()

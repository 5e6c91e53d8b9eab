"""What the crash test needs to know of SQLite: its own scenarios, and how to look at a file."""

import sqlite3
from pathlib import Path
from typing import Any

from holdfast.core.decide import decide
from holdfast.core.event import (
    Continued,
    Drifted,
    Event,
    Failed,
    Lost,
    Released,
    Skipped,
    Stopped,
    Succeeded,
)
from holdfast.core.ids import Ids
from holdfast.core.job import Job
from holdfast.core.run import Claim
from holdfast.core.state import Loss
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing.clock import FakeClock
from holdfast.testing.crash import Probe
from holdfast.testing.place_scenarios import PLACES
from holdfast.testing.scenarios import (
    CHAIN,
    ONCE,
    SCENARIOS,
    SECOND,
    Scenario,
    World,
    nothing,
    reserving,
)
from holdfast.testing.scenarios_groups import GROUP_SCENARIOS
from holdfast.testing.scenarios_schedules import SCHEDULES
from holdfast.testing.sqlite_wreck import SqliteWrecker


class SqliteBench:
    """Plays every scenario on a SQLite file."""

    def store(self, path: Path, clock: FakeClock, ids: Ids, probe: Probe | None) -> SqliteStore:
        return SqliteStore(path, clock=clock, ids=ids, probe=probe)

    @property
    def scenarios(self) -> dict[str, Scenario]:
        return SCENARIOS | PLACES | GROUP_SCENARIOS | SCHEDULES | OWN


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
    _store(w).add_within(own, [w.job(), w.job(active_key="inv:3")])
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


def _resuming(event: Event | None, over: dict[str, Any]) -> Scenario:
    """Settle a job adrift whose run ended by that event; None: it has no run."""

    async def prepare(w: World) -> tuple[Job, Event]:
        claim, wrecker = await w.started(**over), SqliteWrecker(w.path)
        if event is not None:
            await w.settle(claim, event)
        if len(await w.store.chain(claim.id)) > 1:
            await wrecker.unfollow(claim.id)
        await wrecker.cut_loose(claim.id)
        runs = await w.store.runs(claim.id)
        last = Drifted(runs[-1].status, runs[-1].reason) if runs else Drifted(None)
        return await w.get(claim.id), last

    async def act(w: World, needs: tuple[Job, Event]) -> None:
        await w.settle(*needs)

    return Scenario(prepare, act)


async def _unfollowed(w: World) -> Job:
    claim = await w.started(active_key="key", **CHAIN)
    await w.settle(claim, Failed("broke"))
    await SqliteWrecker(w.path).unfollow(claim.id)
    return await w.get(claim.id)


async def _continue(w: World, job: Job) -> None:
    await w.settle(job, Continued("startup_recovery"))


async def _orphaned(w: World) -> None:
    claim = await w.started()
    await w.settle(claim, Succeeded("1"))
    await SqliteWrecker(w.path).orphan(claim.id)


async def _remove_orphans(w: World, _: None) -> None:
    await w.store.remove_orphans(limit=10)


async def _held_for_nothing(w: World) -> None:
    claim = await w.started()
    await w.settle(claim, Succeeded("1"))
    held = await reserving(w)
    await SqliteWrecker(w.path).point(held.id, claim.id)


async def _free(w: World, _: None) -> None:
    assert len(await w.store.free_reservations(limit=10)) == 1


ADRIFT: dict[str, tuple[Event | None, dict[str, Any]]] = {
    "succeeded": (Succeeded("1"), {}),
    "skipped": (Skipped("empty"), {}),
    "stopped": (Stopped("asked"), {}),
    "released": (Released("drain"), {}),
    "retried": (Failed("broke"), {}),
    "dead": (Failed("broke", permanent=True), {}),
    "requeued": (Lost(Loss.OWNER_DEAD), {}),
    "chained": (Failed("broke"), CHAIN),
    "closed": (Failed("broke"), ONCE),
    "without_run": (None, {}),
    "without_run_dead": (None, {"max_attempts": 1}),
    "without_run_chained": (None, CHAIN),
    "without_run_closed": (None, ONCE),
}
"""Jobs in no place: how their only run ended, and how they were asked for."""

OWN = {
    **{f"resume_{name}": _resuming(*made) for name, made in ADRIFT.items()},
    "continue_chain": Scenario(_unfollowed, _continue),
    "remove_orphans": Scenario(_orphaned, _remove_orphans, sound=False),
    "free_reservations": Scenario(_held_for_nothing, _free),
    "open_new_file": Scenario(nothing, _open, opened=False),
    "open_after_restart": Scenario(_left_running, _open, opened=False),
    "open_with_statistics": Scenario(_with_statistics, _open, opened=False),
    "add_within_own_transaction": Scenario(_own_table, _add_within),
    "finish_with_effect": Scenario(_one_started, _finish_with_effect),
    "finish_too_late_with_effect": Scenario(_one_started, _finish_too_late),
}

BENCH = SqliteBench()

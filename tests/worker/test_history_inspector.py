"""A start reads what is open; maintenance inspects the history once a day where reads are free."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from recovery_helpers import recover

from outlast.core.delivery import Delivery
from outlast.core.ids import Ids
from outlast.core.state import State
from outlast.store.contract import Capability
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.corruption import ModelCorrupter
from outlast.testing.conformance.factories import FAILED, SECOND, ended, job_of, new_id
from outlast.testing.model.store import ModelStore
from outlast.worker.maintenance.history_inspector import (
    INTERVAL,
    HistoryInspector,
    HistoryRepairs,
)
from outlast.worker.maintenance.recovery import RecoveryResult

WHOLE_HISTORY = {
    "maintenance.detached",
    "maintenance.missing_successors",
    "maintenance.orphans",
    "maintenance.find_orphans",
    "runs.of_job",
}
"""Statements whose cost depends on the jobs and runs that are kept."""


@pytest.fixture
def statements() -> list[str]:
    return []


@pytest.fixture(params=["sqlite", "postgres"])
async def sql_store(
    request: pytest.FixtureRequest, tmp_path: Path, statements: list[str]
) -> AsyncIterator[SqliteStore | PostgresStore]:
    options: dict[str, Any] = {
        "clock": FakeClock(),
        "probe": lambda name, after: None if after else statements.append(name),
    }
    if request.param == "sqlite":
        store: SqliteStore | PostgresStore = SqliteStore(tmp_path / "jobs.db", **options)
    else:
        store = PostgresStore(request.getfixturevalue("postgres_url"), **options)
    await store.open()
    yield store
    await store.close()


async def test_start_reads_what_is_open_and_the_maintenance_the_history(
    sql_store: SqliteStore | PostgresStore, statements: list[str]
) -> None:
    await ended(sql_store, FAILED, delivery=Delivery.LINKED)
    statements.clear()

    done = await recover(sql_store)

    started = set(statements)
    assert done == RecoveryResult()
    assert started, "the probe saw the start"
    assert WHOLE_HISTORY & started == set()
    assert await HistoryInspector(sql_store, new_id).inspect_if_due() == HistoryRepairs()
    assert len(WHOLE_HISTORY & set(statements)) >= 3


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock) -> ModelStore:
    model = ModelStore(clock, Ids(clock.now, Random(1).getrandbits))
    await model.open()
    return model


class PaidReads:
    """A store whose reads cost something."""

    def __init__(self, store: ModelStore) -> None:
        self._store = store
        self.capabilities = store.capabilities | {Capability.PAID_READS}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _inspector(store: ModelStore) -> HistoryInspector:
    return HistoryInspector(store, new_id)


async def _detached(store: ModelStore) -> str:
    job_id = await ended(store)
    await ModelCorrupter(store).detach(job_id)
    return job_id


async def test_running_worker_inspects_once_a_day(store: ModelStore, clock: FakeClock) -> None:
    await _inspector(store).inspect_if_due()
    job_id = await _detached(store)
    clock.advance(INTERVAL - SECOND)
    too_early = await _inspector(store).inspect_if_due()
    clock.advance(SECOND)

    repairs = await _inspector(store).inspect_if_due()

    assert too_early == HistoryRepairs()
    assert repairs == HistoryRepairs(finished=1)
    assert (await job_of(store, job_id)).state is State.SUCCEEDED


async def test_one_worker_of_a_fleet_inspects(store: ModelStore, clock: FakeClock) -> None:
    await _inspector(store).inspect_if_due()
    await _detached(store)
    clock.advance(INTERVAL)

    repairs = await asyncio.gather(*(_inspector(store).inspect_if_due() for _ in range(5)))

    assert sum(each.finished for each in repairs) == 1
    assert repairs.count(HistoryRepairs()) == 4


async def test_store_with_paid_reads_is_never_inspected_unasked(store: ModelStore) -> None:
    job_id = await _detached(store)
    paid = PaidReads(store)

    unasked = await HistoryInspector(paid, new_id).inspect_if_due()
    asked = await HistoryInspector(paid, new_id).inspect()

    assert (unasked, asked) == (HistoryRepairs(), HistoryRepairs(finished=1))
    assert (await job_of(store, job_id)).state is State.SUCCEEDED

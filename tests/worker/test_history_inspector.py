"""A start reads what is open; the history is inspected at the first start and then once a day."""

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
    request_inspection,
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


async def test_start_reads_the_history_once_and_then_only_what_is_open(
    sql_store: SqliteStore | PostgresStore, statements: list[str]
) -> None:
    await ended(sql_store, FAILED, delivery=Delivery.LINKED)
    await recover(sql_store)
    first = WHOLE_HISTORY & set(statements)
    statements.clear()

    again = await recover(sql_store)

    assert len(first) >= 3
    assert again == RecoveryResult()
    assert statements, "the probe saw the start"
    assert WHOLE_HISTORY & set(statements) == set()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(clock: FakeClock) -> ModelStore:
    model = ModelStore(clock, Ids(clock.now, Random(1).getrandbits))
    await model.open()
    return model


def _inspector(store: ModelStore) -> HistoryInspector:
    return HistoryInspector(store, new_id)


async def _detached(store: ModelStore) -> str:
    job_id = await ended(store)
    await ModelCorrupter(store).detach(job_id)
    return job_id


async def test_running_worker_inspects_once_a_day(store: ModelStore, clock: FakeClock) -> None:
    await recover(store)
    job_id = await _detached(store)
    clock.advance(INTERVAL - SECOND)
    too_early = await _inspector(store).inspect_if_due()
    clock.advance(SECOND)

    repairs = await _inspector(store).inspect_if_due()

    assert too_early == HistoryRepairs()
    assert repairs == HistoryRepairs(finished=1)
    assert (await job_of(store, job_id)).state is State.SUCCEEDED


async def test_one_worker_of_a_fleet_inspects(store: ModelStore, clock: FakeClock) -> None:
    await recover(store)
    await _detached(store)
    clock.advance(INTERVAL)

    repairs = await asyncio.gather(*(_inspector(store).inspect_if_due() for _ in range(5)))

    assert sum(each.finished for each in repairs) == 1
    assert repairs.count(HistoryRepairs()) == 4


async def test_request_makes_the_next_start_inspect(store: ModelStore) -> None:
    await recover(store)
    await _detached(store)
    unasked = await recover(store)

    await request_inspection(store)

    assert unasked == RecoveryResult()
    assert await recover(store) == RecoveryResult(finished=1)
    await request_inspection(store)
    await request_inspection(store)
    assert await recover(store) == RecoveryResult(), "asking twice is a no-op"

"""The rows of workers: what runs point at stays, and nothing else does."""

import sqlite3

from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    MANY,
    ended,
    make_holder,
    make_worker,
    started,
)


def _rows(db: sqlite3.Connection) -> list[str]:
    ours = "SELECT instance_id FROM outlast_workers WHERE id > 0 ORDER BY id"
    found = db.execute(ours).fetchall()
    return [name for (name,) in found]


async def _prune(store: SqliteStore, clock: FakeClock) -> None:
    clock.advance(2 * HOUR)
    await store.prune(older_than=HOUR, limit=MANY)


async def test_a_thousand_boots_leave_no_row_behind(
    store: SqliteStore, clock: FakeClock, db: sqlite3.Connection
) -> None:
    for number in range(1000):
        await store.register_worker(make_worker(boot_id=f"boot-{number}"))

    await _prune(store, clock)

    assert _rows(db) == []


async def test_row_of_an_embedded_worker_goes_with_its_last_run(
    store: SqliteStore, clock: FakeClock, db: sqlite3.Connection
) -> None:
    await ended(store)
    before = _rows(db)

    await _prune(store, clock)

    assert (before, _rows(db)) == (["worker-1"], [])


async def test_row_stays_while_a_run_points_at_it(
    store: SqliteStore, clock: FakeClock, db: sqlite3.Connection
) -> None:
    await ended(store, FAILED, max_attempts=1)
    await store.register_worker(make_worker("worker-2"))
    await started(store, queue="lane")

    await _prune(store, clock)

    assert _rows(db) == ["worker-1"]


async def test_worker_whose_row_went_goes_on_claiming(
    store: SqliteStore, clock: FakeClock, db: sqlite3.Connection
) -> None:
    await ended(store)
    await _prune(store, clock)

    claim = await started(store)

    assert claim.token == 1
    assert _rows(db) == [make_holder().instance_id]


async def test_limit_bounds_what_one_prune_deletes(
    store: SqliteStore, clock: FakeClock, db: sqlite3.Connection
) -> None:
    for number in range(5):
        await store.register_worker(make_worker(boot_id=f"boot-{number}"))
    clock.advance(2 * HOUR)

    left = []
    for _ in range(3):
        await store.prune(older_than=HOUR, limit=2)
        left.append(len(_rows(db)))

    assert left == [3, 1, 0]

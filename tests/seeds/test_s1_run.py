"""S1: the JobRun. Opened by the dispatch, closed in one commit, and frozen by the database."""
# ruff: noqa: S608 - the words that make up these statements are ours

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from outlast import Outlast, Run, Skip
from outlast.clock import to_micros
from outlast.core.delivery import Delivery
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    SUCCEEDED,
    ended,
    last_run,
    settle,
    started,
)

from .app_helpers import drain
from .database_file import Sql, Witness

OPEN = "outlast: of an open run only lease, cancel mark, progress and artifacts change"
CLOSED = "outlast: a closed run is frozen"
CLOSING = "SELECT status, finished_at, error, result, artifacts FROM outlast_runs"


@pytest.mark.req("S1-2.2.a")
async def test_run_id_is_a_uuid_a_key_and_never_changes(store: SqliteStore, sql: Sql) -> None:
    closed = await ended(store)
    open_one = await started(store)
    ids = [(await last_run(store, closed)).run_id, open_one.run_id]

    assert [uuid.UUID(run_id).version for run_id in ids] == [7, 7]
    assert ids[0] != ids[1]
    assert sql.refuses(f"UPDATE outlast_open_runs SET run_id = '{uuid.uuid4()}'") == OPEN
    assert sql.refuses(f"UPDATE outlast_runs SET run_id = '{uuid.uuid4()}'") == CLOSED
    sql.refuses(
        "INSERT INTO outlast_runs (job, token, run_id, status, worker, started_at, finished_at)"
        " SELECT job, token + 1, run_id, status, worker, 1, 1 FROM outlast_runs"
    )


@pytest.mark.req("S1-2.2.b")
async def test_the_parent_of_a_run_never_changes(store: SqliteStore, sql: Sql) -> None:
    closed = await ended(store)
    open_one = await started(store)

    assert (await last_run(store, closed)).job_id == closed
    assert (await last_run(store, open_one.id)).job_id == open_one.id
    assert sql.refuses("UPDATE outlast_open_runs SET job = 1") == OPEN
    assert sql.refuses("UPDATE outlast_runs SET job = 2") == CLOSED


@pytest.mark.req("S1-2.2.d")
async def test_the_run_keeps_the_params_of_its_dispatch(store: SqliteStore, sql: Sql) -> None:
    params = '{"title":"The Kraken","pages":[1,2]}'
    claim = await started(store, params=params)

    while_open = await last_run(store, claim.id)
    refused_while_open = sql.refuses("UPDATE outlast_jobs SET params = '{}'")
    await settle(store, claim, SUCCEEDED)
    refused_when_closed = sql.refuses("UPDATE outlast_jobs SET params = '{}'")

    assert claim.params == while_open.params_snapshot == params
    assert (await last_run(store, claim.id)).params_snapshot == params
    assert "frozen" in refused_while_open
    assert "frozen" in refused_when_closed


@pytest.mark.req("S1-2.2.e")
async def test_a_closed_run_refuses_another_status(store: SqliteStore, sql: Sql) -> None:
    job_id = await ended(store, FAILED, delivery=Delivery.ONCE)

    for status in ("succeeded", "skipped", "lost", "running", "nonsense"):
        sql.refuses(f"UPDATE outlast_runs SET status = '{status}'")
    assert (await last_run(store, job_id)).status == "failed"
    assert "run_status" in sql.refuses(
        "INSERT INTO outlast_runs (job, token, run_id, status, worker, started_at, finished_at)"
        " SELECT job, token + 1, 'x', 'pending', worker, 1, 1 FROM outlast_runs"
    )


@pytest.mark.req("S1-2.2.f")
async def test_started_at_of_a_run_never_changes(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    closed = await ended(store)
    clock.advance("1m")
    open_one = await started(store)

    assert (await last_run(store, closed)).started_at == START
    assert (await last_run(store, open_one.id)).started_at == clock.now()
    assert sql.refuses("UPDATE outlast_open_runs SET started_at = 1") == OPEN
    assert sql.refuses("UPDATE outlast_runs SET started_at = 1") == CLOSED


@pytest.mark.req("S1-2.2.g")
async def test_finished_at_of_a_run_is_written_once(store: SqliteStore, sql: Sql) -> None:
    claim = await started(store)
    while_open = await last_run(store, claim.id)
    closed = await ended(store, type="other")

    assert while_open.finished_at is None
    assert (await last_run(store, closed)).finished_at == START
    assert sql.refuses("UPDATE outlast_runs SET finished_at = finished_at + 1") == CLOSED
    sql.refuses("UPDATE outlast_runs SET finished_at = NULL")


@pytest.mark.req("S1-2.2.i")
async def test_error_is_set_by_a_failure_and_written_once(store: SqliteStore, sql: Sql) -> None:
    fine = await ended(store, SUCCEEDED)
    broken = await ended(store, FAILED, delivery=Delivery.ONCE)

    assert (await last_run(store, fine)).error is None
    assert (await last_run(store, broken)).error == "it broke"
    for value in ("'something else'", "NULL"):
        statement = f"UPDATE outlast_runs SET error = {value} WHERE error IS NOT NULL"
        assert sql.refuses(statement) == CLOSED


@pytest.mark.req("S1-2.2.j")
async def test_artifacts_grow_by_appending_and_lose_nothing(store: SqliteStore, sql: Sql) -> None:
    claim = await started(store)
    steps = [await store.attach(claim.lease, ["a.txt"]), await store.attach(claim.lease, ["b.txt"])]
    while_open = [sql.refuses(_artifacts("open_runs", value)) for value in _LESS]
    await settle(store, claim, SUCCEEDED)
    steps.append(await store.attach(claim.lease, ["c.txt"]))

    assert steps == [True] * 3
    assert (await last_run(store, claim.id)).artifacts == ("a.txt", "b.txt", "c.txt")
    assert while_open == [OPEN] * len(_LESS)
    assert [sql.refuses(_artifacts("runs", value)) for value in _LESS] == [CLOSED] * len(_LESS)


_LESS = [
    [],
    ["a.txt"],
    ["b.txt", "a.txt"],
    ["a.txt", "other.txt"],
    ["new.txt", "a.txt", "b.txt"],
    ["a.txt.bak", "b.txt"],
]


def _artifacts(table: str, value: list[str]) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return f"UPDATE outlast_{table} SET artifacts = '{text}'"


@pytest.mark.req("S1-2.2.n")
async def test_a_run_that_goes_well_is_closed_with_its_files_in_one_commit(path: Path) -> None:
    def tell(run: Run) -> str:
        run.attach("story.md", "cover.png")
        return "done"

    seen, now = await _close_seen(path, tell)

    files = '["story.md","cover.png"]'
    assert seen == [[], [("succeeded", now, None, '"done"', files)]]


@pytest.mark.req("S1-2.2.o")
async def test_a_run_that_fails_is_closed_with_its_error_in_one_commit(path: Path) -> None:
    def tell(run: Run) -> str:
        run.attach("half.md")
        raise ValueError("no ending")

    [nothing, [closed]], now = await _close_seen(path, tell)

    assert nothing == []
    assert (closed[0], closed[1], closed[3], closed[4]) == ("failed", now, None, '["half.md"]')
    assert "ValueError: no ending" in closed[2]


@pytest.mark.req("S1-2.2.p")
async def test_a_run_that_is_skipped_says_so_and_nothing_more(path: Path) -> None:
    def tell(run: Run) -> Skip:
        return Skip("told already")

    seen, now = await _close_seen(path, tell)

    assert seen == [[], [("skipped", now, None, None, "[]")]]


async def _close_seen(path: Path, handler: Any) -> tuple[list[Any], int]:
    """Run it once; what could ever be read of its closed run, and the moment it was closed."""
    witness = Witness(path, CLOSING)
    clock = FakeClock()
    async with Outlast(SqliteStore(path, clock=clock, probe=witness), poll="5ms") as app:
        story = app.job(name="story", delivery="once")(handler)
        clock.advance("1m")
        await story.options(slot=START).enqueue()
        await drain(app)
    return witness.seen, to_micros(clock.now())


@pytest.mark.req("S1-2.2.q")
async def test_of_a_closed_run_only_four_fields_may_still_be_written(
    store: SqliteStore, sql: Sql
) -> None:
    await ended(store, SUCCEEDED)
    columns = {row[1]: row[2] for row in sql.rows("PRAGMA table_info(outlast_runs)")}
    late = {"exit_code": "3", "error": "'said late'", "artifacts": "'[\"late.txt\"]'"}

    for column in columns.keys() - late.keys():
        new = "'other'" if columns[column] == "TEXT" else "999"
        sql.refuses(f"UPDATE outlast_runs SET {column} = {new}")
    for column, value in late.items():
        sql.write(f"UPDATE outlast_runs SET {column} = {value}")
    sql.write("UPDATE outlast_runs SET finished_at = finished_at")

    assert sql.rows("SELECT exit_code, error, artifacts FROM outlast_runs") == [
        (3, "said late", '["late.txt"]')
    ]
    for change in ("exit_code = 4", "error = 'again'", "artifacts = '[]'", "finished_at = 1"):
        assert sql.refuses(f"UPDATE outlast_runs SET {change}") == CLOSED
    assert "a run goes only with its job" in sql.refuses("DELETE FROM outlast_runs")

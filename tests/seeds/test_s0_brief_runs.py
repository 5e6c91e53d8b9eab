"""S0's `job_runs`: what the daily brief shows of our records, in S0's words and in S0's table."""

import logging
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from daily_brief import job_runs
from daily_brief.brief import Brief
from daily_brief.desk import Desk
from daily_brief.rules import RULES, Rules
from outlast import InvalidType, Outlast
from outlast.core.event import Event, Failed, Lost, Skipped, Stopped
from outlast.core.run import LeaseHolder
from outlast.core.schedule import SlotOutcome
from outlast.core.state import Loss
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, job_of, new_id, settle
from outlast.worker.maintenance.recovery import Recovery

from .app_helpers import drain
from .database_file import Sql
from .newsroom import HOUR, Newsroom, article, dead, write

NEWS = [article("a", "Storm Vesna floods harbour"), article("b", "Storm Vesna: harbour flooded")]
CORE = ("rss_ingestion", "event_clustering", "retention_cleanup")
HOLDER = LeaseHolder(instance_id="news-1", boot_id="an-earlier-boot")
SLOT = START - HOUR


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The news and Outlast's tables are in one file."""
    return tmp_path / "brief.db"


@pytest.fixture
async def room(tmp_path: Path, store: SqliteStore, clock: FakeClock) -> Newsroom:
    room = Newsroom(tmp_path, store, clock)
    room.give(one=NEWS)
    await room.app.sync_schedules()
    return room


async def begun(room: Newsroom, store: SqliteStore, name: str = "rss_ingestion") -> str:
    """A run that a worker has begun, and that nobody goes on with."""
    handle = await room.claim(name, SLOT)
    [claim] = await store.claim(HOLDER, queue="default", types=[name], limit=1, lease=HOUR)
    assert claim.id == handle.id
    return handle.id


def insert(desk: Desk, **over: Any) -> None:
    """S0's claim, as a program that knows S0 and nothing of us would write it."""
    row = {
        "job_name": "rss_ingestion",
        "scheduled_for": "2026-01-05 09:00:00",
        "started_at": "2026-01-05 09:00:01",
        "status": "running",
        "worker_instance": "by-hand",
        **over,
    }
    marks = ", ".join("?" * len(row))
    write(desk.path, f"INSERT INTO job_runs ({', '.join(row)}) VALUES ({marks})", *row.values())  # noqa: S608 - ours


def refusal(desk: Desk, **over: Any) -> str:
    with pytest.raises(sqlite3.IntegrityError) as refused:
        insert(desk, **over)
    return str(refused.value)


@pytest.fixture
async def desk(room: Newsroom) -> Desk:
    await job_runs.install(room.app, room.desk)
    return room.desk


@pytest.mark.req("S0-4.d")
@pytest.mark.parametrize("name", CORE)
async def test_each_of_the_three_runs_under_a_claimed_slot_and_is_told_of(
    room: Newsroom, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.INFO, logger="outlast.jobs"):
        row = await room.run(name, SLOT)

    [slot] = await room.app.schedules.history(name)
    reported = [record.facts for record in caplog.records if record.name == "outlast.jobs"]  # type: ignore[attr-defined]  # ours
    assert (row.job_name, row.scheduled_for, row.status) == (name, SLOT, "success")
    assert (slot.slot.at, slot.outcome) == (SLOT, SlotOutcome.MANUAL)
    assert [fact["event"] for fact in reported] == ["job_start", "job_end"]
    assert reported[1]["duration_seconds"] >= 0
    assert reported[1]["rows_processed"] == (2 if name == "rss_ingestion" else 0)


@pytest.mark.req("S0-5.a")
async def test_the_id_is_there_and_unique(room: Newsroom, sql: Sql, desk: Desk) -> None:
    first, second = await room.run("rss_ingestion"), await room.run("rss_ingestion")

    insert(desk)
    ids = {row["id"] for row in await room.job_runs()}
    assert {first.id, second.id} < ids
    assert (len(ids), None in ids) == (3, False)
    assert "a slot is claimed with status running, without id" in refusal(desk, id=first.id)
    assert "UNIQUE constraint failed: outlast_runs.run_id" in sql.refuses(
        "DROP TRIGGER outlast_runs_once",
        "INSERT INTO outlast_runs (job, token, run_id, status, worker, started_at, finished_at)"
        " SELECT job, token + 1, run_id, status, worker, started_at, finished_at"
        " FROM outlast_runs LIMIT 1",
    )


@pytest.mark.req("S0-5.b")
async def test_a_job_name_has_up_to_128_characters(app: Outlast, desk: Desk, sql: Sql) -> None:
    fits, over = "x" * 128, "x" * 129

    @app.job(delivery="once", name=fits)
    def job() -> None: ...

    handle = await job.options(slot=SLOT).enqueue()
    with pytest.raises(InvalidType, match="use 1 to 128"):
        app.job(delivery="once", name=over)(print)

    assert (await app.get(handle.id)).name == fits
    assert "no schedule has this job_name" in refusal(desk, job_name=over)
    assert "series_name" in sql.refuses(
        "INSERT INTO outlast_slots (series, slot_at, outcome, planned, actual)"
        " SELECT series || 'x', slot_at, 'missed', 1, 1 FROM outlast_slots"
    )


@pytest.mark.req("S0-5.d", "S0-5.e")
async def test_the_claim_sets_started_at_and_the_close_finished_at(
    room: Newsroom, store: SqliteStore, clock: FakeClock, desk: Desk
) -> None:
    clock.advance("7s")
    job_id = await begun(room, store)
    during = await room.row(job_id)
    clock.advance("3s")
    await Recovery(
        store, LeaseHolder(instance_id="news-1", boot_id="b"), scope="all", new_id=new_id
    ).run_once()

    after = await room.row(job_id)

    assert (during.started_at, during.finished_at) == (START + timedelta(seconds=7), None)
    assert (after.started_at, after.finished_at) == (during.started_at, clock.now())
    assert during.started_at.tzinfo is UTC
    assert "started_at is no time" in refusal(desk, started_at=None)
    insert(desk)
    early = "UPDATE job_runs SET status = 'success', finished_at = '2026-01-05 09:00:00'"
    with pytest.raises(sqlite3.IntegrityError, match="finished_at is before started_at"):
        write(desk.path, f"{early} WHERE worker_instance = 'by-hand'")


@pytest.mark.req("S0-5.f")
async def test_every_run_has_one_of_four_statuses_and_the_table_takes_no_other(
    room: Newsroom, store: SqliteStore, desk: Desk
) -> None:
    done = await room.run("rss_ingestion")
    room.give(one=dead())
    failed = await room.run("rss_ingestion")
    running = await room.row(await begun(room, store))

    assert (done.status, failed.status, running.status) == ("success", "failed", "running")
    for word in ("succeeded", "lost", "", "RUNNING", None):
        assert "a slot is claimed with status running" in refusal(desk, status=word)
    insert(desk)
    for word in ("succeeded", "lost", "", "SUCCESS", None):
        with pytest.raises(sqlite3.IntegrityError, match="status is none of"):
            write(
                desk.path,
                "UPDATE job_runs SET status = ? WHERE worker_instance = 'by-hand'",
                word,
            )


@pytest.mark.req("S0-5.g")
async def test_a_claim_stores_who_runs_it_and_nobody_is_null(
    room: Newsroom, store: SqliteStore, desk: Desk
) -> None:
    row = await room.run("rss_ingestion")

    insert(desk, worker_instance=None)
    insert(desk, worker_instance="x" * 128, job_name="event_clustering")
    assert row.worker_instance == "news-1"
    assert {each["worker_instance"] for each in await room.job_runs()} == {
        "news-1",
        None,
        "x" * 128,
    }
    assert "CHECK" in refusal(desk, worker_instance="x" * 129, job_name="retention_cleanup")


@pytest.mark.req("S0-5.h")
async def test_a_failing_handler_sets_the_error_message_and_success_leaves_none(
    room: Newsroom,
) -> None:
    good = await room.run("rss_ingestion")
    room.give(one=dead())

    bad = await room.run("rss_ingestion")

    assert good.error_message is None
    assert "NoFeedAnswered: none of the 1 feeds could be had" in (bad.error_message or "")


@pytest.mark.req("S0-5.j", "S0-5.k")
@pytest.mark.parametrize(
    ("where", "index"),
    [("status = 'running'", "job_runs_status"), ("started_at < '2026'", "job_runs_started")],
)
async def test_an_index_serves_queries_by_status_and_by_start(
    room: Newsroom, where: str, index: str
) -> None:
    await room.run("rss_ingestion")
    await room.job_runs()

    plan = room.rows(f"EXPLAIN QUERY PLAN SELECT * FROM job_runs WHERE {where}")  # noqa: S608 - ours

    assert any(f"SEARCH r USING INDEX {index} (<expr>" in line[3] for line in plan)
    assert not [line for line in plan if line[3] in {"SCAN r", "SCAN c"}]


@pytest.mark.req("S0-5.f", "S0-5.h")
async def test_the_table_holds_what_the_words_say_of_every_run(
    room: Newsroom, store: SqliteStore, clock: FakeClock
) -> None:
    rows = [await room.run(name) for name in (*CORE, "brief_publication")]
    job_id = await begun(room, store)
    clock.advance("1s")
    before = await room.job_runs()
    await Recovery(
        store, LeaseHolder(instance_id="news-1", boot_id="b"), scope="all", new_id=new_id
    ).run_once()

    after = await room.job_runs()

    reported = {row["id"]: row for row in after}
    assert [row["status"] for row in before].count("running") == 1
    assert len(after) == len(before) == 5
    for row in [*rows, await room.row(job_id)]:
        assert (reported[row.id]["job_name"], reported[row.id]["status"]) == (
            row.job_name,
            row.status,
        )
        assert reported[row.id]["error_message"] == row.error_message


async def test_a_closed_row_is_never_changed_nor_any_deleted(room: Newsroom, desk: Desk) -> None:
    await room.run("event_clustering")
    insert(desk)
    write(desk.path, "UPDATE job_runs SET status = 'success' WHERE status = 'running'")
    before = await room.job_runs()

    for statement in ("UPDATE job_runs SET status = 'failed'", "DELETE FROM job_runs"):
        with pytest.raises(sqlite3.IntegrityError, match=r"immutable|keeps every run"):
            write(desk.path, statement)

    assert await room.job_runs() == before
    assert [row["status"] for row in before] == ["success", "success"]


@pytest.mark.req("S0-7.c")
async def test_the_threshold_is_twice_the_expected_runtime_unless_one_is_given(
    tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    x = timedelta(minutes=3)
    common: dict[str, Any] = {
        "cron": "0 * * * *",
        "coalesce": True,
        "misfire_grace": HOUR,
        "expected_max_runtime": x,
    }
    rules = {name: Rules(**common) for name in RULES}
    rules["event_clustering"] = Rules(**common, threshold=timedelta(minutes=1))

    app = Brief(tmp_path, store=store, rules=rules).app
    in_force = {name: app.registry.get(name).policy.max_runtime for name in RULES}

    assert in_force["rss_ingestion"] == 2 * x
    assert in_force["event_clustering"] == timedelta(minutes=1)


@pytest.mark.req("S0-7.d")
def test_ingestion_is_expected_to_take_five_minutes_and_stale_after_ten(room: Newsroom) -> None:
    assert RULES["rss_ingestion"].expected_max_runtime == timedelta(minutes=5)
    limit = room.app.registry.get("rss_ingestion").policy.max_runtime
    assert limit == timedelta(seconds=600)


@pytest.mark.req("S0-7.1.e")
async def test_a_run_that_its_worker_s_death_interrupted_has_s0_s_error(
    room: Newsroom, store: SqliteStore, clock: FakeClock
) -> None:
    job_id = await begun(room, store)
    again = LeaseHolder(instance_id="news-1", boot_id="the-next")

    await Recovery(store, again, scope="instance", new_id=new_id).run_once()

    row = await room.row(job_id)
    assert (row.status, row.error_message) == ("failed", "worker_startup_recovery")
    assert row.finished_at == clock.now()
    assert (await room.job_runs())[0]["error_message"] == "worker_startup_recovery"


@pytest.mark.req("S0-11.f")
async def test_without_any_log_the_table_answers_for_every_run(
    room: Newsroom, clock: FakeClock
) -> None:
    """Also years later, when a cleanup and a worker's own tidying have been at it."""
    logging.disable()
    try:
        done = [await room.run("rss_ingestion")]
        room.give(one=dead())
        done.append(await room.run("rss_ingestion"))
        for name in RULES:
            await room.app.schedules.pause(name)  # which would have missed thousands of slots
        clock.advance("800d")
        done.append(await room.run("retention_cleanup", clock.now() + HOUR))
    finally:
        logging.disable(logging.NOTSET)

    reported = {row["id"]: (row["job_name"], row["status"]) for row in await room.job_runs()}
    assert {row.id: (row.job_name, row.status) for row in done}.items() <= reported.items()
    assert [row.status for row in done] == ["success", "failed", "success"]
    assert room.app.settings.retention is None


@pytest.mark.req("S0-5.f")
@pytest.mark.parametrize(
    ("event", "word", "reported"),
    [
        (SUCCEEDED, "success", None),
        (Skipped("nothing new"), "success", None),
        (Failed("our words"), "failed", "our words"),
        (Stopped("enough"), "failed", "cancelled"),
        (Lost(Loss.TIMEOUT), "skipped_timeout", "timeout"),
        (Lost(Loss.LEASE_EXPIRED), "skipped_timeout", "lease_expired"),
        (Lost(Loss.SILENT), "skipped_timeout", "silent"),
        (Lost(Loss.STARTUP_RECOVERY), "failed", "worker_startup_recovery"),
        (Lost(Loss.OWNER_DEAD), "failed", "worker_startup_recovery"),
        (Lost(Loss.SHUTDOWN), "failed", "worker_shutdown"),
    ],
    ids=str,
)
async def test_every_end_of_a_run_has_its_word(
    room: Newsroom,
    store: SqliteStore,
    clock: FakeClock,
    event: Event,
    word: str,
    reported: str | None,
) -> None:
    job_id = await begun(room, store)
    clock.advance(2 * HOUR)  # past the lease

    assert await settle(store, await job_of(store, job_id), event)

    row = await room.row(job_id)
    assert (row.status, row.error_message) == (word, reported)


async def test_a_run_of_another_delivery_is_none_of_s0_s(room: Newsroom) -> None:
    @room.app.job
    def leased() -> None: ...

    await leased.enqueue()
    await drain(room.app)

    assert await room.job_runs() == []


async def test_a_run_that_nobody_is_known_to_have_held_has_no_instance(
    room: Newsroom, store: SqliteStore, sql: Sql
) -> None:
    job_id = await begun(room, store)
    sql.write("DROP TRIGGER outlast_open_frozen", "UPDATE outlast_open_runs SET worker = 0")

    assert (await room.row(job_id)).worker_instance is None


async def test_a_brief_is_of_the_day_of_its_slot_and_is_published_once(room: Newsroom) -> None:
    for name in ("rss_ingestion", "event_clustering"):
        await room.run(name)
    new_year = datetime(2026, 1, 1, 6, tzinfo=UTC)

    await room.run("brief_publication", new_year)
    first = room.contents()
    await room.run("brief_publication", new_year + timedelta(minutes=1))

    assert [row[0] for row in first["briefs"]] == ["2026-01-01"]
    assert len(first["brief_items"]) == 2
    assert room.contents() == first

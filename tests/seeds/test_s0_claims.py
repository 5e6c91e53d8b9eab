"""S0's own claim, as S0 prints it, on the `job_runs` of the daily brief."""

import asyncio
import logging
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from daily_brief import job_runs
from daily_brief.rules import RULES, Rules, rules_of
from daily_brief.web import Web
from outlast import SlotTaken
from outlast.config import UnknownOwnerPolicy
from outlast.core.event import Lost
from outlast.core.schedule import SlotOutcome
from outlast.core.state import Loss
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import job_of, settle
from outlast.verify import verify

from .brief_web import call
from .newsroom import HOUR, Newsroom, article, write
from .test_s0_brief_runs import begun
from .timeouts import SOON

PAGE: Final = Path(__file__).parents[2] / "docs" / "requirements" / "s0.md"
[PRINTED] = re.findall(r"```sql\n(INSERT INTO job_runs.*?)\n```", PAGE.read_text("utf-8"))
CLAIM: Final = PRINTED.replace("...", "?").replace("now", "?")
SLOT: Final = START - HOUR
THRESHOLD: Final = RULES["rss_ingestion"].max_runtime
SECOND: Final = timedelta(seconds=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The news and Outlast's tables are in one file."""
    return tmp_path / "brief.db"


@pytest.fixture
async def room(tmp_path: Path, store: SqliteStore, clock: FakeClock) -> Newsroom:
    room = Newsroom(tmp_path, store, clock)
    room.give(one=[article("a")])
    await room.app.sync_schedules()
    await job_runs.install(room.app, room.desk)
    return room


def claim(
    room: Newsroom,
    slot: datetime = SLOT,
    *,
    name: str = "rss_ingestion",
    started: datetime | None = None,
    instance: str | None = "k2dailybrief-worker",
) -> None:
    at = started or room.clock.now()
    write(room.desk.path, CLAIM, name, f"{slot:%F %T}", f"{at:%F %T}", instance)


async def only(room: Newsroom) -> dict[str, Any]:
    [row] = await room.job_runs()
    return row


@pytest.mark.req("S0-5.l", "S0-6.c", "S0-11.f")
async def test_the_printed_insert_claims_a_slot_and_outlast_does_not_run_it(
    room: Newsroom, clock: FakeClock
) -> None:
    claim(room)

    row = await only(room)
    [slot] = await room.app.schedules.history("rss_ingestion")
    with pytest.raises(SlotTaken):
        await room.app.schedules.run("rss_ingestion", SLOT, any_time=True)
    assert (row["job_name"], row["status"]) == ("rss_ingestion", "running")
    assert row["scheduled_for"] == f"{SLOT:%Y-%m-%dT%H:%M:%S}.000000Z"
    assert (row["finished_at"], row["worker_instance"]) == (None, "k2dailybrief-worker")
    assert (slot.slot.at, slot.outcome, slot.job_id) == (SLOT, SlotOutcome.MANUAL, row["id"])
    assert (await verify(room.app.store)).violations == ()


@pytest.mark.req("S0-5.i", "S0-6.d")
@pytest.mark.parametrize("first", ["claimed", "run by a worker", "ended"])
async def test_a_second_claim_is_refused_in_the_words_of_the_unique_pair(
    room: Newsroom, first: str
) -> None:
    if first == "run by a worker":
        await room.run("rss_ingestion", SLOT)
    else:
        claim(room)
    if first == "ended":
        write(room.desk.path, "UPDATE job_runs SET status = 'success' WHERE status = 'running'")
    before = await room.job_runs()

    with pytest.raises(sqlite3.IntegrityError) as refused:
        claim(room, instance="another")

    words = "UNIQUE constraint failed: job_runs.job_name, job_runs.scheduled_for"
    assert str(refused.value) == words
    assert await room.job_runs() == before
    claim(room, name="event_clustering")


@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "INSERT OR IGNORE", "REPLACE"])
async def test_no_form_of_insert_takes_a_slot_twice(room: Newsroom, verb: str) -> None:
    claim(room)
    before = await room.job_runs()

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed: job_runs"):
        write(
            room.desk.path,
            CLAIM.replace("INSERT", verb, 1),
            *("rss_ingestion", f"{SLOT:%F %T}", f"{START:%F %T}", "another"),
        )

    assert await room.job_runs() == before


@pytest.mark.req("S0-10.b")
async def test_a_slot_that_was_missed_can_still_be_claimed_once(
    room: Newsroom, clock: FakeClock
) -> None:
    clock.advance("2d")
    await room.fire()
    missed = next(
        row
        for row in await room.app.schedules.history("rss_ingestion", limit=500)
        if row.outcome is SlotOutcome.MISSED
    )

    claim(room, missed.slot.at)

    [taken] = [
        row
        for row in await room.app.schedules.history("rss_ingestion", limit=500)
        if row.slot == missed.slot
    ]
    assert taken.outcome is SlotOutcome.MANUAL
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        claim(room, missed.slot.at)
    assert (await verify(room.app.store)).violations == ()


@pytest.mark.req("S0-6.f", "S0-6.g")
async def test_its_program_ends_it_by_update(room: Newsroom, clock: FakeClock) -> None:
    claim(room)
    claim(room, name="event_clustering")
    clock.advance("3s")
    end = f"{clock.now():%F %T}"
    ended = "UPDATE job_runs SET status = ?, finished_at = ?, error_message = ? WHERE job_name = ?"

    write(room.desk.path, ended, "success", end, None, "rss_ingestion")
    write(room.desk.path, ended, "failed", end, "it broke", "event_clustering")

    rows = {row["job_name"]: row for row in await room.job_runs()}
    assert rows["rss_ingestion"]["status"] == "success"
    assert rows["rss_ingestion"]["finished_at"] == f"{clock.now():%Y-%m-%dT%H:%M:%S}.000000Z"
    assert rows["event_clustering"]["status"] == "failed"
    assert rows["event_clustering"]["error_message"] == "it broke"


async def test_a_run_that_a_worker_holds_is_ended_by_that_worker_alone(
    room: Newsroom, store: SqliteStore
) -> None:
    job_id = await begun(room, store)

    with pytest.raises(sqlite3.IntegrityError, match="a worker of Outlast holds this run"):
        write(room.desk.path, "UPDATE job_runs SET status = 'success' WHERE status = 'running'")

    assert (await only(room))["status"] == "running"
    assert await settle(store, await job_of(store, job_id), Lost(Loss.OWNER_DEAD))


@pytest.mark.req("S0-6.b", "S0-7.b")
async def test_the_next_run_closes_what_is_past_the_threshold_and_runs(
    room: Newsroom, clock: FakeClock
) -> None:
    async with room.app.worker(instance_id="news-1"):  # its start has looked at what was there
        claim(room, SLOT, started=clock.now() - THRESHOLD - SECOND)
        claim(room, SLOT + SECOND, started=clock.now() - THRESHOLD + SECOND)
        claim(room, SLOT, name="event_clustering", started=clock.now() - 10 * THRESHOLD)
        handle = await room.claim("rss_ingestion", SLOT - HOUR)
        await handle.wait(SOON)
        done = await room.row(handle.id)

    rows = {(row["job_name"], row["scheduled_for"]): row for row in await room.job_runs()}
    stale = rows["rss_ingestion", f"{SLOT:%Y-%m-%dT%H:%M:%S}.000000Z"]
    young = rows["rss_ingestion", f"{SLOT + SECOND:%Y-%m-%dT%H:%M:%S}.000000Z"]
    other = rows["event_clustering", f"{SLOT:%Y-%m-%dT%H:%M:%S}.000000Z"]
    assert done.status == "success"
    assert (stale["status"], stale["error_message"]) == ("skipped_timeout", "timeout")
    assert stale["finished_at"] == f"{clock.now():%Y-%m-%dT%H:%M:%S}.000000Z"
    assert (young["status"], other["status"]) == ("running", "running")
    assert job_runs.recovered(room.desk) == {"timeout": 1}


@pytest.mark.req("S0-7.1.c")
@pytest.mark.parametrize(
    ("policy", "open_rows"),
    [("fail", set()), ("threshold", {"another", None}), ("leave", {"another", None, "old"})],
)
async def test_a_start_closes_the_rows_of_its_instance_and_treats_others_by_the_policy(
    room: Newsroom, clock: FakeClock, policy: UnknownOwnerPolicy, open_rows: set[str | None]
) -> None:
    long_ago = clock.now() - THRESHOLD - SECOND
    claim(room, SLOT, instance="own")
    claim(room, SLOT + SECOND, instance="another")
    claim(room, SLOT + 2 * SECOND, instance=None)
    claim(room, SLOT + 3 * SECOND, instance="old", started=long_ago)

    job_runs.recover(
        room.desk, "own", clock.now(), unknown=policy, threshold=lambda name: THRESHOLD
    )

    rows = {row["worker_instance"]: row for row in await room.job_runs()}
    own = rows["own"]
    assert (own["status"], own["error_message"]) == ("failed", "worker_startup_recovery")
    assert {name for name, row in rows.items() if row["status"] == "running"} == open_rows
    assert (
        rows["old"]["status"]
        == {
            "fail": "failed",
            "threshold": "skipped_timeout",
            "leave": "running",
        }[policy]
    )


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"name": "no_such_job"}, "no schedule has this job_name"),
        ({"slot": "soon"}, "scheduled_for is no time"),
        ({"slot": 1767607200}, "scheduled_for is no time"),
        ({"slot": None}, "scheduled_for is no time"),
        ({"started": ""}, "started_at is no time"),
        ({"status": "success"}, "claimed with status running"),
    ],
    ids=str,
)
async def test_a_row_that_cannot_be_is_refused_in_one_line_and_nothing_is_claimed(
    room: Newsroom, over: dict[str, Any], words: str
) -> None:
    row = {"name": "rss_ingestion", "slot": f"{SLOT:%F %T}", "started": f"{START:%F %T}", **over}
    statement = CLAIM.replace("'running'", "?")
    values = (row["name"], row["slot"], row["started"], row.get("status", "running"), "by-hand")

    with pytest.raises(sqlite3.IntegrityError, match=words):
        write(room.desk.path, statement, *values)

    assert await room.job_runs() == []
    assert await room.app.schedules.history("rss_ingestion") == []


async def test_times_with_an_offset_are_the_same_slot(room: Newsroom) -> None:
    local = SLOT.astimezone(UTC) + timedelta(hours=2)

    write(
        room.desk.path, CLAIM, "rss_ingestion", f"{local:%FT%T}+02:00", f"{START:%FT%T}Z", "by-hand"
    )

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        claim(room)


@pytest.mark.req("S0-7.c")
async def test_the_threshold_is_the_variable_of_that_name() -> None:
    assert rules_of({}) == RULES
    given = rules_of({"MAX_RUNTIME_THRESHOLD": "90s"})
    assert {rules.max_runtime for rules in given.values()} == {timedelta(seconds=90)}
    with pytest.raises(ValueError, match="MAX_RUNTIME_THRESHOLD is 'soon'"):
        rules_of({"MAX_RUNTIME_THRESHOLD": "soon"})


@pytest.mark.req("S0-11.a", "S0-11.b")
async def test_every_log_line_of_a_job_has_its_job_name(
    room: Newsroom, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("outlast.jobs")
    logger.addFilter(job_runs.add_job_name)
    try:
        with caplog.at_level(logging.INFO, logger="outlast.jobs"):
            await room.run("rss_ingestion", SLOT)
    finally:
        logger.removeFilter(job_runs.add_job_name)

    lines = [record for record in caplog.records if record.name == "outlast.jobs"]
    assert [line.facts["job_name"] for line in lines] == ["rss_ingestion"] * 2  # type: ignore[attr-defined]  # ours
    assert all(line.getMessage().endswith("job_name=rss_ingestion") for line in lines)


@pytest.mark.req("S0-7.1.f")
async def test_the_page_of_metrics_counts_what_was_recovered_by_reason(
    tmp_path: Path, room: Newsroom, clock: FakeClock
) -> None:
    claim(room, SLOT, instance="own")
    claim(room, SLOT + SECOND, instance="own")
    job_runs.recover(room.desk, "own", clock.now(), unknown="leave", threshold=lambda _: THRESHOLD)

    status, head, text = await asyncio.to_thread(call, Web(tmp_path), "GET", "/metrics")

    assert (status, head["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert 'recovered_total{reason="worker_startup_recovery"} 2' in text.splitlines()


@pytest.mark.req("S0-9.d", "S0-9.e")
def test_each_job_of_the_brief_sets_coalesce_and_misfire_grace_itself() -> None:
    with pytest.raises(TypeError, match="misfire_grace"):
        Rules(cron="0 * * * *", expected_max_runtime=SECOND, coalesce=True)  # type: ignore[call-arg]

    said = {name: (rules.coalesce, rules.misfire_grace) for name, rules in RULES.items()}
    assert said == {
        "rss_ingestion": (True, timedelta(seconds=300)),
        "event_clustering": (True, timedelta(seconds=300)),
        "retention_cleanup": (True, timedelta(hours=1)),
        "brief_publication": (True, timedelta(hours=6)),
    }


@pytest.mark.req("S0-9.d", "S0-9.e")
async def test_late_slots_of_the_brief_coalesce_within_the_grace_and_are_missed_beyond(
    room: Newsroom, clock: FakeClock
) -> None:
    for name in RULES:
        if name != "rss_ingestion":
            await room.app.schedules.pause(name)
    due = (await room.app.schedules.get("rss_ingestion")).next_slot
    assert due is not None
    clock.advance(due + timedelta(minutes=19) - clock.now())  # one slot 19 min late, one 4

    await room.fire()

    outcomes = [row.outcome for row in await room.app.schedules.history("rss_ingestion")]
    assert outcomes == [SlotOutcome.LATE, SlotOutcome.MISSED]

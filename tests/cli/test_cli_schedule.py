"""`outlast schedule`: the words and numbers people and scripts get."""

import asyncio
import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from outlast.cli.app_loader import load_app
from outlast.core.schedule import UNDECLARED
from outlast.scheduler.trigger import Trigger
from outlast.store.contract.schedules import SetSchedule

from .conftest import Cli

NIGHTLY = ["save", "nightly", "0 2 * * *", "-t", "add", "--params", '{"left": 1}', "--coalesce"]
SAVED = [*NIGHTLY, "--misfire-grace", "5m", "--timezone", "Europe/Berlin"]


def test_a_schedule_is_saved_listed_paused_and_removed(cli: Cli) -> None:
    saved = cli.out("schedule", *SAVED)
    [listed] = cli.documents("schedule", "list")
    cli.out("schedule", "pause", "nightly")
    paused = cli.out("schedule", "list")
    cli.out("schedule", "resume", "nightly")
    running = cli.out("schedule", "list")
    cli.out("schedule", "remove", "nightly")

    assert listed["plan"]["rule"]["timezone"] == "Europe/Berlin"
    assert listed["plan"]["misfire_grace"] == 300
    assert saved.startswith("nightly: 0 2 * * * (Europe/Berlin) runs add; next 20")
    assert "paused" in paused
    assert "on" in running.splitlines()[-1]
    assert cli.documents("schedule", "list") == []


def test_a_label_is_free_text_and_has_a_column_if_a_schedule_has_one(cli: Cli) -> None:
    cli.out("schedule", *SAVED)
    without = cli.out("schedule", "list")
    cli.out("schedule", "edit", "nightly", "--label", "for Ada\x1b[2J & Bo")
    [header, row] = cli.out("schedule", "list").splitlines()

    assert "LABEL" not in without
    assert header.split()[-1] == "LABEL"
    assert row.rstrip().endswith("for Ada\\x1b[2J & Bo")
    assert cli.documents("schedule", "list")[0]["plan"]["label"] == "for Ada\x1b[2J & Bo"


@pytest.mark.parametrize("left_out", ["--coalesce", "--misfire-grace"])
def test_what_becomes_of_late_slots_must_be_said(cli: Cli, left_out: str) -> None:
    words = {"--coalesce": [*NIGHTLY[:-1], "--misfire-grace", "5m"], "--misfire-grace": NIGHTLY}

    refused = cli("schedule", *words[left_out])

    assert refused.exit_code == 2
    assert left_out in refused.stderr


def test_the_next_slots_are_shown_with_the_changes_of_the_clock(cli: Cli) -> None:
    cli.out("schedule", *SAVED)

    shown = cli.out("schedule", "next", "nightly", "-n", "400")
    tried = cli.documents(
        "schedule", "test", "30 2 * * *", "-z", "Europe/Berlin", "--gap", "skip", "-n", "400"
    )

    assert "the clock goes forward" in shown
    assert "+0100" in shown
    assert "+0200" in shown
    assert [each["runs"] for each in tried].count(False) in (1, 2)


def test_an_edit_can_be_looked_at_before_it_is_made(cli: Cli) -> None:
    cli.out("schedule", *SAVED)

    looked = cli.out("schedule", "edit", "nightly", "--cron", "0 3 * * *", "--dry-run")
    [before] = cli.documents("schedule", "list")
    cli.out("schedule", "edit", "nightly", "--cron", "0 3 * * *", "--name", "nights")
    [after] = cli.documents("schedule", "list")

    marks = {line[0] for line in looked.splitlines()}
    assert marks == {"+", "-"}
    assert before["plan"]["rule"]["cron"] == "0 2 * * *"
    assert (after["plan"]["rule"]["cron"], after["plan"]["name"]) == ("0 3 * * *", "nights")
    assert after["id"] == before["id"]


def test_a_manual_run_says_which_slot_it_takes_and_takes_it_once(cli: Cli) -> None:
    cli.out("schedule", *SAVED)
    slot = "2026-01-05T02:00+01:00"

    unsaid = cli("schedule", "run", "nightly")
    job_id = cli.out("schedule", "run", "nightly", "--slot", slot).strip()
    again = cli("schedule", "run", "nightly", "--slot", slot)
    [row] = cli.documents("schedule", "history", "nightly")

    assert unsaid.exit_code == 2
    assert "exactly one slot" in unsaid.stderr
    assert again.exit_code == 4
    assert "by job" in again.stderr
    assert (row["job_id"], row["outcome"]) == (job_id, "manual")
    assert "for the slot 2026-01-05 01:00:00Z" in cli.out("explain", job_id)


def test_missed_slots_are_seen_and_one_can_be_run_after_all(cli: Cli) -> None:
    cli.out("schedule", "save", "often", "--every", "1h", "-t", "add", "--params", '{"left": 1}',
            "--coalesce", "--misfire-grace", "5m")  # fmt: skip
    asyncio.run(_outage())

    shown = cli.out("schedule", "history", "often")
    [caught] = [
        r for r in cli.documents("schedule", "history", "often") if r["outcome"] == "missed"
    ][:1]
    cli.out("schedule", "run", "often", "--missed")
    filled = cli.documents("schedule", "backfill", "often", "--since", _ago(6), "--until", _ago(0),
                         "--dry-run")  # fmt: skip

    assert "missed" in shown
    assert caught["job_id"] is None
    assert {each["runs"] for each in filled} == {True, False}
    assert json.dumps(filled)


WRONG = [
    ("next nothing", 3, "no schedule 'nothing'"),
    ("next nightly -n 5000", 2, "1000"),
    ("history nothing", 3, "near it: nightly"),
    ("pause nothing", 3, "no schedule"),
    ("resume nothing", 3, "no schedule"),
    ("remove nothing", 3, "no schedule"),
    ("run nothing --next", 3, "no schedule"),
    ("run nightly --slot soon", 2, "not a time"),
    ("run nightly --slot 2026-01-05T02:00", 2, "time zone"),
    (
        "run nightly --slot 2026-01-05T03:00+01:00",
        2,
        "the nearest are 2026-01-05T01:00:00Z and 2026-01-06T01:00:00Z: `outlast schedule run",
    ),
    ("run nightly --missed", 4, "nightly has no slot that was missed"),
    ("run nightly --next --missed", 2, "exactly one slot"),
    ("test '* * * * * *'", 2, "6 fields"),
    ("test '61 * * * *'", 2, "its minute is '61'; use 0-59"),
    ("test '0 0 30 2 *'", 2, "its day-of-month is '30'"),
    ("test '0 0 * * *' -z Mars/Olympus", 2, "timezone is 'Mars/Olympus'"),
    ("test '0 0 * * *' --every 1h", 2, "not both"),
    ("test", 2, "either a cron expression"),
    ("edit nightly --every 10ms", 2, "1s is the minimum"),
    ("save x @daily -t add --params {} --coalesce --misfire-grace 5m", 2, "left"),
    ("save x @daily -t ad --coalesce --misfire-grace 5m", 3, "did you mean add"),
    ("save x @daily --coalesce --misfire-grace 5m", 2, "no job to run was given"),
    (
        "save x @daily -t add --params '{\"left\": 1}' --coalesce --misfire-grace 0s",
        2,
        "misfire_grace",
    ),
    (
        "save x @daily -t add --params '{\"left\": 1}' --coalesce --misfire-grace soon",
        2,
        "'soon' is not a duration; write 30s",
    ),
    ("backfill nothing --since 2026-01-01T00:00Z --until 2026-01-02T00:00Z", 3, "no schedule"),
    ("backfill nightly --since 2026-01-02T00:00Z --until 2026-01-01T00:00Z", 2, "swap them"),
    ("backfill nightly --since 1970-01-01T00:00Z --until 2026-01-01T00:00Z", 2, "in parts"),
    ("backfill nightly --since 2026-01-01T00:00Z --until 2999-01-01T00:00Z", 2, "yet to come"),
]


def test_what_is_not_there_or_not_right_is_told_in_one_line(cli: Cli) -> None:
    cli.out("schedule", *SAVED)

    for words, code, says in WRONG:
        reported = cli("schedule", *shlex.split(words))
        assert reported.exit_code == code, (words, reported.output)
        assert says in reported.stderr.splitlines()[-1], words
        assert reported.stdout == ""


DECLARED = """
app.schedule("often", every="15m", job_type="add", params={"left": 1}, coalesce=True,
             misfire_grace="5m")
"""


def _declare(cli: Cli, text: str = DECLARED) -> None:
    with (cli.folder / "tasks.py").open("a") as module:
        module.write(text)


def test_a_declared_schedule_is_shown_before_the_first_worker_ran(cli: Cli) -> None:
    _declare(cli)

    listed = cli.out("schedule", "list")
    [record] = cli.documents("schedule", "list")
    upcoming = cli.out("schedule", "next", "often", "-n", "2")
    unknown = cli("schedule", "next", "oftn")

    assert "often" in listed
    assert "declared, not stored yet" in listed
    assert (record["id"], record["plan"]["name"]) == (None, "often")
    assert len(upcoming.splitlines()) == 3
    assert (unknown.exit_code, "did you mean often?" in unknown.stderr) == (3, True)
    assert not (cli.folder / "jobs.db").exists(), "looking creates nothing"
    cli.out("db", "migrate")
    assert "declared, not stored yet" in cli.out("schedule", "list")
    assert cli.out("schedule", "next", "often", "-n", "2") == upcoming


def test_doctor_names_a_declared_schedule_that_cannot_be_written(cli: Cli) -> None:
    _declare(
        cli,
        'app.schedule("weekly", "@weekly", template="gone", coalesce=True, misfire_grace="5m")',
    )
    cli.out("db", "migrate")

    found = cli("doctor")

    assert found.exit_code == 1
    assert "schedule \"weekly\" cannot be written: no template 'gone'" in found.stdout


def test_a_bad_expression_is_reported_with_its_schedule_and_the_line_of_the_user(cli: Cli) -> None:
    _declare(cli, DECLARED.replace('every="15m"', 'cron="0 25 * * *"'))
    line = len((cli.folder / "tasks.py").read_text().splitlines()) - 1

    refused = cli("schedule", "list")

    said = refused.stderr.splitlines()[-1]
    assert "InvalidSchedule: schedule often: the cron expression '0 25 * * *'" in said
    assert "its hour is '25'; use 0-23" in said
    assert said.endswith(f"(tasks.py, line {line})")


def test_a_rule_is_tried_from_any_time(cli: Cli) -> None:
    tried = cli.out("schedule", "test", "0 2 * * *", "--after", "2026-03-28T12:00Z", "-n", "1")

    assert "2026-03-29 02:00:00Z" in tried


def test_an_undeclared_schedule_is_shown_by_list_and_doctor(cli: Cli) -> None:
    cli.out("schedule", *SAVED)
    asyncio.run(_undeclare())

    [row] = cli.out("schedule", "list").splitlines()[1:]
    doctor = cli.out("doctor")

    assert "undeclared" in row
    assert 'schedule "nightly" is disabled: no worker of app shop declares it any more' in doctor
    assert "`outlast schedule resume nightly`" in doctor
    cli.out("schedule", "resume", "nightly")
    assert "undeclared" not in cli.out("schedule", "list")


async def _undeclare() -> None:
    async with load_app("tasks:app") as app:
        there = await app.schedules.get("nightly")
        plan = replace(there.plan, enabled=False, declared_by="shop", disabled_reason=UNDECLARED)
        value = SetSchedule(plan=plan, next_slot=None, next_trigger_at=None)
        await app.store.set_schedule(there.id, expected=there.version, value=value)


def _ago(hours: int) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()


async def _outage() -> None:
    """Set the next slot to four and a half hours ago."""
    app = load_app("tasks:app")
    async with app:
        there = await app.schedules.get("often")
        now = await app.store.now()
        await app.schedules.edit("often", every="1h", start=now - timedelta(hours=4, minutes=30))
        there = await app.schedules.get("often")
        first = now - timedelta(hours=4, minutes=30)
        value = SetSchedule(plan=there.plan, next_slot=first, next_trigger_at=first)
        await app.store.set_schedule(there.id, expected=there.version, value=value)
        await Trigger(app.store, app._ids.job).run_once()

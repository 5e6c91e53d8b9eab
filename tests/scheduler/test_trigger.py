"""Outcomes of slots: on time, late, over the grace, coalesced, and while the job runs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from trigger_world import (
    COALESCED,
    HOUR,
    LATE,
    MINUTE,
    MISSED,
    OVERLAP,
    RAN,
    finish,
    history,
    hourly,
    take,
)

from outlast import Outlast
from outlast.core.ids import Ids
from outlast.core.schedule import SlotOutcome, planned_at
from outlast.core.state import State
from outlast.scheduler.trigger import Trigger
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import START, FakeClock


async def test_a_slot_is_fired_when_its_time_has_come_and_not_before(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(app)
    clock.advance(HOUR - timedelta(microseconds=1))
    early = await trigger.run_once()
    clock.advance(timedelta(microseconds=1))

    done = await trigger.run_once()

    assert early.outcomes == {}
    assert early.next_trigger_at == START + HOUR
    assert done.outcomes == {RAN: 1}
    [job] = await store.find(Filter(), limit=10)
    schedule = await app.schedules.get("s")
    assert (job.slot_at, job.schedule_id) == (START + HOUR, schedule.id)
    assert job.start_deadline == START + HOUR + 5 * MINUTE
    assert schedule.last_triggered_at == START + HOUR
    assert schedule.next_trigger_at == START + 2 * HOUR
    assert (await trigger.run_once()).outcomes == {}


async def test_the_slot_is_the_time_that_was_planned_however_late_the_wake_up(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(app)
    clock.advance(HOUR + timedelta(seconds=7.3))

    assert (await trigger.run_once()).outcomes == {LATE: 1}

    [row] = await app.schedules.history("s")
    assert (row.slot.at, row.planned) == (START + HOUR, START + HOUR)
    assert row.actual == clock.now()


@pytest.mark.parametrize(("seconds", "outcome"), [(299, LATE), (300, LATE), (301, MISSED)])
async def test_over_the_grace_a_slot_is_missed(
    app: Outlast, clock: FakeClock, trigger: Trigger, seconds: int, outcome: SlotOutcome
) -> None:
    await hourly(app)
    clock.advance(HOUR + timedelta(seconds=seconds))

    assert (await trigger.run_once()).outcomes == {outcome: 1}


@pytest.mark.parametrize("job_type", ["report", "brief"])
async def test_with_coalesce_one_run_stands_for_many(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger, job_type: str
) -> None:
    await hourly(app, job_type, misfire_grace="10h")
    clock.advance(5 * HOUR)

    assert (await trigger.run_once()).outcomes == {COALESCED: 4, RAN: 1}

    assert await history(app) == [
        *((60 * n, COALESCED) for n in range(1, 5)),
        (300, RAN),
    ]
    [job] = await take(store)
    [stored] = await store.get([job.id])
    assert stored is not None
    assert stored.slot_at == START + 5 * HOUR


async def test_without_coalesce_each_slot_within_the_grace_runs_and_the_rest_is_missed(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(app, coalesce=False, misfire_grace="2h")
    clock.advance(5 * HOUR + MINUTE)

    await trigger.run_once()

    assert await history(app) == [
        (60, MISSED),
        (120, MISSED),
        (180, MISSED),
        (240, LATE),
        (300, LATE),
    ]
    assert len(await take(store)) == 2


async def test_an_outage_of_many_slots_is_no_stampede(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await app.schedules.save("s", "* * * * *", "report", coalesce=True, misfire_grace="5m")
    clock.advance(timedelta(hours=10))

    done = await trigger.run_once()

    assert done.outcomes == {MISSED: 594, COALESCED: 5, RAN: 1}
    assert len(await take(store)) == 1


async def test_a_slot_that_comes_while_the_once_job_runs_is_an_overlap(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger, ids: Ids
) -> None:
    await hourly(app, "brief")
    clock.advance(HOUR)
    await trigger.run_once()
    claims = await take(store, lease=10 * HOUR)
    clock.advance(HOUR)
    during = (await trigger.run_once()).outcomes
    await finish(store, claims, ids)
    clock.advance(HOUR)

    after = (await trigger.run_once()).outcomes

    assert (during, after) == ({OVERLAP: 1}, {RAN: 1})
    assert await history(app) == [(60, RAN), (120, OVERLAP), (180, RAN)]


async def test_a_run_whose_lease_is_over_is_closed_first_and_the_slot_runs(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(app, "brief")
    clock.advance(HOUR)
    await trigger.run_once()
    [stale] = await take(store, lease=MINUTE)
    clock.advance(HOUR)

    done = await trigger.run_once()

    [old] = await store.get([stale.id])
    assert old is not None
    assert (old.state, old.reason) == (State.FAILED, "lease_expired")
    assert done.outcomes == {RAN: 1}
    [new] = await take(store)
    assert new.id != stale.id


async def test_no_more_than_max_instances_are_unfinished(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger, ids: Ids
) -> None:
    await hourly(app, max_instances=2, misfire_grace="5h")
    for _ in range(3):
        clock.advance(HOUR)
        await trigger.run_once()
    [first, *_] = await take(store)
    await finish(store, [first], ids)
    clock.advance(HOUR)

    await trigger.run_once()

    assert await history(app) == [(60, RAN), (120, RAN), (180, OVERLAP), (240, RAN)]


async def test_of_slots_caught_up_with_those_over_max_instances_are_overlaps(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(app, coalesce=False, misfire_grace="10h", max_instances=2)
    clock.advance(4 * HOUR)

    await trigger.run_once()

    assert [outcome for _, outcome in await history(app)] == [LATE, LATE, OVERLAP, OVERLAP]


async def test_a_clock_set_back_fires_no_slot_twice(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(app)
    clock.advance(HOUR)
    await trigger.run_once()
    clock.set_back(HOUR)
    await app.schedules.edit("s", cron="0 */1 * * *")  # which works out the next slot from now
    for _ in range(4):
        clock.advance(30 * MINUTE)
        await trigger.run_once()

    rows = await history(app)
    assert rows == [(60, RAN), (120, RAN)]
    assert len(await store.find(Filter(), limit=10)) == 2


async def test_a_paused_schedule_triggers_nothing_and_goes_on_with_the_next(
    app: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(app)
    await app.schedules.pause("s")
    clock.advance(3 * HOUR + MINUTE)
    while_paused = (await trigger.run_once()).outcomes
    resumed = await app.schedules.resume("s")
    clock.advance(HOUR - MINUTE)

    assert while_paused == {}
    assert resumed.next_trigger_at == START + 4 * HOUR
    assert (await trigger.run_once()).outcomes == {RAN: 1}
    assert await history(app) == [(240, RAN)]


async def test_jitter_puts_triggers_off_by_the_same_for_everybody(
    app: Outlast, clock: FakeClock, trigger: Trigger, store: Store
) -> None:
    saved = await app.schedules.save(
        "s", "0 * * * *", "report", coalesce=True, misfire_grace="5m", jitter="10m"
    )
    assert saved.next_trigger_at is not None
    put_off = saved.next_trigger_at - START - HOUR
    clock.set_wall(saved.next_trigger_at - timedelta(microseconds=1))
    early = (await trigger.run_once()).outcomes
    clock.set_wall(saved.next_trigger_at)

    assert timedelta(0) < put_off < 10 * MINUTE
    assert early == {}
    assert (await trigger.run_once()).outcomes == {RAN: 1}
    [row] = await app.schedules.history("s")
    assert (row.slot.at, row.planned) == (START + HOUR, START + HOUR + put_off)
    [job] = await store.find(Filter(), limit=1)
    assert job.start_deadline == row.planned + 5 * MINUTE


async def test_of_several_due_slots_one_whose_jitter_is_not_over_waits(
    app: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    """A trigger that catches up leaves the latest slot until its planned time."""
    jitter = timedelta(minutes=50)
    saved = await app.schedules.save(
        "s", "0 * * * *", "report", coalesce=False, misfire_grace="1d", jitter="50m"
    )
    planned = [planned_at(saved.id, jitter, START + hour * HOUR) for hour in range(1, 40)]
    last = next(n for n in range(2, 39) if planned[n] - (START + (n + 1) * HOUR) > MINUTE)
    clock.set_wall(planned[last] - timedelta(microseconds=1))

    caught_up = (await trigger.run_once()).outcomes
    clock.set_wall(planned[last])
    on_time = (await trigger.run_once()).outcomes

    assert sum(caught_up.values()) == last
    assert on_time == {RAN: 1}
    rows = await app.schedules.history("s", limit=100)
    assert [row.planned for row in rows[::-1]] == planned[: last + 1]


async def test_a_schedule_ends_with_its_last_slot(
    app: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    await app.schedules.save(
        "s", None, "report", every="1h", end=START + 2 * HOUR, coalesce=True, misfire_grace="5m"
    )
    for _ in range(4):
        clock.advance(HOUR)
        await trigger.run_once()

    assert await history(app) == [(60, RAN), (120, RAN)]
    assert (await app.schedules.get("s")).next_trigger_at is None


async def test_berlin_fires_at_seven_in_summer_and_at_eight_in_winter(
    app: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    winter = await app.schedules.save(
        "s", "0 9 * * *", "report", timezone="Europe/Berlin", coalesce=True, misfire_grace="5m"
    )
    clock.set_wall(datetime(2026, 7, 1, tzinfo=UTC))
    summer = await app.schedules.edit("s", cron="0 9 * * *", start=clock.now())

    assert winter.next_trigger_at == datetime(2026, 1, 6, 8, tzinfo=UTC)
    assert summer.next_trigger_at == datetime(2026, 7, 1, 7, tzinfo=UTC)


BERLIN, HOWE = "Europe/Berlin", "Australia/Lord_Howe"


TABLE = [
    ("2026-03-28T02:00", BERLIN, "30 2 * * *", {}, ["2026-03-29T01:00", "2026-03-30T00:30"]),
    ("2026-03-28T02:00", BERLIN, "30 2 * * *", {"gap": "skip"}, ["2026-03-30T00:30"]),
    ("2026-10-24T23:45", BERLIN, "*/30 * * * *", {},
     ["2026-10-25T00:00", "2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30"]),
    ("2026-10-24T12:00", BERLIN, "30 2 * * *", {"fold": "both"},
     ["2026-10-25T00:30", "2026-10-25T01:30"]),
    ("2026-10-03T00:00", HOWE, "15 2 * * *", {}, ["2026-10-03T15:30", "2026-10-04T15:15"]),
    ("2026-04-04T14:25", HOWE, "*/15 * * * *", {},
     ["2026-04-04T14:30", "2026-04-04T14:45", "2026-04-04T15:00", "2026-04-04T15:15"]),
    ("2028-02-28T12:00", "UTC", "59 23 L * *", {}, ["2028-02-29T23:59"]),
    ("2028-02-28T12:00", "UTC", "0 0 29 2 *", {}, ["2028-02-29T00:00"]),
    ("2038-01-19T03:13", "UTC", "*/5 * * * *", {}, ["2038-01-19T03:15", "2038-01-19T03:20"]),
]  # fmt: skip


@pytest.mark.parametrize(("since", "zone", "cron", "over", "expected"), TABLE)
async def test_slots_of_the_table_are_fired_at_their_moment_and_no_others(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger,
    since: str, zone: str, cron: str, over: dict[str, Any], expected: list[str],
) -> None:  # fmt: skip
    clock.set_wall(_utc(since))
    given = {"timezone": zone, "coalesce": False, "misfire_grace": "1m", **over}
    schedule = await app.schedules.save("s", cron, "report", **given)

    for _ in expected:
        assert schedule.next_trigger_at is not None
        clock.set_wall(schedule.next_trigger_at - timedelta(microseconds=1))
        assert (await trigger.run_once()).outcomes == {}
        clock.set_wall(schedule.next_trigger_at)
        await trigger.run_once()
        schedule = await app.schedules.get("s")

    rows = (await app.schedules.history("s"))[::-1]
    assert [row.slot.at for row in rows] == [_utc(at) for at in expected]
    assert [row.actual for row in rows] == [_utc(at) for at in expected]
    jobs = (await store.find(Filter(), limit=99))[::-1]
    assert [job.slot_at for job in jobs] == [_utc(at) for at in expected]


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


async def test_a_template_is_used_as_it_stands_when_the_slot_comes(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await app.templates.save("hello", "greet", params={"name": "Ada", "times": 1})
    await app.schedules.save(
        "s", "0 * * * *", template="hello", params={"times": 2}, coalesce=True, misfire_grace="5m"
    )
    clock.advance(HOUR)
    await trigger.run_once()
    changed = await app.templates.save("hello", "greet", params={"name": "Bob"}, queue="mail")
    clock.advance(HOUR)
    await trigger.run_once()

    second, first = await store.find(Filter(), limit=10)
    assert (first.params, first.queue) == ('{"name":"Ada","times":2}', "default")
    assert (second.params, second.queue) == ('{"name":"Bob","times":2}', "mail")
    assert (second.template_id, second.template_at) == (changed.id, changed.updated_at)


async def test_a_slot_whose_template_is_gone_is_missed_and_says_why(
    app: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    await app.templates.save("hello", "greet", params={"name": "Ada"})
    await app.schedules.save("s", "0 * * * *", template="hello", coalesce=True, misfire_grace="5m")
    await app.templates.remove("hello")
    clock.advance(HOUR)

    await trigger.run_once()

    [row] = await app.schedules.history("s")
    assert row.outcome is MISSED
    assert "template hello is gone" in (row.reason or "")


async def test_more_due_than_can_be_looked_at_are_left_out_and_said_so(
    app: Outlast, clock: FakeClock, trigger: Trigger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("outlast.scheduler.cron", "outlast.scheduler.trigger"):
        monkeypatch.setattr(f"{module}.MOST_DUE", 10)
    await app.schedules.save("s", "* * * * *", "report", coalesce=True, misfire_grace="5m")
    clock.advance(HOUR)

    await trigger.run_once()

    rows = await app.schedules.history("s")
    assert len(rows) == 10
    assert (rows[0].slot.at, rows[-1].slot.at) == (START + HOUR, START + MINUTE)
    assert rows[-1].reason == f"skipped: slots before {rows[-2].slot.at}"
    assert (await app.schedules.get("s")).next_slot == START + HOUR + MINUTE

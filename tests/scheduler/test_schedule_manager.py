"""Schedules as an app uses them: declared, edited, run by hand, filled in, looked at."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from outlast import InvalidSchedule, Outlast, ScheduleNotFound, SlotTaken, TemplateNotFound
from outlast.core.ids import Ids
from outlast.core.schedule import SlotOutcome
from outlast.core.state import State
from outlast.errors import InvalidArgument, InvalidParams, StoreBusy, TypeNotFound
from outlast.scheduler.loop import TriggerLoop, sync_declared
from outlast.scheduler.trigger import Trigger
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.notifications import Topic
from outlast.testing.clock import START, FakeClock

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
SET = {"coalesce": True, "misfire_grace": "5m"}


@asynccontextmanager
async def work(store: Store) -> AsyncIterator[asyncio.Event]:
    """An event that is set when a commit has brought work."""
    brought, loop = asyncio.Event(), asyncio.get_running_loop()
    leave = store.subscribe(lambda _: loop.call_soon_threadsafe(brought.set), topics=[Topic.WORK])
    yield brought
    leave()


async def missed(app: Outlast, clock: FakeClock, trigger: Trigger, kind: str = "report") -> None:
    """Three slots missed, and the fourth on time."""
    await app.schedules.save("s", "0 * * * *", kind, **SET)
    clock.advance(4 * HOUR)
    await trigger.run_once()


async def outcomes(app: Outlast) -> list[SlotOutcome]:
    return [row.outcome for row in (await app.schedules.history("s"))[::-1]]


async def test_a_declared_schedule_is_brought_in_once_and_stays_as_it_is_edited(
    app: Outlast,
) -> None:
    app.schedule("s", "0 * * * *", "report", **SET)
    await app.sync_schedules()
    declared = await app.schedules.get("s")
    edited = await app.schedules.edit("s", cron="30 * * * *")

    await app.sync_schedules()

    assert await app.schedules.get("s") == edited
    assert declared.plan.rule.cron == "0 * * * *"


async def test_another_declaration_replaces_it_but_not_its_pause(
    app: Outlast, store: Store
) -> None:
    app.schedule("s", "0 * * * *", "report", **SET)
    await app.sync_schedules()
    paused = await app.schedules.pause("s")
    newer = Outlast(store)
    newer.job(name="report")(_nothing)
    newer.schedule("s", "15 * * * *", "report", **SET)

    await newer.sync_schedules()

    now = await app.schedules.get("s")
    assert (now.id, now.plan.rule.cron, now.plan.enabled) == (paused.id, "15 * * * *", False)


async def test_an_invalid_declaration_keeps_no_other_from_being_written(app: Outlast) -> None:
    app.schedule("a", "0 * * * *", "report", **SET)
    app.schedule("b", "0 * * * *", template="gone", **SET)
    app.schedule("c", "0 * * * *", "report", **SET)

    with pytest.raises(InvalidSchedule, match="schedule b: no template 'gone'"):
        await app.sync_schedules()

    assert [each.name for each in await app.schedules.list()] == ["a", "c"]


async def test_a_rule_is_tried_by_its_expression_alone(app: Outlast) -> None:
    [first] = await app.schedules.test("0 2 * * *", after=START, limit=1)

    assert (await app.schedules.test(cron="0 2 * * *", after=START, limit=1)) == [first]


async def test_declaring_is_checked_at_once(app: Outlast) -> None:
    app.schedule("s", "0 * * * *", "report", **SET)

    with pytest.raises(InvalidSchedule, match=r"declared twice, at .*, line \d+ and at"):
        app.schedule("s", "0 * * * *", "report", **SET)
    with pytest.raises(InvalidSchedule, match="cron"):
        app.schedule("t", "x", "report", **SET)
    with pytest.raises(InvalidArgument, match="name of a schedule"):
        app.schedule("two words", "0 * * * *", "report", **SET)


@pytest.mark.parametrize(
    ("wishes", "error"),
    [
        ({}, InvalidSchedule),
        ({"job_type": "report", "template": "t"}, InvalidSchedule),
        ({"job_type": "nothing"}, TypeNotFound),
        ({"template": "nothing"}, TemplateNotFound),
        ({"job_type": "greet"}, InvalidParams),
        ({"job_type": "report", "params": {"x": 1}}, InvalidParams),
        ({"job_type": "report", "max_instances": 0}, InvalidSchedule),
        ({"job_type": "report", "jitter": "soon"}, InvalidSchedule),
        ({"job_type": "report", "misfire_grace": "0s"}, InvalidSchedule),
        ({"job_type": "report", "coalesce": 1}, InvalidSchedule),
        ({"job_type": "report", "job_name": "two words"}, InvalidArgument),
        ({"job_type": 7}, InvalidArgument),
        ({"job_type": "report", "label": "x" * 513}, InvalidSchedule),
        ({"job_type": "report", "label": "a\0b"}, InvalidSchedule),
    ],
    ids=str,
)
async def test_what_cannot_be_is_refused_and_nothing_is_stored(
    app: Outlast, wishes: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await app.schedules.save("s", "0 * * * *", **{**SET, **wishes})

    assert await app.schedules.list() == []


async def test_a_name_is_given_once(app: Outlast) -> None:
    await app.schedules.save("one", "0 * * * *", "report", **SET)
    await app.schedules.save("two", "0 * * * *", "report", **SET)

    with pytest.raises(InvalidSchedule, match="another schedule"):
        await app.schedules.edit("two", new_name="one")
    with pytest.raises(ScheduleNotFound, match="near it: one"):
        await app.schedules.get("onne")


async def test_the_latest_missed_slot_can_be_run_by_hand_once(
    app: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    await missed(app, clock, trigger)

    first = await app.schedules.run("s", "missed")
    second = await app.schedules.run("s", "missed")

    jobs = [await app.get(each.id) for each in (first, second)]
    assert [job.slot_at for job in jobs] == [START + 3 * HOUR, START + 2 * HOUR]
    assert [job.state for job in jobs] == [State.QUEUED, State.QUEUED]
    assert jobs[0].start_deadline == clock.now() + 5 * MINUTE
    assert await outcomes(app) == [
        SlotOutcome.MISSED,
        SlotOutcome.MANUAL,
        SlotOutcome.MANUAL,
        SlotOutcome.RAN,
    ]
    await app.schedules.run("s", "missed")
    with pytest.raises(SlotTaken, match="no slot"):
        await app.schedules.run("s", "missed")


async def test_the_next_slot_run_by_hand_is_not_triggered_again(
    app: Outlast,
    clock: FakeClock,
    trigger: Trigger,
    store: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="outlast.scheduler")
    await app.schedules.save("s", "0 * * * *", "report", **SET)

    job = await app.get((await app.schedules.run("s", "next")).id)
    clock.advance(HOUR)
    await trigger.run_once()

    assert (job.slot_at, job.state) == (START + HOUR, State.QUEUED)
    assert await outcomes(app) == [SlotOutcome.MANUAL]
    assert len(await store.find(Filter(), limit=9)) == 1
    assert (await app.schedules.get("s")).next_slot == START + 2 * HOUR
    [skip] = [record.facts for record in caplog.records]  # type: ignore[attr-defined]  # ours
    assert skip == {
        "event": "slot_taken",
        "schedule": "s",
        "slot": (START + HOUR).isoformat(),
    }


async def test_a_run_by_hand_holds_to_max_instances(app: Outlast, clock: FakeClock) -> None:
    await app.schedules.save("s", "0 * * * *", "report", max_instances=1, **SET)
    await app.schedules.run("s", START)

    with pytest.raises(SlotTaken, match="max_instances"):
        await app.schedules.run("s", START + HOUR)

    assert len(await app.schedules.history("s")) == 1


async def test_only_an_occurrence_can_be_run_by_hand_and_the_nearest_ones_are_named(
    app: Outlast,
) -> None:
    await app.schedules.save("s", "0 2 * * *", "report", **SET)
    asked = START.replace(hour=3, minute=0, second=0, microsecond=0)
    day = f"{asked:%F}T02:00:00Z"

    with pytest.raises(InvalidSchedule) as refused:
        await app.schedules.run("s", asked)

    assert f"no slot at {asked:%F}T03:00:00Z; the nearest are {day} and " in str(refused.value)
    assert f"`outlast schedule run s --slot {day}`" in str(refused.value)
    await app.schedules.run("s", datetime.fromisoformat(day))


async def test_a_run_at_any_time_has_a_slot_of_its_own(app: Outlast) -> None:
    await app.schedules.save("s", "0 2 * * *", "report", **SET)
    asked = START.replace(hour=3, minute=0, second=0, microsecond=0)

    await app.schedules.run("s", asked, any_time=True)

    assert [row.slot.at for row in await app.schedules.history("s")] == [asked]
    with pytest.raises(SlotTaken):
        await app.schedules.run("s", asked, any_time=True)


async def test_a_missed_slot_of_an_earlier_rule_can_still_be_run_by_hand(
    app: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    await missed(app, clock, trigger)
    first = (await app.schedules.history("s"))[-1].slot.at
    await app.schedules.edit("s", cron="30 * * * *")

    handle = await app.schedules.run("s", first)

    assert (await app.get(handle.id)).slot_at == first


async def test_a_backfill_runs_unclaimed_slots_and_has_a_dry_run(
    app: Outlast, clock: FakeClock, trigger: Trigger, store: Store
) -> None:
    await missed(app, clock, trigger)
    span = START - 2 * HOUR, clock.now()

    looked = await app.schedules.backfill("s", *span, dry_run=True)
    before = len(await store.find(Filter(), limit=99))
    filled = await app.schedules.backfill("s", *span)
    again = await app.schedules.backfill("s", *span)

    assert [each.was for each in looked] == [None] * 3 + [SlotOutcome.MISSED] * 3 + [
        SlotOutcome.RAN
    ]
    assert [each.runs for each in looked] == [True] * 6 + [False]
    assert before == 1
    assert [each.runs for each in filled] == [True] * 6 + [False]
    assert not any(each.runs for each in again)
    assert await outcomes(app) == [SlotOutcome.MANUAL] * 6 + [SlotOutcome.RAN]
    assert len(await store.find(Filter(), limit=99)) == 7


async def test_a_backfill_is_bounded_and_of_the_past(app: Outlast, clock: FakeClock) -> None:
    await app.schedules.save("s", "* * * * *", "report", **SET)

    with pytest.raises(InvalidSchedule, match="in parts"):
        await app.schedules.backfill("s", START - 48 * HOUR, START)
    with pytest.raises(InvalidSchedule, match="yet to come"):
        await app.schedules.backfill("s", START, START + HOUR)
    with pytest.raises(InvalidSchedule, match="time zone"):
        await app.schedules.backfill("s", START.replace(tzinfo=None), START)


@pytest.mark.parametrize("limit", [0, 1001, True, "3"])
async def test_how_many_are_shown_is_bounded(app: Outlast, limit: object) -> None:
    await app.schedules.save("s", "* * * * *", "report", **SET)

    with pytest.raises(InvalidSchedule, match="limit"):
        await app.schedules.next("s", limit=limit)


async def test_schedules_of_one_job_under_two_names_run_beside_each_other(
    app: Outlast, store: Store, clock: FakeClock, trigger: Trigger
) -> None:
    await app.schedules.save("s", "0 * * * *", "brief", job_name="east", **SET)
    await app.schedules.save("t", "0 * * * *", "brief", job_name="west", **SET)
    clock.advance(HOUR)

    await trigger.run_once()

    assert {job.name for job in await store.find(Filter(), limit=9)} == {"east", "west"}


async def test_a_worker_triggers_what_its_app_declares(
    app: Outlast, store: Store, clock: FakeClock
) -> None:
    app.schedule("s", "0 * * * *", "report", **SET)
    await app.sync_schedules()
    async with app.worker() as worker:
        async with work(store) as brought:
            clock.advance(HOUR)
            await brought.wait()
        await worker.drained()

    [job] = await store.find(Filter(), limit=9)
    assert (job.state, job.slot_at) == (State.SUCCEEDED, START + HOUR)


async def test_one_of_several_loops_triggers_and_another_takes_over(
    app: Outlast, store: Store, clock: FakeClock, ids: Ids
) -> None:
    await app.schedules.save("s", "0 * * * *", "report", **SET)
    poll = timedelta(milliseconds=1)
    made = [TriggerLoop(store, ids.job, poll, clock=clock, random=lambda: 0.0) for _ in range(2)]
    loops = [asyncio.create_task(loop.run()) for loop in made]
    for number in range(1, 3):
        async with work(store) as brought:
            clock.advance(HOUR)
            while len(await outcomes(app)) < number:  # a hint may come twice
                await brought.wait()
                brought.clear()
        loops[number - 1].cancel()
        await asyncio.wait([loops[number - 1]])

    assert await outcomes(app) == [SlotOutcome.RAN, SlotOutcome.RAN]


async def test_declared_schedules_wait_for_a_busy_store_and_tell_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("outlast.scheduler.loop.ERROR_PAUSE_S", 0.001)
    answers = iter([StoreBusy("held"), None, InvalidSchedule("template t is gone")])

    async def sync() -> None:
        answer = next(answers)
        if answer is not None:
            raise answer

    with caplog.at_level(logging.WARNING, logger="outlast.scheduler"):
        await sync_declared(sync)
        await sync_declared(sync)

    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert "template t is gone" in caplog.text


def _nothing() -> None: ...


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ({"timzone": "Europe/Berlin"}, "schedule b has an unknown option 'timzone'; did you mean"),
        ({"job": "report"}, "unknown option 'job'"),
    ],
)
def test_a_misspelt_option_of_a_declared_schedule_is_refused(options, step):
    app = Outlast("sqlite:///unused.db")

    with pytest.raises(InvalidSchedule, match=step):
        app.schedule("b", "1 * * * *", "report", coalesce=True, misfire_grace="5s", **options)


def test_a_declared_schedule_without_a_job_is_refused_by_its_name():
    app = Outlast("sqlite:///unused.db")

    with pytest.raises(InvalidSchedule, match="schedule ticks has no job to run; give a job type"):
        app.schedule("ticks", every="1s", coalesce=True, misfire_grace="5s")

"""S1: schedules as records that a person edits and a trigger moves on."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from outlast import InvalidSchedule, Outlast, ScheduleChanged, ScheduleNotFound
from outlast.core.ids import Ids
from outlast.core.schedule import Schedule, SlotOutcome
from outlast.scheduler.cron import next_slot
from outlast.scheduler.trigger import Trigger
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.verify import verify
from support.crash.runner import Crasher

from .database_file import Sql, opened

HOUR = timedelta(hours=1)
SET: dict[str, Any] = {"coalesce": True, "misfire_grace": "5m"}


@pytest.fixture
def trigger(store: SqliteStore, clock: FakeClock) -> Trigger:
    return Trigger(store, Ids(clock.now, Random(3).getrandbits).job)


@pytest.fixture
async def story(app: Outlast) -> Outlast:
    """An app with templates `one` and `two` of a type that takes a and b."""

    @app.job(delivery="linked")
    def chapter(a: int, b: int) -> None: ...

    await app.templates.save("one", chapter, params={"a": 1, "b": 1})
    await app.templates.save("two", chapter, params={"a": 5, "b": 5})
    return app


async def hourly(app: Outlast, **over: Any) -> Schedule:
    return await app.schedules.save("nightly", "0 * * * *", **{"template": "one", **SET, **over})


async def fire(trigger: Trigger, clock: FakeClock) -> None:
    clock.advance(HOUR)
    await trigger.run_once()


async def params_of(store: SqliteStore) -> list[str]:
    return [job.params for job in (await store.find(Filter(), limit=9))[::-1]]


@pytest.mark.req("S1-2.3.a", "S1-2.3.j")
async def test_its_id_and_its_creation_cannot_be_rewritten(story: Outlast, sql: Sql) -> None:
    await hourly(story)

    assert "written anew" in sql.refuses("UPDATE outlast_schedules SET id = upper(id) || ' '")
    assert "written anew" in sql.refuses("UPDATE outlast_schedules SET created_at = 1")


@pytest.mark.req("S1-2.3.b")
async def test_another_template_is_used_by_the_next_trigger(
    story: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(story)
    await fire(trigger, clock)
    await story.schedules.edit("nightly", template="two")
    await fire(trigger, clock)

    first, second = (await store.find(Filter(), limit=9))[::-1]
    assert await params_of(store) == ['{"a":1,"b":1}', '{"a":5,"b":5}']
    assert first.template_id == (await story.templates.get("one")).id
    assert second.template_id == (await story.templates.get("two")).id


@pytest.mark.req("S1-2.3.b")
async def test_the_target_is_a_template_by_its_id(
    story: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    two = await story.templates.get("two")

    await hourly(story, template=two.id)
    await fire(trigger, clock)

    [job] = await store.find(Filter(), limit=9)
    assert (job.template_id, job.params) == (two.id, '{"a":5,"b":5}')
    assert (await story.templates.get(two.id)) == two


@pytest.mark.req("S1-2.3.c")
async def test_the_label_for_people_is_free_text_that_changes_alone(
    story: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    before = await hourly(story, label="The nightly story, for Ada")
    await fire(trigger, clock)

    after = await story.schedules.edit("nightly", label="Ada's story ✨")
    await fire(trigger, clock)

    assert before.plan.label == "The nightly story, for Ada"
    assert (after.id, after.name, after.plan.label) == (before.id, "nightly", "Ada's story ✨")
    assert len(await story.schedules.history("nightly")) == 2


@pytest.mark.req("S1-2.3.c")
async def test_a_new_name_changes_neither_id_nor_triggers(
    story: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    before = await hourly(story)
    await fire(trigger, clock)

    after = await story.schedules.edit("nightly", new_name="nights")
    await fire(trigger, clock)

    assert (after.id, after.name) == (before.id, "nights")
    assert len(await story.schedules.history("nights")) == 2
    with pytest.raises(ScheduleNotFound):
        await story.schedules.get("nightly")


@pytest.mark.req("S1-2.3.d")
async def test_another_expression_gives_another_next_trigger_and_a_wrong_one_is_refused(
    story: Outlast,
) -> None:
    await hourly(story)

    edited = await story.schedules.edit("nightly", cron="30 12 * * *")

    assert edited.next_trigger_at == datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
    with pytest.raises(InvalidSchedule, match="99"):
        await story.schedules.edit("nightly", cron="99 * * * *")
    assert await story.schedules.get("nightly") == edited


@pytest.mark.req("S1-2.3.e")
async def test_the_time_zone_is_utc_unless_given_and_follows_summer_and_winter(
    story: Outlast, clock: FakeClock
) -> None:
    plain = await hourly(story)
    winter = await story.schedules.edit("nightly", cron="0 9 * * *", timezone="Europe/Berlin")
    clock.set_wall(datetime(2026, 7, 1, tzinfo=UTC))
    summer = await story.schedules.edit("nightly", cron="0 9 * * *", start=clock.now())

    assert plain.plan.rule.timezone == "UTC"
    assert winter.next_trigger_at == datetime(2026, 1, 6, 8, tzinfo=UTC)
    assert summer.next_trigger_at == datetime(2026, 7, 1, 7, tzinfo=UTC)


@pytest.mark.req("S1-2.3.f")
async def test_off_it_makes_no_job_and_on_again_the_next_time_does(
    story: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(story)
    await story.schedules.edit("nightly", enabled=False)
    await fire(trigger, clock)
    while_off = await params_of(store)
    await story.schedules.edit("nightly", enabled=True)
    await fire(trigger, clock)

    assert while_off == []
    [row] = await story.schedules.history("nightly")
    assert (row.slot.at, row.outcome) == (START + 2 * HOUR, SlotOutcome.RAN)


@pytest.mark.req("S1-2.3.g")
async def test_its_params_are_laid_over_the_templates(
    story: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    await hourly(story, params={"a": 2})
    await fire(trigger, clock)
    await story.schedules.edit("nightly", params=None)
    await fire(trigger, clock)

    assert await params_of(store) == ['{"a":2,"b":1}', '{"a":1,"b":1}']


@pytest.mark.req("S1-2.3.h")
async def test_last_triggered_at_is_the_slot_that_got_a_job(
    story: Outlast, clock: FakeClock, trigger: Trigger
) -> None:
    never = (await hourly(story)).last_triggered_at
    await fire(trigger, clock)
    fired = (await story.schedules.get("nightly")).last_triggered_at
    await story.templates.remove("one")
    await fire(trigger, clock)
    failed = (await story.schedules.get("nightly")).last_triggered_at

    assert (never, fired, failed) == (None, START + HOUR, START + HOUR)


@pytest.mark.req("S1-2.3.i", "S1-2.3.m")
async def test_after_any_change_the_next_trigger_is_crons_next_after_now(
    story: Outlast, clock: FakeClock
) -> None:
    first = await hourly(story)
    clock.advance(timedelta(minutes=7))

    for change in (
        {"cron": "*/20 * * * *"},
        {"timezone": "Asia/Kathmandu"},
        {"enabled": False},
        {"enabled": True},
        {"coalesce": False},
    ):
        changed = await story.schedules.edit("nightly", **change)
        assert changed.id == first.id
        assert changed.next_trigger_at == next_slot(changed.plan.rule, clock.now())
    assert changed.plan.rule.cron == "*/20 * * * *"
    assert changed.plan.rule.timezone == "Asia/Kathmandu"
    assert not changed.plan.coalesce


@pytest.mark.req("S1-2.3.k")
async def test_a_person_creates_reads_updates_and_deletes_and_only_the_trigger_fires(
    story: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    created = await hourly(story)
    read = await story.schedules.get("nightly")
    updated = await story.schedules.edit("nightly", expected=created.version, coalesce=False)
    clock.advance(HOUR)
    removed = await story.schedules.remove("nightly")

    assert (read, removed) == (created, updated)
    assert await story.schedules.list() == []
    assert await params_of(store) == []
    with pytest.raises(ScheduleNotFound):
        await story.schedules.get("nightly")


@pytest.mark.req("S1-2.3.m")
async def test_an_edit_of_what_is_no_longer_so_is_refused(story: Outlast) -> None:
    created = await hourly(story)
    await story.schedules.edit("nightly", coalesce=False)

    with pytest.raises(ScheduleChanged):
        await story.schedules.edit("nightly", expected=created.version, coalesce=True)


@pytest.mark.req("S1-2.3.l", "S1-1.2.h", "S1-2.1.c")
async def test_a_fresh_process_reads_it_and_still_triggers(
    story: Outlast, store: SqliteStore, path: Path, clock: FakeClock, sql: Sql
) -> None:
    created = await hourly(story)
    await store.close()
    clock.advance(HOUR)

    again = await opened(path, clock=clock)
    read = await again.schedule("nightly")
    await Trigger(again, Ids(clock.now, Random(4).getrandbits).job).run_once()

    [job] = await again.find(Filter(), limit=9)
    assert read == created
    assert read.next_trigger_at == START + HOUR
    assert job.schedule_id == created.id
    assert "frozen" in sql.refuses("UPDATE outlast_jobs SET schedule_id = NULL")
    await again.close()
    await store.open()


@pytest.mark.slow
@pytest.mark.req("S1-2.3.n")
async def test_killed_anywhere_in_a_trigger_its_slot_has_one_job(tmp_path: Path) -> None:
    with Crasher("support.crash.sqlite_target:BENCH") as crasher:
        points = crasher.points(tmp_path / "whole.db", "schedule_fire_together")
        for point in points:
            path = tmp_path / f"{point.nth}.db"
            crasher.kill(path, "schedule_fire_together", point)

            clock = FakeClock()
            store = await opened(path, clock=clock)
            await Trigger(store, Ids(clock.now, Random(5).getrandbits).job).run_once()

            for schedule in await store.schedules(limit=9):
                [row] = await store.slots(schedule.series, limit=9)
                assert row.job_id is not None, point
                assert schedule.last_triggered_at == START
            assert len(await store.find(Filter(), limit=9)) == 2, point
            assert (await verify(store)).violations == ()
            await store.close()

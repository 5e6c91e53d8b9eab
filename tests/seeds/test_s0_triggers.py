"""S0: slots of schedules, claimed once however many trigger them and whoever is killed."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta, timezone
from random import Random

import pytest

from outlast import InvalidArgument, Outlast, SlotTaken
from outlast.core.decide import decide
from outlast.core.event import Failed, Succeeded
from outlast.core.ids import Ids
from outlast.core.run import Claim, LeaseHolder
from outlast.core.schedule import SlotOutcome
from outlast.core.state import RunStatus, State
from outlast.scheduler.trigger import Trigger
from outlast.store.contract.jobs import Filter
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import last_run
from outlast.verify import verify

from .database_file import Sql
from .schedulers import S0

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
HOLDER = LeaseHolder(instance_id="news-1", boot_id="boot-1")


@pytest.fixture
def ids(clock: FakeClock) -> Ids:
    return Ids(clock.now, Random(3).getrandbits)


@pytest.fixture
def trigger(store: SqliteStore, ids: Ids) -> Trigger:
    return Trigger(store, ids.job)


@pytest.fixture
async def ingestion(app: Outlast) -> list[datetime]:
    """`rss_ingestion` every hour; the list is filled by each call of its handler."""
    calls: list[datetime] = []

    @app.job(delivery="once", max_runtime="10m")
    def rss_ingestion() -> None:
        calls.append(datetime.now(UTC))

    await app.schedules.save("ingestion", "0 * * * *", rss_ingestion, **S0)
    return calls


async def take(store: SqliteStore, lease: timedelta = HOUR) -> list[Claim]:
    return await store.claim(HOLDER, queue="default", types=["rss_ingestion"], limit=9, lease=lease)


async def slots_of(app: Outlast) -> list[tuple[datetime, SlotOutcome]]:
    rows = await app.schedules.history("ingestion")
    return [(row.slot.at, row.outcome) for row in rows[::-1]]


@pytest.mark.req("S0-1.a")
async def test_two_triggers_of_one_slot_run_it_once(
    app: Outlast, store: SqliteStore, clock: FakeClock, ids: Ids, ingestion: list[datetime]
) -> None:
    clock.advance(HOUR)

    await asyncio.gather(*(Trigger(store, ids.job).run_once() for _ in range(2)))
    async with app.worker() as worker:
        await worker.drained()

    [job] = await store.find(Filter(), limit=9)
    assert len(ingestion) == 1
    assert len(await store.runs(job.id)) == 1


@pytest.mark.req("S0-1.b", "S0-7.e")
async def test_after_a_crash_nothing_stays_running_and_the_next_slot_runs(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ingestion: list[datetime]
) -> None:
    clock.advance(HOUR)
    await trigger.run_once()
    [crashed] = await take(store, lease=MINUTE)  # and nobody hears of it again
    clock.advance(HOUR)

    await trigger.run_once()
    async with app.worker() as worker:
        await worker.drained()

    running = await store.find(Filter(states=frozenset({State.RUNNING})), limit=9)
    [lost] = await store.runs(crashed.id)
    assert running == []
    assert (lost.status, lost.reason) == (RunStatus.LOST, "lease_expired")
    assert await slots_of(app) == [
        (START + HOUR, SlotOutcome.RAN),
        (START + 2 * HOUR, SlotOutcome.RAN),
    ]
    assert len(ingestion) == 1, "the lost slot is not run again"


@pytest.mark.req("S0-3.c", "S0-12.b")
async def test_a_slot_never_starts_while_an_earlier_one_runs(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ingestion: list[datetime]
) -> None:
    clock.advance(HOUR)
    await trigger.run_once()
    [running] = await take(store, lease=10 * HOUR)
    clock.advance(HOUR)  # far over the threshold of 10 minutes, and in truth alive

    await trigger.run_once()

    assert await take(store) == []
    assert (await slots_of(app))[-1] == (START + 2 * HOUR, SlotOutcome.OVERLAP)
    assert (await store.renew([running.lease], span=HOUR))[0].held


@pytest.mark.req("S0-3.c")
async def test_a_slot_triggered_just_before_waits_for_the_one_that_runs(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ids: Ids,
    ingestion: list[datetime],
) -> None:  # fmt: skip
    clock.advance(HOUR)
    await trigger.run_once()
    await app.schedules.run("ingestion", START)
    [first] = await take(store)

    meanwhile = await take(store)
    await store.apply([decide(first, Succeeded(), new_id=ids.job)])
    [second] = await take(store)

    assert meanwhile == []
    assert second.id != first.id


@pytest.mark.req("S0-3.d")
@pytest.mark.parametrize("point", ["before the claim", "after the claim", "before the close"])
async def test_restart_is_safe_from_every_point(
    app: Outlast,
    store: SqliteStore,
    clock: FakeClock,
    trigger: Trigger,
    ingestion: list[datetime],
    point: str,
) -> None:
    clock.advance(HOUR)
    await trigger.run_once()
    if point != "before the claim":
        await take(store, lease=MINUTE)
    if point == "before the close":
        ingestion.append(clock.now())  # the work is done, and its end was never written
    clock.advance(2 * MINUTE)

    for _ in range(2):
        await trigger.run_once()
        async with app.worker() as worker:
            await worker.drained()
        clock.set_wall(START + 2 * HOUR)

    running = await store.find(Filter(states=frozenset({State.RUNNING})), limit=9)
    assert running == []
    assert len(ingestion) == {"before the claim": 2, "after the claim": 1}.get(point, 2)
    assert (await verify(store)).violations == ()


@pytest.mark.req("S0-5.c")
async def test_a_slot_is_the_utc_instant_and_a_naive_one_is_rejected(
    app: Outlast, store: SqliteStore, ingestion: list[datetime]
) -> None:
    local = datetime(2026, 1, 5, 8, tzinfo=timezone(timedelta(hours=2)))

    job = await app.schedules.run("ingestion", local)

    assert (await app.get(job.id)).slot_at == datetime(2026, 1, 5, 6, tzinfo=UTC)
    with pytest.raises(InvalidArgument, match="time zone"):
        await app.schedules.run("ingestion", datetime(2026, 1, 5, 8))  # noqa: DTZ001 - on purpose


@pytest.mark.req("S0-5.i", "S0-5.l")
async def test_the_database_alone_refuses_a_second_claim_of_a_slot(
    app: Outlast, clock: FakeClock, trigger: Trigger, sql: Sql, ingestion: list[datetime]
) -> None:
    clock.advance(HOUR)
    await trigger.run_once()

    copy = "SELECT series, slot_at, outcome, planned, actual, job_id FROM outlast_slots"
    columns = "(series, slot_at, outcome, planned, actual, job_id)"
    assert "UNIQUE" in sql.refuses(f"INSERT INTO outlast_slots {columns} {copy}")
    assert "claimed once" in sql.refuses("UPDATE outlast_slots SET job_id = 'another'")
    assert "for ever" in sql.refuses("DELETE FROM outlast_slots")


@pytest.mark.req("S0-6.a")
async def test_the_slot_is_the_planned_time_at_every_wake_up(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ingestion: list[datetime]
) -> None:
    clock.set_wall(datetime(2026, 1, 5, 10, 0, 7, 300_000, tzinfo=UTC))

    for _ in range(3):
        await trigger.run_once()

    assert await slots_of(app) == [(datetime(2026, 1, 5, 10, tzinfo=UTC), SlotOutcome.LATE)]


@pytest.mark.req("S0-6.b", "S0-7.b")
async def test_one_firing_closes_the_stale_run_of_its_name_and_runs_the_new_slot(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ingestion: list[datetime]
) -> None:
    @app.job(delivery="once", queue="other")
    def clustering() -> None: ...

    await clustering.options(slot=START).enqueue()
    [other] = await store.claim(HOLDER, queue="other", types=["clustering"], limit=1, lease=SECOND)
    clock.advance(HOUR)
    await trigger.run_once()
    [stale] = await take(store, lease=HOUR + SECOND)
    clock.advance(HOUR)
    await trigger.run_once()
    untouched = (await last_run(store, stale.id)).status
    clock.advance(HOUR)

    await trigger.run_once()

    run = await last_run(store, stale.id)
    assert untouched is RunStatus.RUNNING, "its lease was not over"
    assert (run.status, run.reason, run.finished_at) == (
        RunStatus.LOST,
        "lease_expired",
        clock.now(),
    )
    assert (await last_run(store, other.id)).status is RunStatus.RUNNING, "another name"
    assert [outcome for _, outcome in await slots_of(app)] == [
        SlotOutcome.RAN,
        SlotOutcome.OVERLAP,
        SlotOutcome.RAN,
    ]
    assert len(await take(store)) == 1


@pytest.mark.req("S0-6.b", "S0-7.b")
async def test_a_run_over_its_threshold_is_closed_as_timed_out_and_the_next_slot_runs(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    calls: list[int] = []

    async def hangs_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.Event().wait()

    over = app.job(name="over", delivery="once", max_runtime="10ms")(hangs_once)
    await app.schedules.save("over", "0 * * * *", over, **S0)
    for _ in range(2):
        clock.advance(HOUR)
        await trigger.run_once()
        async with app.worker() as worker:
            await worker.drained()

    second, first = await store.find(Filter(), limit=9)
    assert (first.state, first.reason) == (State.FAILED, "timeout")
    [run] = await store.runs(first.id)
    assert (run.status, run.reason) == (RunStatus.LOST, "timeout")
    assert run.finished_at == START + HOUR
    assert second.state is State.SUCCEEDED
    assert len(calls) == 2, "the slot that timed out is not run again"


@pytest.mark.req("S0-6.c")
async def test_one_transaction_brings_name_slot_start_state_and_worker(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, sql: Sql,
    ingestion: list[datetime],
) -> None:  # fmt: skip
    clock.advance(HOUR)
    await trigger.run_once()
    before = sql.value("SELECT count(*) FROM outlast_open_runs")

    [claim] = await take(store)

    [row] = sql.rows(
        "SELECT j.name, j.slot_at, o.started_at, w.instance_id FROM outlast_open_runs o"
        " JOIN outlast_jobs j ON j.seq = o.job JOIN outlast_workers w ON w.id = o.worker"
    )
    micros = (START + HOUR).timestamp() * 1_000_000
    assert before == 0
    assert row == ("rss_ingestion", micros, micros, "news-1")
    assert (await app.get(claim.id)).state is State.RUNNING


@pytest.mark.req("S0-6.d", "S0-10.c")
@pytest.mark.parametrize("end", ["running", "succeeded", "failed", "lost"])
async def test_a_claimed_slot_is_never_run_again_whatever_became_of_it(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ids: Ids,
    ingestion: list[datetime], end: str,
) -> None:  # fmt: skip
    clock.advance(HOUR)
    await trigger.run_once()
    [claim] = await take(store, lease=MINUTE)
    events = {"succeeded": Succeeded(), "failed": Failed("no")}
    if end in events:
        await store.apply([decide(claim, events[end], new_id=ids.job)])
    if end == "lost":
        clock.advance(HOUR)
        await trigger.run_once()
    before = await store.runs(claim.id)

    with pytest.raises(SlotTaken):
        await app.schedules.run("ingestion", START + HOUR)

    assert await store.runs(claim.id) == before
    assert ingestion == []


@pytest.mark.req("S0-6.d")
async def test_a_slot_that_is_taken_is_passed_by_and_the_skip_is_logged(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger,
    ingestion: list[datetime], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    await app.schedules.run("ingestion", START + HOUR)
    clock.advance(HOUR)

    with caplog.at_level(logging.INFO, logger="outlast.scheduler"):
        await trigger.run_once()

    assert "slot_taken schedule=ingestion" in caplog.text
    assert len(await store.find(Filter(), limit=9)) == 1
    assert ingestion == []


@pytest.mark.req("S0-6.e")
async def test_between_claim_and_execution_the_row_is_there_and_the_handler_was_not_called(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ingestion: list[datetime]
) -> None:
    clock.advance(HOUR)
    await trigger.run_once()

    [claim] = await take(store)

    assert (await app.get(claim.id)).state is State.RUNNING
    assert ingestion == []


@pytest.mark.req("S0-6.f")
async def test_success_writes_state_and_end_together(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger, ingestion: list[datetime]
) -> None:
    clock.advance(HOUR)
    await trigger.run_once()

    async with app.worker() as worker:
        await worker.drained()

    [job] = await store.find(Filter(), limit=9)
    [run] = await store.runs(job.id)
    assert (run.status, run.error) == (RunStatus.SUCCEEDED, None)
    assert run.finished_at == job.finished_at == clock.now()


@pytest.mark.req("S0-6.g")
async def test_failure_writes_state_error_and_end_and_the_triggers_go_on(
    app: Outlast, store: SqliteStore, clock: FakeClock, trigger: Trigger
) -> None:
    @app.job(delivery="once")
    def broken() -> None:
        raise ValueError("no feed")

    await app.schedules.save("broken", "0 * * * *", broken, **S0)
    for _ in range(2):
        clock.advance(HOUR)
        await trigger.run_once()
        async with app.worker() as worker:
            await worker.drained()

    jobs = await store.find(Filter(), limit=9)
    assert [job.state for job in jobs] == [State.FAILED, State.FAILED]
    for job in jobs:
        [run] = await store.runs(job.id)
        assert run.status is RunStatus.FAILED
        assert "no feed" in (run.error or "")
        assert run.finished_at is not None

"""S2: typed jobs and their fields."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import BaseModel

from outlast import Backoff, Outlast, Run
from outlast.core.state import State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import LEASE, TICK, started

from .app_helpers import drain
from .database_file import Sql


class Item(BaseModel):
    name: str
    due: datetime
    tags: set[str] = set()


class Order(BaseModel):
    items: list[Item]
    by_day: dict[str, tuple[int, float]]
    note: str | None = None


ORDER = Order(
    items=[Item(name="tea", due=START, tags={"hot", "green"}), Item(name="cup", due=START)],
    by_day={"mon": (1, 2.5), "tue": (0, -1.0)},
)


@pytest.mark.req("S2-0.d")
async def test_a_nested_model_comes_back_equal(app: Outlast) -> None:
    got = []

    @app.job
    def fulfil(order: Order, *, again: list[Order]) -> Order:
        got.append((order, again))
        return order

    handle = await fulfil.enqueue(ORDER, again=[ORDER, ORDER])
    await drain(app)

    assert got == [(ORDER, [ORDER, ORDER])]
    assert await handle.result() == ORDER


@pytest.mark.req("S2-0.g")
async def test_a_new_type_takes_a_handler_and_a_registration(app: Outlast, sql: Sql) -> None:
    async def never_heard_of(number: int) -> int:
        return number + 1

    unknown = app.job(name="never.heard-of")(never_heard_of)
    handle = await unknown.enqueue(1)
    await drain(app)

    assert await handle.result() == 2
    assert sql.rows("SELECT type FROM outlast_jobs") == [("never.heard-of",)]


@pytest.mark.req("S2-1.i")
async def test_the_payload_is_stored_as_json_and_parsed_before_the_handler(
    app: Outlast, sql: Sql
) -> None:
    got = []

    @app.job
    def daily_summary(item: Item, count: int) -> None:
        got.append((item, count))

    item = Item(name="tea", due=START)
    await daily_summary.enqueue(item, count=3)
    stored = json.loads(sql.value("SELECT params FROM outlast_jobs"))
    await drain(app)

    assert stored == {
        "item": {"name": "tea", "due": "2026-01-05T09:00:00Z", "tags": []},
        "count": 3,
    }
    assert got == [(item, 3)]
    assert type(got[0][0]) is Item


@pytest.mark.req("S2-1.j")
async def test_a_future_job_does_not_run_before_its_time(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    @app.job
    def daily_summary() -> None: ...

    noon = datetime(2026, 1, 5, 12, tzinfo=timezone(timedelta(hours=2)))  # 10:00 in UTC
    handle = await daily_summary.options(at=noon).enqueue()
    clock.advance(timedelta(hours=1) - TICK)
    await drain(app)
    too_early = await handle.read()
    clock.advance(TICK)
    await drain(app)

    assert (too_early.state, too_early.token) == (State.SCHEDULED, 0)
    assert too_early.available_at == datetime(2026, 1, 5, 10, tzinfo=UTC)
    assert too_early.available_at.tzinfo is UTC
    assert (await handle.read()).state is State.SUCCEEDED


@pytest.mark.req("S2-1.l", "S2-2.b", "S2-3.a")
async def test_in_progress_it_has_a_holder_and_a_lock_that_ends_later(
    app: Outlast, clock: FakeClock, sql: Sql
) -> None:
    lock = "SELECT state, holder, lease_until FROM outlast_job_state"
    seen = []

    @app.job
    async def user_sync(run: Run) -> None:
        seen.extend(sql.rows(lock))

    handle = await user_sync.enqueue()
    before = sql.rows(lock)
    await drain(app, instance_id="worker-7")

    [(state, holder, until)] = seen
    assert (state, holder) == ("running", "worker-7")
    assert until > clock.monotonic()
    assert before == [("queued", None, None)]
    assert sql.value("SELECT lease_until FROM outlast_job_state") is None
    assert (await handle.read()).holder == "worker-7"  # the last one stays on record


@pytest.mark.req("S2-1.m")
async def test_a_lock_ends_a_lease_after_the_claim(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    clock.advance("3h")
    claim = await started(store)

    until = sql.value("SELECT lease_until FROM outlast_open_runs")
    clock.advance(LEASE - TICK)
    just_before = await store.expired_leases(limit=10)
    clock.advance(TICK)

    assert until == clock.monotonic()
    assert just_before == []
    assert [job.id for job in await store.expired_leases(limit=10)] == [claim.id]


@pytest.mark.req("S2-1.n", "S2-2.m")
async def test_each_failed_attempt_counts_one_and_success_counts_nothing(
    app: Outlast, clock: FakeClock
) -> None:
    failing = iter([True, True, False])

    @app.job(retry=Backoff(base="1s", jitter=False))
    def user_sync() -> None:
        if next(failing):
            raise ConnectionError("no route to the bank")

    handle = await user_sync.enqueue()
    counts = [(await handle.read()).failures]
    errors = []
    for _ in range(3):
        await drain(app)
        clock.advance("1m")
        counts.append((await handle.read()).failures)
        errors.append((await app.runs(handle.id))[-1].error)

    assert counts == [0, 1, 2, 2]
    assert ["no route to the bank" in (error or "") for error in errors] == [True, True, False]
    assert (await handle.read()).state is State.SUCCEEDED


@pytest.mark.req("S2-1.o")
async def test_the_last_error_holds_the_text_of_the_exception(app: Outlast) -> None:
    @app.job(retry=Backoff(1))
    def user_sync(user: str) -> None:
        raise LookupError(f"nobody called {user}")

    handle = await user_sync.enqueue("Ada")
    await drain(app)

    error = (await app.runs(handle.id))[-1].error or ""
    assert "LookupError: nobody called Ada" in error
    assert "test_s2_model.py" in error, "no traceback"


@pytest.mark.req("S2-1.p")
async def test_created_at_is_the_clock_at_enqueue(app: Outlast, clock: FakeClock) -> None:
    @app.job
    def user_sync() -> None: ...

    clock.advance(timedelta(days=3, microseconds=7))
    handle = await user_sync.options(delay="1h").enqueue()
    clock.advance("1d")

    assert (await handle.read()).created_at == START + timedelta(days=3, microseconds=7)

"""S3: five states, and no way between them but those that are listed."""
# ruff: noqa: S608 - the words that make up these statements are ours

import pytest

from outlast import Backoff, Outlast, PermanentError
from outlast.core.decide import decide, succeed
from outlast.core.delivery import Delivery
from outlast.core.event import Failed, GivenUp, Misfired, Skipped, Stopped, Succeeded
from outlast.core.ids import JobId
from outlast.core.state import FINAL, State
from outlast.errors import TransitionRefused
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    SECOND,
    SUCCEEDED,
    claim_order,
    ended,
    job_of,
    put,
    take,
)

from .app_helpers import drain
from .database_file import Sql
from .states import one_of_each, ways

WAY = Backoff(5, base="5m", cap="24h", jitter=False)


@pytest.mark.req("S3-1.a")
async def test_a_new_job_is_pending_and_the_next_claim_returns_it(
    app: Outlast, store: SqliteStore
) -> None:
    @app.job
    def scrape(source: int) -> None: ...

    handle = await scrape.enqueue(3)
    pending = await handle.read()

    assert (pending.state, pending.holder) == (State.QUEUED, None)
    assert await claim_order(store, types=["scrape"], limit=1) == [handle.id]


@pytest.mark.req("S3-1.b")
async def test_a_claimed_job_is_running_and_says_by_whom(store: SqliteStore) -> None:
    first, second = await put(store), await put(store)

    await take(store, holder="worker-1")
    await take(store, holder="worker-2")

    jobs = [await job_of(store, job_id) for job_id in (first, second)]
    assert [job.state for job in jobs] == [State.RUNNING] * 2
    assert [job.holder for job in jobs] == ["worker-1", "worker-2"]


@pytest.mark.req("S3-1.c")
async def test_a_timeout_makes_it_retryable(app: Outlast) -> None:
    @app.job(retry=WAY, unknown_error="permanent")
    def scrape() -> None:
        raise TimeoutError("the shop is slow")

    handle = await scrape.enqueue()
    await drain(app)

    job = await handle.read()
    assert (job.state, job.failures) == (State.RETRY_WAIT, 1)


@pytest.mark.req("S3-1.d")
async def test_a_job_that_returned_succeeded_and_is_never_claimed_again(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    @app.job
    def scrape() -> None:
        clock.advance("7s")

    handle = await scrape.enqueue()
    await drain(app)
    clock.advance("1d")

    job = await handle.read()
    assert (job.state, job.finished_at) == (State.SUCCEEDED, START + 7 * SECOND)
    assert await claim_order(store, types=["scrape"]) == []


@pytest.mark.req("S3-1.e")
async def test_a_failed_job_is_never_claimed_whenever(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    for event in (Failed("gone", permanent=True), Failed("tired")):
        await ended(store, event, max_attempts=1)
    claims = []
    for span in ("1s", "1h", "1d", "30d"):
        clock.advance(span)
        claims += await claim_order(store)
        await store.close()
        clock.reboot()
        await store.open()

    assert claims == []
    assert {state for (state,) in sql.rows("SELECT state FROM outlast_ends")} == {"dead_letter"}
    sql.refuses(
        "INSERT INTO outlast_waiting (job, state, queue, type, name, delivery, priority, position,"
        " available_at, created_at, token, failures, losses)"
        " VALUES (1, 'queued', 'default', 'feed.fetch', 'a', 'lease', 0, 0, 1, 1, 1, 0, 0)"
    )


@pytest.mark.req("S3-1.g")
async def test_only_a_running_job_can_succeed(store: SqliteStore) -> None:
    jobs = await one_of_each(store)
    refused = []
    for state, job_id in jobs.items():
        job = await job_of(store, job_id)
        applied = await store.apply([succeed(job_id, job.token, None)])
        if applied == [False]:
            refused.append(state)
            assert await job_of(store, job_id) == job
            with pytest.raises(TransitionRefused):
                decide(job, Succeeded(), new_id=lambda: JobId("x"))

    assert set(refused) == jobs.keys() - {State.RUNNING}
    assert (await job_of(store, jobs[State.RUNNING])).state is State.SUCCEEDED


@pytest.mark.req("S3-1.h")
async def test_a_permanent_error_fails_at_once(app: Outlast, clock: FakeClock) -> None:
    calls = []

    @app.job(retry=WAY)
    def by_word() -> None:
        calls.append("word")
        raise PermanentError("the shop has closed for good")

    @app.job(retry=WAY, errors={KeyError: "permanent"})
    def by_map() -> None:
        calls.append("map")
        raise KeyError("no such coin")

    handles = [await by_word.enqueue(), await by_map.enqueue()]
    for _ in range(2):
        await drain(app)
        clock.advance("1d")

    jobs = [await handle.read() for handle in handles]
    assert sorted(calls) == ["map", "word"]
    assert [(job.state, job.reason) for job in jobs] == [(State.DEAD_LETTER, "permanent")] * 2


@pytest.mark.req("S3-1.j")
async def test_a_retryable_job_is_claimed_only_when_its_time_has_passed(
    store: SqliteStore, clock: FakeClock
) -> None:
    job_id = await ended(store, Failed("slow", delay=300 * SECOND))

    clock.advance("299s")
    before = await claim_order(store)
    waiting = (await job_of(store, job_id)).state
    clock.advance("2s")

    assert (before, waiting) == ([], State.RETRY_WAIT)
    assert await claim_order(store) == [job_id]


WORDS = {
    State.BLOCKED: "pending",
    State.SCHEDULED: "pending",
    State.QUEUED: "pending",
    State.RUNNING: "running",
    State.RETRY_WAIT: "retryable",
    State.SUCCEEDED: "succeeded",
    State.SKIPPED: "succeeded",
    State.FAILED: "failed",
    State.DEAD_LETTER: "failed",
    State.CANCELLED: "failed",
}
"""Our states in S3's five words (T-1, T-38)."""

LISTED = {
    ("pending", "running"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "retryable"),
    ("running", "pending"),
    ("retryable", "pending"),
    ("retryable", "failed"),
    ("pending", "failed"),
    ("pending", "succeeded"),
}
"""S3's own, in two steps where ours are two: a retry is promoted first, and a waiting job can be
cancelled, which S3 reads as failed, or skipped, having missed its start."""


def test_no_event_leads_from_any_state_to_an_unlisted_one() -> None:
    claim = ("pending", "running")  # the one that is the store's own
    found = {(WORDS[state], WORDS[move.to]) for state, move in ways(Delivery.LEASE)}
    leaving = [state for state, _ in ways(Delivery.LEASE) if state in FINAL]

    assert {(was, to) for was, to in found | {claim} if was != to} == LISTED
    assert leaving == []


async def test_the_database_lets_nothing_leave_an_end(store: SqliteStore, sql: Sql) -> None:
    for event in (SUCCEEDED, Skipped(), Stopped(), Failed("no", permanent=True)):
        await ended(store, event)
    states = sql.rows("SELECT job, state FROM outlast_ends")

    for state in [*State, "nonsense"]:
        sql.refuses(f"UPDATE outlast_ends SET state = '{state}'")
    sql.refuses("DELETE FROM outlast_ends")
    for job, _ in states:
        sql.refuses(
            "INSERT INTO outlast_waiting (job, state, queue, type, name, delivery, priority,"
            " position, available_at, created_at, token, failures, losses)"
            f" VALUES ({job}, 'queued', 'default', 'a', 'a', 'lease', 0, 0, 1, 1, 1, 0, 0)"
        )
    for event in (Misfired(), GivenUp("x")):
        with pytest.raises(TransitionRefused):
            decide(await job_of(store, await ended(store)), event, new_id=lambda: JobId("b"))

"""S1: retries are new jobs in a chain, and an interrupted job never executes again."""
# ruff: noqa: S608 - the words that make up these statements are ours

from pathlib import Path
from random import Random

import pytest

from outlast import Backoff, Outlast, Run
from outlast.core.delivery import Delivery
from outlast.core.event import Failed, Lost
from outlast.core.ids import JobId
from outlast.core.state import Loss, State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    SUCCEEDED,
    TICK,
    ended,
    put,
    settle,
    started,
    take,
)

from .app_helpers import drain, ids_of, jobs_of, live
from .app_programs import hold_a_story
from .child_process import Child
from .database_file import Sql
from .timeouts import LONG, QUICK, SOON

AT_ONCE = Backoff(4, base="0s")
LINKED = {"delivery": Delivery.LINKED}
EVENTS = [FAILED, FAILED, SUCCEEDED, Lost(Loss.OWNER_DEAD), Failed("no", permanent=True)]
LINKS = """
WITH RECURSIVE chain (seq, id, links) AS (
  SELECT seq, id, 0 FROM outlast_jobs WHERE retry_of IS NULL
  UNION ALL
  SELECT j.seq, j.id, c.links + 1 FROM outlast_jobs AS j JOIN chain AS c ON j.retry_of = c.seq
)
SELECT id, links FROM chain ORDER BY seq
"""
"""Every job and its distance from the root of its chain, by the jobs table alone."""


async def failing_chain(app: Outlast, times: int = 99) -> tuple[JobId, list[int]]:
    """Enqueue a linked job that fails that often, and let it; its id and the attempts it saw."""
    attempts: list[int] = []

    @app.job(delivery="linked", retry=AT_ONCE)
    def story(run: Run) -> None:
        attempts.append(run.attempt)
        if len(attempts) <= times:
            raise TimeoutError("no answer")

    handle = await story.enqueue()
    await drain(app)
    return handle.id, attempts


@pytest.mark.req("S1-2.4.a")
async def test_a_retry_is_followed_in_the_jobs_table_alone(
    app: Outlast, store: SqliteStore, sql: Sql
) -> None:
    root, _ = await failing_chain(app, times=2)

    followed = [job_id for job_id, _ in sql.rows(LINKS)]

    assert followed == ids_of(await store.chain(root))
    assert len(followed) == 3


@pytest.mark.req("S1-2.4.b")
async def test_each_retry_names_its_direct_predecessor(app: Outlast, store: SqliteStore) -> None:
    root, _ = await failing_chain(app, times=3)

    jobs = await jobs_of(store)

    assert [job.retry_of for job in jobs] == [None, *ids_of(jobs[:3])]
    assert jobs[0].id == root
    assert [job.state for job in jobs] == [State.FAILED] * 3 + [State.SUCCEEDED]


@pytest.mark.req("S1-2.4.c")
async def test_with_three_retries_there_are_exactly_four_jobs(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    _, attempts = await failing_chain(app)
    clock.advance("1d")
    await drain(app)

    jobs = await jobs_of(store)
    assert len(attempts) == len(jobs) == 4
    assert [job.state for job in jobs] == [State.FAILED] * 3 + [State.DEAD_LETTER]
    assert jobs[-1].reason == "attempts_exhausted"


@pytest.mark.req("S1-2.4.d")
async def test_the_attempt_count_is_the_number_of_links_to_the_root(
    app: Outlast, sql: Sql, store: SqliteStore
) -> None:
    _, attempts = await failing_chain(app, times=2)

    links = [count for _, count in sql.rows(LINKS)]

    assert links == [0, 1, 2]
    assert [attempt - 1 for attempt in attempts] == links
    assert [len(await store.chain(job.id)) for job in await jobs_of(store)] == [3, 3, 3]


@pytest.mark.req("S1-2.4.e")
async def test_there_is_no_retry_table_and_no_retry_of_nothing(
    store: SqliteStore, sql: Sql
) -> None:
    await ended(store, FAILED, **LINKED)
    tables = {name for (name,) in sql.rows("SELECT name FROM sqlite_schema WHERE type = 'table'")}

    assert not [name for name in tables if "retr" in name]
    assert "FOREIGN KEY" in sql.refuses(
        "INSERT INTO outlast_jobs"
        " (id, type, name, queue, delivery, params, created_at, retry_of, root)"
        f" VALUES ('{'x' * 36}', 'a', 'a', 'a', 'linked', '{{}}', 1, 999, 1)"
    )
    assert "FOREIGN KEY" in sql.refuses("DELETE FROM outlast_jobs WHERE seq = 1")


@pytest.mark.req("S1-2.4.e")
async def test_whatever_happens_each_retry_of_names_a_job_that_exists(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    random, longest, gone = Random(5), 0, 0
    for _ in range(60):
        if not (await store.counts()).get(("default", State.QUEUED)):
            await put(store, **LINKED)
        await settle(store, await take(store), random.choice(EVENTS))
        clock.advance(random.choice([TICK, HOUR]))
        gone += await store.prune(older_than=HOUR, limit=random.randrange(1, 3))

        named = sql.rows("SELECT retry_of FROM outlast_jobs WHERE retry_of IS NOT NULL")
        assert set(named) <= set(sql.rows("SELECT seq FROM outlast_jobs"))
        longest = max(longest, len(named))
    assert longest > 5
    assert gone > 5


@pytest.mark.req("S1-2.4.f")
async def test_a_purge_never_takes_a_job_before_its_successors(
    store: SqliteStore, clock: FakeClock, sql: Sql
) -> None:
    first = await ended(store, FAILED, **LINKED)
    second = await take(store)
    clock.advance("2h")  # the first is old by now, the last is not

    still_open = await store.prune(older_than=HOUR, limit=100)
    await settle(store, second, SUCCEEDED)
    too_young = await store.prune(older_than=HOUR, limit=100)
    chain = ids_of(await store.chain(first))
    refusal = sql.refuses("DELETE FROM outlast_jobs WHERE seq = 1")
    clock.advance(HOUR + TICK)
    in_the_end = await store.prune(older_than=HOUR, limit=100)

    assert (still_open, too_young, in_the_end) == (0, 0, 2)
    assert chain == [first, second.id]
    assert "FOREIGN KEY" in refusal
    assert await jobs_of(store) == []


@pytest.mark.req("S1-5.3.f")
async def test_a_retry_is_a_new_job_with_an_id_of_its_own(store: SqliteStore) -> None:
    claim = await started(store, params='{"n":1}', priority=3, **LINKED)

    await settle(store, claim, FAILED)

    [old, new] = await jobs_of(store)
    assert old.id == claim.id == new.retry_of
    assert new.id != old.id
    assert (new.params, new.priority, new.type) == (old.params, old.priority, old.type)
    assert (old.state, new.state, new.token) == (State.FAILED, State.QUEUED, 0)


@pytest.mark.req("S1-4.2.h")
async def test_a_job_whose_worker_was_killed_never_executes_again(path: Path) -> None:
    with Child(hold_a_story, path, "linked", LONG) as worker:
        interrupted = worker.hear()
        worker.kill()
    Sql(path).expire_leases()
    executed = []
    app = live(path, **QUICK)

    @app.job(delivery="linked")
    def story(run: Run, title: str) -> None:
        executed.append(run.job_id)

    async with app, app.worker() as second:
        tip = await app.wait(interrupted, timeout=SOON)
        await second.drained()
        original = await app.get(interrupted)
        runs = await app.runs(interrupted)

    assert executed == [tip.id]
    assert tip.retry_of == interrupted
    assert [run.status for run in runs] == ["lost"]
    assert (original.state, original.reason) == (State.FAILED, "lease_expired")

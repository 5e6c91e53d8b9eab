"""S1: what a start makes of each state that a crash can have left, and of broken ones."""

import json
import logging
from pathlib import Path

import pytest

from outlast.core.decide import succeed
from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, EventKind
from outlast.core.run import Claim, LeaseHolder
from outlast.core.state import RunStatus, State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    SECOND,
    SUCCEEDED,
    ended,
    job_of,
    last_run,
    make_job,
    new_id,
    put,
    settle,
    started,
    take,
    take_many,
)
from outlast.worker.maintenance.history_inspector import HistoryInspector, HistoryRepairs
from outlast.worker.maintenance.recovery import Recovery, RecoveryResult
from support.corruption.sqlite import SqliteCorrupter
from support.crash.sqlite_target import dump_jobs

from .app_helpers import jobs_of
from .app_programs import hold_a_story
from .child_process import Child, race
from .database_file import Sql, opened
from .store_programs import recover_together

LINKED = {"delivery": Delivery.LINKED}
NEXT_BOOT = LeaseHolder(instance_id="worker-1", boot_id="the-next-boot")
FAILED_ALONE = """
SELECT j.id FROM outlast_jobs AS j
JOIN outlast_ends AS e ON e.job = j.seq
JOIN outlast_runs AS r ON r.job = j.seq
WHERE r.status IN ('failed', 'lost') AND e.at IS NOT NULL AND j.delivery = 'linked'
  AND e.state = 'failed' AND NOT EXISTS (SELECT 1 FROM outlast_jobs WHERE retry_of = j.seq)
"""
WITHOUT_RUN = """
SELECT j.id FROM outlast_jobs AS j
LEFT JOIN outlast_waiting AS w ON w.job = j.seq
LEFT JOIN outlast_open_runs AS o ON o.job = j.seq
LEFT JOIN outlast_ends AS e ON e.job = j.seq
WHERE w.job IS NULL AND o.job IS NULL AND e.job IS NULL
"""


@pytest.fixture
def corrupter(store: SqliteStore) -> SqliteCorrupter:
    return SqliteCorrupter(store.path)


async def start(store: SqliteStore, holder: LeaseHolder = NEXT_BOOT) -> RecoveryResult:
    """What a single worker does when it starts."""
    return await Recovery(store, holder, scope="all", new_id=new_id).run_once()


async def repair(store: SqliteStore) -> HistoryRepairs:
    """What that worker does next, in the background."""
    return await HistoryInspector(store, new_id).inspect_if_due()


async def unfollowed(store: SqliteStore, corrupter: SqliteCorrupter, **over: object) -> Claim:
    """A failed linked job whose process died, in a lesser store, before it wrote the retry."""
    claim = await started(store, **LINKED, **over)
    await settle(store, claim, FAILED)
    await corrupter.drop_successor(claim.id)
    return claim


@pytest.mark.req("S1-4.2.a")
async def test_of_a_thousand_finished_and_one_interrupted_exactly_one_is_handled(
    store: SqliteStore,
) -> None:
    await store.add([make_job(**LINKED) for _ in range(1000)])
    claims = await take_many(store, limit=1000)
    await store.apply([succeed(claim.job_id, claim.token, None) for claim in claims])
    interrupted = await started(store, **LINKED)

    done = await start(store)

    assert len(claims) == 1000
    assert (done, done.actions) == (RecoveryResult(lost=1), 1)
    assert (await last_run(store, interrupted.id)).status is RunStatus.LOST


@pytest.mark.req("S1-4.2.b", "S1-4.5.d")
async def test_a_job_whose_run_is_over_is_only_finished(
    store: SqliteStore, clock: FakeClock, corrupter: SqliteCorrupter, sql: Sql
) -> None:
    job_id = await ended(store, SUCCEEDED, **LINKED)
    await corrupter.detach(job_id)
    before = dump_jobs(store.path)
    clock.advance(SECOND)

    done = await repair(store)

    after = dump_jobs(store.path)
    job = await job_of(store, job_id)
    assert done == HistoryRepairs(finished=1)
    assert (job.state, job.finished_at) == (State.SUCCEEDED, clock.now())
    changed = {table for table in after if after[table] != before[table]}
    assert changed == {"outlast_ends", "outlast_events"}
    assert sql.value("SELECT count(*) FROM outlast_jobs") == 1, "no successor"


@pytest.mark.req("S1-4.2.c", "S1-4.2.f", "S1-4.5.c")
async def test_an_interrupted_run_is_failed_at_the_next_start_and_its_job_retried(
    path: Path,
) -> None:
    with Child(hold_a_story, path, "linked", {}) as worker:
        interrupted = worker.hear()
        worker.kill()
    store = await opened(path)

    done = await start(store, LeaseHolder(instance_id="first", boot_id="another"))

    run = await last_run(store, interrupted)
    [old, new] = await jobs_of(store)
    await store.close()
    assert done == RecoveryResult(lost=1)
    assert (run.status, run.reason, run.holder) == (RunStatus.LOST, "startup_recovery", "first")
    assert run.finished_at is not None
    assert (old.id, old.state, old.failures) == (interrupted, State.FAILED, 1)
    assert (new.state, new.retry_of, new.failures) == (State.QUEUED, interrupted, 1)


@pytest.mark.req("S1-4.2.d", "S1-4.5.b", "S1-5.1.c")
async def test_a_running_job_without_a_run_gets_a_failed_one_and_is_retried(
    store: SqliteStore, corrupter: SqliteCorrupter, sql: Sql
) -> None:
    job_id = await put(store, **LINKED)
    await put(store)
    await corrupter.detach(job_id)
    hits = sql.rows(WITHOUT_RUN)

    done = await repair(store)

    [run] = await store.runs(job_id)
    [old, new] = await store.chain(job_id)
    assert hits == [(job_id,)]
    assert sql.rows(WITHOUT_RUN) == []
    assert done == HistoryRepairs(without_run=1)
    assert (run.status, run.reason) == (RunStatus.LOST, "startup_recovery")
    assert (old.state, new.state, new.retry_of) == (State.FAILED, State.QUEUED, job_id)


@pytest.mark.req("S1-4.4.a")
async def test_a_failed_run_without_its_retry_is_found(
    store: SqliteStore, corrupter: SqliteCorrupter, sql: Sql
) -> None:
    whole = await ended(store, FAILED, queue="whole", **LINKED)
    broken = await unfollowed(store, corrupter)

    found = await store.missing_successors(limit=100)

    assert [job.id for job in found] == [broken.id]
    assert sql.rows(FAILED_ALONE) == [(broken.id,)]
    assert len(await store.chain(whole)) == 2


@pytest.mark.req("S1-4.4.c")
@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING, State.SUCCEEDED, State.CANCELLED])
async def test_a_retry_in_any_state_is_enough(store: SqliteStore, state: State) -> None:
    job_id = await ended(store, FAILED, **LINKED)
    [_, retry] = await store.chain(job_id)
    if state is State.CANCELLED:
        await settle(store, retry, CancelRequested())
    elif state is not State.QUEUED:
        claim = await take(store, holder="worker-2")
        assert state is State.RUNNING or await settle(store, claim, SUCCEEDED)
    before = dump_jobs(store.path)

    done = await Recovery(store, NEXT_BOOT, scope="instance", new_id=new_id).run_once()

    assert (await job_of(store, retry.id)).state is state
    assert done.actions == 0
    assert dump_jobs(store.path) == before


@pytest.mark.req("S1-4.4.d")
async def test_a_missing_retry_is_made_at_the_start(
    store: SqliteStore, corrupter: SqliteCorrupter, clock: FakeClock
) -> None:
    claim = await unfollowed(store, corrupter, max_attempts=2, params='{"n":1}', priority=3)
    clock.advance(HOUR)

    done = await repair(store)

    [old, new] = await store.chain(claim.id)
    assert done == HistoryRepairs(continued=1)
    assert (new.state, new.retry_of, new.root_id) == (State.QUEUED, claim.id, claim.id)
    assert (new.params, new.priority, new.queue) == (old.params, old.priority, old.queue)
    await settle(store, await take(store), FAILED)
    assert (await job_of(store, new.id)).state is State.DEAD_LETTER, "the chain's limit holds"


@pytest.mark.req("S1-4.4.f")
async def test_recovering_twice_makes_one_retry(
    store: SqliteStore, corrupter: SqliteCorrupter
) -> None:
    claim = await unfollowed(store, corrupter)

    inspector = HistoryInspector(store, new_id)
    done = [await inspector.inspect(), await inspector.inspect()]

    assert done == [HistoryRepairs(continued=1), HistoryRepairs()]
    assert len(await store.chain(claim.id)) == 2


@pytest.mark.slow
@pytest.mark.req("S1-4.4.f")
async def test_processes_that_recover_together_make_one_retry(
    path: Path, store: SqliteStore, corrupter: SqliteCorrupter, sql: Sql
) -> None:
    for number in range(20):
        await unfollowed(store, corrupter, queue=f"queue-{number}")

    made = race(recover_together, 4, path)

    assert sum(made) == 20
    named = sql.rows("SELECT retry_of, count(*) FROM outlast_jobs WHERE retry_of GROUP BY retry_of")
    assert [count for _, count in named] == [1] * 20


@pytest.mark.req("S1-4.5.a")
async def test_what_is_queued_needs_no_action(store: SqliteStore) -> None:
    for number in range(50):
        await put(store, priority=number % 3, **(LINKED if number % 2 else {}))
    before = dump_jobs(store.path)

    done = await start(store)

    assert (done, done.actions) == (RecoveryResult(), 0)
    assert dump_jobs(store.path) == before


@pytest.mark.req("S1-5.2.c")
async def test_an_orphan_run_is_copied_to_the_events_deleted_and_warned_of(
    store: SqliteStore, corrupter: SqliteCorrupter, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    whole = await HistoryInspector(store, new_id).inspect()
    job_id = await ended(store, SUCCEEDED)
    run = await last_run(store, job_id)
    await corrupter.orphan(job_id)
    orphans = sql.rows("PRAGMA foreign_key_check")

    done = await repair(store)

    [event] = await store.events(None)
    copy = json.loads(event.detail or "")
    assert whole.orphans == 0, "normally there is none"
    assert [table for table, *_ in orphans] == ["outlast_runs"]
    assert done == HistoryRepairs(orphans=1)
    assert sql.value("SELECT count(*) FROM outlast_runs") == 0
    assert sql.rows("PRAGMA foreign_key_check") == []
    assert (event.kind, event.run_id) == (EventKind.ORPHAN_RUN_REMOVED, run.run_id)
    assert (copy["status"], copy["result"], copy["holder"]) == ("succeeded", run.result, run.holder)
    warned = [record for record in caplog.records if run.run_id in record.getMessage()]
    assert [record.levelno for record in warned] == [logging.WARNING]

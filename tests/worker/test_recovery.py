"""Recovery at boot: every state that a crash or a broken file can leave, and what becomes of it."""

import json
import logging

import pytest
from recovery_helpers import BEFORE, NOW, OTHER, PRESETS, check_invariants, recover, repair, start

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, EventKind, Failed, Released, Skipped, Stopped
from outlast.core.run import UNKNOWN_HOLDER
from outlast.core.state import RunStatus, State
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LEASE,
    LOST,
    MANY,
    SECOND,
    SUCCEEDED,
    job_of,
    kinds,
    last_run,
    put,
    settle,
    take,
    take_many,
)
from outlast.worker.maintenance import history_inspector as module
from outlast.worker.maintenance.history_inspector import HistoryRepairs
from outlast.worker.maintenance.recovery import RecoveryResult
from support.corruption.sqlite import SqliteCorrupter
from support.crash.sqlite_recovery import close_unfollowed
from support.crash.sqlite_target import dump, dump_jobs

LINKED = {"delivery": Delivery.LINKED}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
async def store(path, clock):
    sqlite = SqliteStore(path, clock=clock)
    await sqlite.open()
    yield sqlite
    await sqlite.close()


@pytest.fixture
def corrupter(store):
    return SqliteCorrupter(store.path)


AFTER_LOSS = {
    Delivery.LEASE: (State.QUEUED, EventKind.REQUEUED),
    Delivery.LINKED: (State.FAILED, EventKind.CHAINED),
    Delivery.ONCE: (State.FAILED, EventKind.CLOSED),
}


@pytest.mark.parametrize("delivery", PRESETS)
async def test_open_run_of_an_earlier_boot_is_lost_at_once(store, clock, delivery):
    claim = await start(store, delivery=delivery)
    clock.advance(SECOND)  # its lease is far from over

    done = await recover(store)

    job, run = await job_of(store, claim.id), await last_run(store, claim.id)
    [event] = await store.events(claim.id)
    assert done == RecoveryResult(lost=1)
    assert done.actions == 1
    assert (job.state, event.kind) == AFTER_LOSS[delivery]
    assert (run.status, run.reason, run.finished_at) == (
        RunStatus.LOST,
        "startup_recovery",
        clock.now(),
    )
    words = "was restarted, and its earlier start left the run open"
    assert event.reason == "startup_recovery"
    assert event.detail == f"worker {BEFORE.instance_id} {words} (boot {BEFORE.boot_id})"
    assert len(await store.chain(claim.id)) == 1 + (delivery is Delivery.LINKED)
    await check_invariants(store)


async def test_lost_run_with_a_cancel_request_ends_cancelled_and_is_logged_so(store, caplog):
    claim = await start(store, **LINKED)
    await settle(store, await job_of(store, claim.id), CancelRequested())

    await recover(store)

    assert (await job_of(store, claim.id)).state is State.CANCELLED
    assert len(await store.chain(claim.id)) == 1
    [line] = [line for line in caplog.messages if line.startswith("recovered ")]
    assert line.endswith("now=cancelled reason=cancelled")


@pytest.mark.parametrize("delivery", PRESETS)
async def test_running_job_without_a_run_gets_a_lost_one(store, corrupter, delivery):
    job_id = await put(store, delivery=delivery)
    await corrupter.detach(job_id)

    done = await repair(store)

    job, [run], [event] = (
        await job_of(store, job_id),
        await store.runs(job_id),
        await store.events(job_id),
    )
    assert done == HistoryRepairs(without_run=1)
    assert (run.status, run.reason) == (RunStatus.LOST, "startup_recovery")
    assert (job.state, event.kind) == AFTER_LOSS[delivery]
    assert (job.failures, job.losses, job.token) == (1, 1, 1)
    await check_invariants(store)


@pytest.mark.parametrize("delivery", PRESETS)
async def test_job_left_open_by_a_run_that_succeeded_only_ends(store, corrupter, clock, delivery):
    claim = await start(store, delivery=delivery)
    await settle(store, claim, SUCCEEDED)
    runs = await store.runs(claim.id)
    await corrupter.detach(claim.id)
    clock.advance(SECOND)

    done = await repair(store)

    job = await job_of(store, claim.id)
    assert done == HistoryRepairs(finished=1)
    assert (job.state, job.reason, job.finished_at) == (State.SUCCEEDED, None, clock.now())
    assert await store.runs(claim.id) == runs
    assert await store.chain(claim.id) == [job]
    assert await kinds(store, claim.id) == [EventKind.RECOVERED]
    await check_invariants(store)


@pytest.mark.parametrize("delivery", PRESETS)
@pytest.mark.parametrize("event", [FAILED, LOST], ids=["failed", "lost"])
async def test_job_left_open_by_a_run_that_went_wrong_is_judged_by_its_rule(
    store, corrupter, delivery, event
):
    claim = await start(store, delivery=delivery)
    await settle(store, claim, event)
    expected, runs = await store.chain(claim.id), await store.runs(claim.id)
    if delivery is Delivery.LINKED:
        await corrupter.drop_successor(claim.id)
    await corrupter.detach(claim.id)

    done = await repair(store)
    await store.promote_due(limit=MANY)

    found = await store.chain(claim.id)
    assert done.finished == done.actions == 1
    assert await store.runs(claim.id) == runs
    state = State.QUEUED if expected[0].state is State.RETRY_WAIT else expected[0].state
    assert (found[0].state, found[0].reason) == (state, expected[0].reason)
    assert [(job.failures, job.losses) for job in found] == [
        (job.failures, job.losses) for job in expected
    ]
    await check_invariants(store)


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (Skipped("empty"), State.SKIPPED),
        (Stopped("told"), State.CANCELLED),
        (Failed("no", permanent=True), State.DEAD_LETTER),
        (Released("drain"), State.QUEUED),
    ],
    ids=["skipped", "cancelled", "permanent", "released"],
)
async def test_job_left_open_goes_where_its_last_run_says(store, corrupter, event, state):
    claim = await start(store)
    await settle(store, claim, event)
    failures = (await job_of(store, claim.id)).failures
    await corrupter.detach(claim.id)

    done = await repair(store)

    job = await job_of(store, claim.id)
    assert done == HistoryRepairs(finished=1)
    assert (job.state, job.failures) == (state, failures)
    await check_invariants(store)


async def test_last_attempt_left_open_is_a_dead_letter(store, corrupter):
    claim = await start(store, max_attempts=2)
    await settle(store, claim, FAILED)
    again = await take(store)
    await settle(store, again, FAILED)
    await corrupter.detach(claim.id)

    await repair(store)

    job = await job_of(store, claim.id)
    assert (job.state, job.reason, job.failures) == (State.DEAD_LETTER, "attempts_exhausted", 2)
    await check_invariants(store)


async def test_failed_link_gets_its_successor_and_the_chain_keeps_its_limit(store, corrupter):
    claim = await start(store, max_attempts=3, params='{"n":1}', priority=4, **LINKED)
    await settle(store, claim, FAILED)
    await corrupter.drop_successor(claim.id)

    done = await repair(store)
    while claims := await take_many(store):
        await settle(store, claims[0], FAILED)

    chain = await store.chain(claim.id)
    assert done == HistoryRepairs(continued=1)
    assert [job.state for job in chain] == [State.FAILED, State.FAILED, State.DEAD_LETTER]
    assert [job.failures for job in chain] == [1, 2, 3]
    assert {(job.params, job.priority, job.root_id) for job in chain} == {
        ('{"n":1}', 4, claim.id),
    }
    await check_invariants(store)


async def test_failed_link_without_attempts_left_is_given_up(store):
    await close_unfollowed(store, claim := await start(store, max_attempts=1, **LINKED))

    done = await repair(store)

    job = await job_of(store, claim.id)
    assert done == HistoryRepairs(given_up=1)
    assert (job.state, job.reason) == (State.DEAD_LETTER, "attempts_exhausted")
    assert await store.chain(claim.id) == [job]
    assert (await kinds(store, claim.id))[-1] is EventKind.GIVEN_UP


@pytest.mark.parametrize("state", [State.QUEUED, State.CANCELLED, State.SUCCEEDED])
async def test_failed_link_with_a_successor_is_left_alone(store, state):
    claim = await start(store, **LINKED)
    await settle(store, claim, FAILED)
    if state is State.CANCELLED:
        await settle(store, (await store.chain(claim.id))[1], CancelRequested())
    elif state is State.SUCCEEDED:
        await settle(store, await take(store), SUCCEEDED)
    before = dump_jobs(store.path)

    done = await recover(store)

    assert (await store.chain(claim.id))[1].state is state
    assert done == RecoveryResult()
    assert dump_jobs(store.path) == before


async def test_once_failure_is_no_broken_chain(store):
    claim = await start(store, delivery=Delivery.ONCE)
    await settle(store, claim, FAILED)

    assert await recover(store) == RecoveryResult()


async def test_orphan_run_is_told_copied_and_removed(store, corrupter, caplog):
    claim = await start(store)
    await settle(store, claim, SUCCEEDED)
    await corrupter.orphan(claim.id)

    done = await repair(store)

    [event] = await store.events(None)
    copy = json.loads(event.detail)
    assert done == HistoryRepairs(orphans=1)
    assert (copy["run_id"], copy["result"]) == (claim.run_id, SUCCEEDED.result)
    assert dump(store.path)["outlast_runs"] == []
    assert f"orphan run removed run={claim.run_id}" in caplog.text
    assert await repair(store) == HistoryRepairs()


async def test_where_nothing_is_wrong_nothing_is_done(store, caplog):
    for delivery in PRESETS:
        for event in (SUCCEEDED, FAILED, LOST):
            queue = f"{delivery}-{type(event).__name__}"
            await settle(store, await start(store, queue=queue, delivery=delivery), event)
    await store.promote_due(limit=MANY)
    await put(store)
    await put(store, delay=HOUR)
    await start(store, NOW, queue="now")
    await start(store, OTHER, queue="other")
    before = dump_jobs(store.path)
    caplog.set_level(logging.INFO)

    done = await recover(store)

    assert (done, done.actions) == (RecoveryResult(), 0)
    assert dump_jobs(store.path) == before
    assert not caplog.records, "a recovery that repaired nothing is no news"


async def test_what_fell_due_meanwhile_is_promoted_and_is_no_repair(store, clock):
    job_id = await put(store, delay=HOUR)
    clock.advance(HOUR)

    done = await recover(store)

    assert (done, done.actions) == (RecoveryResult(promoted=1), 0)
    assert (await job_of(store, job_id)).state is State.QUEUED


async def test_live_workers_of_a_pool_are_left_alone(store):
    await start(store, OTHER, queue="other")
    await start(store, NOW, queue="now")
    before = dump_jobs(store.path)

    assert await recover(store) == RecoveryResult()
    assert dump_jobs(store.path) == before


async def test_alone_it_takes_whatever_another_boot_left(store):
    left = [await start(store, BEFORE, queue="a"), await start(store, OTHER, queue="b")]
    own = await start(store, NOW, queue="c")

    done = await recover(store, scope="all")

    assert done == RecoveryResult(lost=2)
    assert [(await last_run(store, claim.id)).status for claim in left] == [RunStatus.LOST] * 2
    assert (await job_of(store, own.id)).state is State.RUNNING


@pytest.mark.parametrize("is_over", [False, True], ids=["lease runs", "lease over"])
@pytest.mark.parametrize("policy", ["fail", "threshold", "leave"])
async def test_unknown_owner_follows_the_policy(store, clock, caplog, policy, is_over):
    claim = await start(store, OTHER)
    clock.advance(LEASE if is_over else SECOND)

    done = await recover(store, unknown=policy, known=lambda name: name == "worker-1")

    run = await last_run(store, claim.id)
    reasons = {
        ("fail", False): "startup_recovery",
        ("fail", True): "startup_recovery",
        ("threshold", True): "lease_expired",
    }
    reason = reasons.get((policy, is_over))
    assert run.reason == reason
    assert done == RecoveryResult(unknown=int(reason is not None))
    assert ("left to its unknown owner" in caplog.text) is (policy == "leave")
    assert EventKind.LATE_WRITE_REFUSED not in await kinds(store, claim.id)


async def test_run_without_a_holder_is_of_an_unknown_owner(store, corrupter):
    claim = await start(store, OTHER)
    await corrupter.disown(claim.id)

    left = await recover(store)
    done = await recover(store, unknown="fail")

    run = await last_run(store, claim.id)
    assert (left, done) == (RecoveryResult(), RecoveryResult(unknown=1))
    assert (run.holder, run.reason) == (UNKNOWN_HOLDER.instance_id, "startup_recovery")
    assert (await job_of(store, claim.id)).state is State.QUEUED


async def test_every_repair_has_its_line_and_all_of_them_one_more(store, corrupter, caplog):
    lost = await start(store)
    loose = await put(store, queue="loose")
    await corrupter.detach(loose)
    caplog.set_level(logging.INFO)

    await recover(store)
    await repair(store)

    lines = [record.getMessage() for record in caplog.records]
    why = "now=queued reason=startup_recovery"
    assert lines == [
        f"recovered job={lost.id} token=1 holder=worker-1 boot=boot-1 {why}",
        "recovery finished instance=worker-1 boot=boot-2 actions=1 lost=1",
        f"recovered job={loose} token=0 holder=None boot=None {why}",
    ]


async def test_more_than_one_page_of_everything_is_repaired(store, corrupter, monkeypatch):
    monkeypatch.setattr(module, "MAX_BATCH", 2)
    for number in range(5):
        await start(store, queue=f"held-{number}")
        await corrupter.detach(await put(store, queue="loose"))
        ended, link = await start(store, queue="a"), await start(store, queue="b", **LINKED)
        await settle(store, ended, SUCCEEDED)
        await corrupter.detach(ended.id)
        await settle(store, link, FAILED)
        await corrupter.drop_successor(link.id)
        gone = await start(store, queue="c")
        await settle(store, gone, SUCCEEDED)
        await put(store, queue="later")
        await corrupter.orphan(gone.id)

    done = (await recover(store), await repair(store))

    repairs = HistoryRepairs(finished=5, without_run=5, continued=5, orphans=5)
    assert done == (RecoveryResult(lost=5), repairs)
    assert (await recover(store), await repair(store)) == (RecoveryResult(), HistoryRepairs())
    await check_invariants(store)

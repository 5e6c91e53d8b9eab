"""Who pays for the death of a process: those whose code may have ended it, and nobody else."""

import pytest

from outlast.core.delivery import Delivery
from outlast.core.ids import Ids, JobId
from outlast.core.run import Lease
from outlast.core.state import Loss, RunStatus, State
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import SUCCEEDED, job_of, new_id, put, started, take
from outlast.testing.conformance.factories import settle as settle_event
from outlast.testing.model.store import ModelStore
from outlast.worker.supervisor.crash_attribution import (
    MAX_CRASH_BACKOFF,
    CrashReport,
    charged_runs,
    close_runs,
)
from outlast.worker.supervisor.shared_lease_table import LeaseEntry
from outlast.worker.supervisor.watchdog import is_overdue

A, B, C = (Lease(JobId(name), 1) for name in "ABC")


def entry(lease, executor="async", *, begun=True, stepping=False):
    return LeaseEntry(lease, 1 if begun else None, None, executor, is_stepping=stepping)


@pytest.mark.parametrize(
    ("entries", "from_outside", "blamed"),
    [
        ([entry(A, stepping=True), entry(B)], False, {A}),
        ([entry(A), entry(B)], False, {A, B}),
        ([entry(A, "thread"), entry(B)], False, {A}),
        ([entry(A, "thread"), entry(B, stepping=True), entry(C)], False, {A, B}),
        ([entry(A, stepping=True), entry(B)], True, {A, B}),
        ([entry(A, "process"), entry(B, "command")], False, set()),
        ([entry(A, "process"), entry(B)], True, {B}),
        ([entry(A, begun=False), entry(B)], False, {B}),
        ([entry(A, begun=False)], True, set()),
        ([entry(A, "none"), entry(B)], False, {B}),
        ([entry(A, "none"), entry(B)], True, {B}),
        ([entry(A, "none"), entry(B, "process")], False, {A}),
    ],
)
def test_only_code_that_was_running_in_the_process_is_blamed(entries, from_outside, blamed):
    assert charged_runs(entries, from_outside=from_outside) == blamed


@pytest.fixture
async def store():
    clock = FakeClock()
    store = ModelStore(clock, Ids(clock.now, lambda bits: 7))
    await store.open()
    return store


def dead(*charged, reason=Loss.OWNER_DEAD, is_proved=False):
    charges = frozenset(charged)
    return CrashReport(reason=reason, charged=charges, error="status 9", is_proved=is_proved)


async def test_the_one_to_blame_pays_and_its_neighbours_are_handed_back(store):
    guilty, beside = await started(store), await started(store)

    went = await close_runs(store, [guilty.lease, beside.lease], dead(guilty.lease), new_id=new_id)

    jobs = [await job_of(store, each.id) for each in (guilty, beside)]
    assert went == {State.QUEUED: 2}
    assert [(job.failures, job.losses) for job in jobs] == [(1, 1), (0, 0)]
    runs = [(await store.runs(each.id))[0] for each in (guilty, beside)]
    assert [(run.status, run.reason) for run in runs] == [
        (RunStatus.LOST, "owner_dead"),
        (RunStatus.RELEASED, "owner_dead"),
    ]


@pytest.mark.parametrize(
    ("delivery", "state"), [(Delivery.LINKED, State.FAILED), (Delivery.ONCE, State.FAILED)]
)
async def test_what_never_runs_twice_is_lost_with_its_process_guilty_or_not(store, delivery, state):
    beside = await started(store, delivery=delivery)

    await close_runs(store, [beside.lease], dead(), new_id=new_id)

    assert (await job_of(store, beside.id)).state is state


async def test_a_run_that_had_ended_keeps_its_end_which_is_told_and_nothing_is_written(store):
    done = await started(store)
    await settle_event(store, done, SUCCEEDED)
    before = await job_of(store, done.id)

    went = await close_runs(store, [done.lease], dead(done.lease), new_id=new_id)

    assert went == {State.SUCCEEDED: 1}  # its process did not live to tell it
    assert await job_of(store, done.id) == before
    assert await store.events(done.id) == []


@pytest.mark.parametrize(
    ("is_proved", "expected"),
    [
        (False, [0, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60]),
        (True, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60]),
    ],
)
async def test_a_job_that_ends_its_processes_waits_longer_each_time_and_others_go_first(
    store, is_proved, expected
):
    job_id = await put(store, max_attempts=None)
    waits = []
    for _ in expected:
        claim = await take(store)
        guilty = dead(claim.lease, is_proved=is_proved)
        await close_runs(store, [claim.lease], guilty, new_id=new_id)
        job = await job_of(store, job_id)
        now = store._clock.now()
        waits.append(
            (job.available_at - now).total_seconds() if job.state is State.RETRY_WAIT else 0
        )
        store._clock.advance(MAX_CRASH_BACKOFF)

    assert waits == expected


async def test_a_shutdown_charges_nobody(store):
    claim = await started(store)

    await close_runs(store, [claim.lease], dead(reason=Loss.SHUTDOWN), new_id=new_id)

    job = await job_of(store, claim.id)
    assert (job.state, job.failures) == (State.QUEUED, 0)


SECONDS = 1_000_000


@pytest.mark.parametrize(
    ("executor", "seconds", "late"),
    [
        ("async", 0.9, False),
        ("thread", 1.1, True),
        ("process", 2.9, False),  # its executor kills it after two
        ("command", 2.9, False),
        ("command", 3.1, True),
        ("none", 60, False),  # it has returned, and waits for the store
    ],
)
def test_only_a_handler_that_still_runs_and_that_nobody_else_ends_is_late(executor, seconds, late):
    run = LeaseEntry(A, 1, 10 * SECONDS, executor, is_stepping=False)

    assert is_overdue(run, 10 * SECONDS + int(seconds * SECONDS)) is late

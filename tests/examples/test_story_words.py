"""S1's words for each of our records, in every state a record can have."""

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from outlast import Job, State, Template, TransitionRefused
from outlast.core import event as ev
from outlast.core.decide import TABLE, decide
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.ids import JobId, RunId
from outlast.core.reservation import Reservation, ReservationId, ReservationStatus
from outlast.core.run import RunRecord
from outlast.core.state import Loss, RunStatus
from story_studio import words

EARLY = datetime(2026, 1, 18, 9, tzinfo=UTC)
LATE = EARLY + timedelta(minutes=5)

JOBS = {
    State.NEW: "QUEUED",
    State.BLOCKED: "QUEUED",
    State.SCHEDULED: "QUEUED",
    State.QUEUED: "QUEUED",
    State.RUNNING: "RUNNING",
    State.SUCCEEDED: "RUNNING",
    State.FAILED: "RUNNING",
    State.DEAD_LETTER: "RUNNING",
    State.SKIPPED: "RUNNING",
    State.CANCELLED: "CANCELLED",
}
RUNS = {
    RunStatus.RUNNING: None,
    RunStatus.SUCCEEDED: "COMPLETED",
    RunStatus.FAILED: "FAILED",
    RunStatus.LOST: "FAILED",
    RunStatus.SKIPPED: "SKIPPED",
    RunStatus.CANCELLED: "SKIPPED",
}
EVENTS: list[Event] = [
    ev.Succeeded(),
    ev.Failed("it broke"),
    ev.Failed("it broke", timedelta(seconds=1)),
    ev.Failed("it broke", permanent=True),
    *(ev.Lost(reason) for reason in Loss),
    ev.Lost(Loss.OWNER_DEAD, delay=timedelta(seconds=1)),
    ev.Released("drain"),
    ev.Snoozed(timedelta(seconds=1)),
    ev.Unfit("no field", "worker-1", timedelta(hours=1)),
    ev.Unfit("no field", "worker-1", timedelta(0)),
    ev.Skipped("empty"),
    ev.Stopped("enough"),
    ev.CancelRequested(),
    ev.Abandoned(next(iter(ev.Abandonment))),
    ev.FellDue(),
    ev.Unblocked(),
    ev.Misfired(),
    ev.GivenUp("enough"),
    *(ev.DetachedJobFound(status) for status in RunStatus if status is not RunStatus.RUNNING),
    ev.DetachedJobFound(None),
    ev.SuccessorMissing("startup_recovery"),
    ev.GroupStopped(skip=True),
    ev.GroupStopped(skip=False),
]


def make_job(state: State, *, token: int = 1, delivery: Delivery = Delivery.LINKED) -> Job:
    return Job(
        id=JobId("job-2"),
        seq=2,
        type="story",
        name="story",
        params='{"title":"The Keeper\'s Lamp"}',
        queue="studio",
        delivery=delivery,
        priority=3,
        position=200,
        max_attempts=4,
        created_at=EARLY,
        available_at=EARLY,
        slot_at=None,
        start_deadline=None,
        retry_of=JobId("job-1"),
        root_id=JobId("job-1"),
        group_id="a-group",
        template_id="a-template",
        template_at=EARLY,
        schedule_id="a-schedule",
        state=state,
        reason=None,
        token=token,
        failures=1,
        losses=0,
        cancel_requested=False,
        holder="studio-1",
        boot_id="a-boot",
        started_at=EARLY,
        finished_at=LATE,
    )


def make_run(status: RunStatus, reason: str | None = None) -> RunRecord:
    return RunRecord(
        run_id=RunId("a-run"),
        job_id=JobId("job-2"),
        token=1,
        status=status,
        reason=reason,
        holder="studio-1",
        boot_id="a-boot",
        started_at=EARLY,
        finished_at=LATE,
        error="our own words",
        result='"never shown"',
        exit_code=3,
        log_path="logs/a-run.log",
        artifacts=("a.txt", "b.txt"),
        params_snapshot='{"title":"The Keeper\'s Lamp"}',
        template_id="a-template",
        template_at=EARLY,
    )


def make_reservation(status: ReservationStatus) -> Reservation:
    return Reservation(
        id=ReservationId("a-reservation"),
        queue="studio",
        job_id=JobId("job-2"),
        caller="caller-1",
        request="the boss",
        status=status,
        reason=None,
        reserved_at=EARLY,
        expires_at=LATE,
        ended_at=None,
    )


@pytest.mark.parametrize("state", State)
def test_every_state_of_a_job_has_one_of_three_words_or_is_refused(state: State) -> None:
    if state in JOBS:
        assert words.job_status(make_job(state)) == JOBS[state]
    else:
        with pytest.raises(ValueError, match="job-2 waits to be run again"):
            words.job_status(make_job(state))


def test_only_what_no_job_of_a_chain_can_be_has_no_word() -> None:
    reachable = _reachable({State.BLOCKED, State.SCHEDULED, State.QUEUED})

    assert {type(event) for event in EVENTS} | {ev.Edited, ev.Moved} == {kind for _, kind in TABLE}
    assert reachable == JOBS.keys() - {State.NEW}
    assert set(State) - JOBS.keys() == {State.RETRY_WAIT}


def _reachable(states: set[State]) -> set[State]:
    """Every state that the transition table leads to from these, under `linked`."""
    found = states | {State.RUNNING}
    for state in states | {State.RUNNING}:
        for event in EVENTS:
            try:
                found.add(decide(make_job(state), event, new_id=lambda: JobId("job-3")).move.to)
            except TransitionRefused:
                continue
    return found if found == states else _reachable(found)


@pytest.mark.parametrize("state", [State.SKIPPED, State.CANCELLED])
def test_a_job_that_ends_without_a_run_was_never_running(state: State) -> None:
    assert words.job_status(make_job(state, token=0)) == "CANCELLED"


@pytest.mark.parametrize("state", State)
def test_permanently_failed_is_a_dead_letter_alone(state: State) -> None:
    if state in JOBS:
        marked = words.job_row(make_job(state)).permanently_failed
        assert marked is (state is State.DEAD_LETTER)


@pytest.mark.parametrize("delivery", [each for each in Delivery if each is not Delivery.LINKED])
@pytest.mark.parametrize("state", State)
def test_a_job_that_may_run_twice_or_never_again_is_none_of_s1(
    state: State, delivery: Delivery
) -> None:
    with pytest.raises(ValueError, match=f"job-2 is delivered {delivery}; S1 has words for linked"):
        words.job_row(make_job(state, delivery=delivery))


def test_a_job_row_has_the_columns_of_s1_and_their_values() -> None:
    row = words.job_row(make_job(State.RUNNING))

    assert row == words.JobRow(
        job_id="job-2",
        template_id="a-template",
        schedule_id="a-schedule",
        group_id="a-group",
        job_type="story",
        params={"title": "The Keeper's Lamp"},
        status=words.JobStatus.RUNNING,
        priority=3,
        position=200,
        retry_of="job-1",
        created_at=EARLY,
        queued_at=EARLY,
        started_at=EARLY,
        finished_at=LATE,
        worker_id="studio-1",
        permanently_failed=False,
    )


@pytest.mark.parametrize("status", RunStatus)
def test_every_status_of_a_run_has_its_word_or_is_refused(status: RunStatus) -> None:
    if status in RUNS:
        assert words.run_status(make_run(status)) == RUNS[status]
    else:
        assert status is RunStatus.RELEASED
        with pytest.raises(ValueError, match="a-run was released"):
            words.run_row(make_run(status))


@pytest.mark.parametrize("reason", Loss)
def test_however_a_run_was_lost_it_failed_by_crash_recovery(reason: Loss) -> None:
    row = words.run_row(make_run(RunStatus.LOST, reason))

    assert (row.status, row.error) == ("FAILED", "Scheduler crash recovery")


@pytest.mark.parametrize("status", sorted(RUNS.keys() - {RunStatus.LOST}))
def test_a_run_row_has_the_columns_of_s1_and_their_values(status: RunStatus) -> None:
    row = words.run_row(make_run(status))

    assert row == words.JobRunRow(
        run_id="a-run",
        job_id="job-2",
        template_id="a-template",
        params_snapshot={"title": "The Keeper's Lamp"},
        status=words.run_status(make_run(status)),
        started_at=EARLY,
        finished_at=LATE,
        exit_code=3,
        error="our own words",
        artifacts=["a.txt", "b.txt"],
        log_path="logs/a-run.log",
    )


@pytest.mark.parametrize("status", ReservationStatus)
def test_every_status_of_a_reservation_has_its_word(status: ReservationStatus) -> None:
    row = words.reservation_row(make_reservation(status))

    assert row == words.ReservationRow(
        reservation_id="a-reservation",
        reserved_at=EARLY,
        reserved_by="caller-1 for the boss",
        status=words.DirectStatus(status.upper()),
        expires_at=LATE,
    )


def test_a_template_row_counts_retries() -> None:
    template = Template(
        id="a-template",
        name="bedtime",
        type="story",
        params='{"pages":3}',
        queue=None,
        priority=2,
        max_attempts=4,
        created_at=EARLY,
        updated_at=LATE,
    )

    row = words.template_row(template)

    assert (row.template_id, row.name, row.job_type) == ("a-template", "bedtime", "story")
    assert (row.params, row.priority, row.max_retries) == ({"pages": 3}, 2, 3)
    assert (row.created_at, row.updated_at) == (EARLY, LATE)
    assert words.template_row(replace(template, max_attempts=None)).max_retries is None


JOB = """job_id template_id schedule_id group_id job_type params status priority position
retry_of created_at queued_at started_at finished_at worker_id permanently_failed"""
JOB_RUN = """run_id job_id template_id params_snapshot status started_at finished_at exit_code
error artifacts log_path"""
RESERVATION = "reservation_id reserved_at reserved_by status expires_at"


@pytest.mark.parametrize(
    ("row", "columns"),
    [(words.JobRow, JOB), (words.JobRunRow, JOB_RUN), (words.ReservationRow, RESERVATION)],
)
def test_rows_have_the_columns_of_s1_in_their_order(row: type, columns: str) -> None:
    assert [field.name for field in fields(row)] == columns.split()

"""`decide` against the table written by hand in `transitions`: no combination is left out."""

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from typing import Any, get_args

import pytest

from outlast.core import event as ev
from outlast.core.decide import CLAIM, SUCCESS, TABLE, Change, Successor, decide, succeed
from outlast.core.delivery import Delivery
from outlast.core.event import Event
from outlast.core.ids import JobId, RunId
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.core.refusals import Refusals
from outlast.core.run import Claim
from outlast.core.state import FINAL, Loss, RunStatus, State
from outlast.errors import TransitionRefused

from .transition_table import AT, DELAY, EVENTS, HOUR, Case, Standing, cases, cells, stories

PRESETS = (Delivery.LEASE, Delivery.LINKED, Delivery.ONCE)
NEXT = JobId("the-next-job")
RAISED = {"none": (0, 0), "failure": (1, 0), "loss": (1, 1)}


def no_id() -> JobId:
    raise AssertionError("an id was made for a job that is not written")


def running(delivery: Delivery = Delivery.LEASE, **changes: Any) -> Standing:
    return Standing(state=State.RUNNING, delivery=delivery, **changes)


def queued(token: int = 0) -> Standing:
    return Standing(state=State.QUEUED, delivery=Delivery.LEASE, token=token)


def waiting() -> Standing:
    return Standing(state=State.QUEUED, delivery=Delivery.LEASE, token=0)


def summary(change: Change) -> dict[str, str]:
    move = change.move
    return {
        "to": move.to,
        "run": move.run or "-",
        "guard": move.guard,
        "kind": move.kind or "-",
        "next": "next" if change.successor else "-",
        "yields": "yields" if move.yields_to_cancel else "-",
    }


def check(case: Case) -> None:
    if case.expected is None:
        with pytest.raises(TransitionRefused, match=f"the-job is {case.job.state} "):
            decide(case.job, case.event, new_id=no_id)
        return
    writes_run = (case.expected["guard"], case.expected["run"]) == ("adrift", "lost")
    makes_ids = writes_run or case.expected["next"] == "next"
    change = decide(case.job, case.event, new_id=(lambda: NEXT) if makes_ids else no_id)
    assert summary(change) == {name: case.expected[name] for name in summary(change)}
    assert counts(case.job, change) == RAISED[case.expected["counts"]]
    assert (change.job_id, change.token) == (case.job.id, case.job.token)
    assert change.was is case.job.state
    assert change.run_id == (NEXT if writes_run else None)


def counts(job: Standing, change: Change) -> tuple[int, int]:
    failures = job.failures if change.failures is None else change.failures
    losses = job.losses if change.losses is None else change.losses
    return failures - job.failures, losses - job.losses


@pytest.mark.parametrize(("delivery", "state", "event"), [*product(PRESETS, State, EVENTS)])
def test_every_state_event_and_delivery_goes_where_the_table_says(
    delivery: Delivery, state: State, event: str
):
    story = cells()[delivery, state, event]

    reported = list(cases(delivery, state, event, story))

    assert reported
    for case in reported:
        check(case)


def test_no_combination_is_missing_from_the_table():
    everything = set(product(PRESETS, State, EVENTS))

    written = cells()

    assert set(written) == everything
    assert len(written) == 11 * 20 * 3


def test_every_kind_of_event_is_in_the_table_and_every_story_is_used():
    kinds = {
        type(event) for hows in EVENTS.values() for events in hows.values() for event in events
    }

    used = set(cells().values())

    assert kinds == set(get_args(Event))
    assert used - {".", "store"} == {line["story"] for line in stories()}


def test_the_store_alone_takes_a_queued_job_to_running():
    into_running = [
        (state, event)
        for (_, state, event), story in cells().items()
        if any(line["story"] == story and line["to"] == "running" for line in stories())
    ]

    assert CLAIM == (State.QUEUED, State.RUNNING)
    assert set(into_running) == {(State.RUNNING, "cancel"), (State.RUNNING, "out")}
    assert not [key for key in TABLE if key[1] is ev.Claimed]


def test_an_end_is_an_end_but_for_a_failed_link_of_a_chain_that_is_given_up_or_goes_on():
    cells_of_ends = {key: story for key, story in cells().items() if key[1] in FINAL}

    moving = {key for key, story in cells_of_ends.items() if story != "."}

    assert moving == {(Delivery.LINKED, State.FAILED, event) for event in ("bury", "go_on")}


@pytest.mark.parametrize("delivery", Delivery)
def test_success_is_one_constant_for_every_delivery(delivery: Delivery):
    job = running(delivery)

    change = decide(job, ev.Succeeded("[1]"), new_id=no_id)

    assert change.move is SUCCESS
    assert change == succeed(job.id, job.token, "[1]")


def test_a_claim_is_enough_to_decide_by():
    claim = Claim(JobId("a"), 3, RunId("r"), "t", "{}", Delivery.LEASE, 1, 0, 5)
    job = running(id=JobId("a"), token=3, failures=1, losses=0)

    decided = [decide(one, ev.Failed("boom"), new_id=no_id) for one in (claim, job)]

    assert decided[0] == decided[1]


def test_a_broadcast_task_is_retried_in_place_but_closed_when_lost():
    task = running(Delivery.BROADCAST)

    failed = decide(task, ev.Failed("boom"), new_id=no_id)
    lost = decide(task, ev.Lost(Loss.OWNER_DEAD), new_id=no_id)

    assert failed.move.to is State.RETRY_WAIT
    assert lost.move.to is State.FAILED


@pytest.mark.parametrize(
    ("event", "delay"),
    [
        (ev.Failed("boom", DELAY), DELAY),
        (ev.Snoozed(DELAY), DELAY),
        (ev.Lost(Loss.LEASE_EXPIRED), timedelta(0)),
        (ev.Released("shutdown"), timedelta(0)),
    ],
)
def test_a_failure_and_a_snooze_wait_but_a_loss_and_a_release_do_not(
    event: Event, delay: timedelta
):
    change = decide(running(), event, new_id=no_id)

    assert change.delay == delay


@pytest.mark.parametrize(
    ("event", "delay"),
    [(ev.Failed("boom", DELAY), DELAY), (ev.Lost(Loss.OWNER_DEAD), timedelta(0))],
)
def test_a_chain_hands_its_delay_to_the_successor(event: Event, delay: timedelta):
    change = decide(running(Delivery.LINKED), event, new_id=lambda: NEXT)

    assert change.successor == Successor(NEXT, delay)


REASONS: list[tuple[Callable[[], Standing], Event, str | None]] = [
    (running, ev.Failed("boom"), "failed"),
    (running, ev.Failed("boom", permanent=True), "permanent"),
    (lambda: running(failures=4), ev.Failed("boom"), "attempts_exhausted"),
    (lambda: running(failures=4), ev.Failed("boom", permanent=True), "permanent"),
    (lambda: running(Delivery.ONCE), ev.Failed("boom", permanent=True), "failed"),
    (running, ev.Lost(Loss.SILENT), "silent"),
    (lambda: running(failures=4), ev.Lost(Loss.SILENT), "silent"),
    (lambda: running(Delivery.ONCE), ev.Lost(Loss.TIMEOUT), "timeout"),
    (running, ev.Released("drain"), "drain"),
    (running, ev.Snoozed(DELAY, "busy"), "busy"),
    (running, ev.Unfit("no field", "w1", HOUR), "unfit_params"),
    (lambda: running(Delivery.ONCE), ev.Unfit("no field", "w1", HOUR), "unfit_params"),
    (running, ev.Unfit("no field", "w1", timedelta(0)), "unfit_params"),
    (running, ev.Skipped("nothing new"), "nothing new"),
    (running, ev.Stopped("asked"), "asked"),
    (running, ev.CancelRequested("by hand"), "by hand"),
    (running, ev.CancelRequested(), None),
    (running, ev.GroupStopped(), "group_stopped"),
    (running, ev.DetachedJobFound(RunStatus.SUCCEEDED, "why"), None),
    (running, ev.DetachedJobFound(RunStatus.SKIPPED, "nothing new"), "nothing new"),
    (running, ev.DetachedJobFound(RunStatus.LOST, "silent"), "silent"),
    (running, ev.DetachedJobFound(RunStatus.LOST, "by hand"), "startup_recovery"),
    (lambda: running(failures=5), ev.DetachedJobFound(RunStatus.FAILED), "attempts_exhausted"),
    (queued, ev.Edited(JobEdit(params="[1]", priority=3)), "params, priority"),
    (queued, ev.Edited(JobEdit(delay=DELAY)), "delay"),
    (queued, ev.Moved(MoveTo(Anchor.BACK)), "back"),
    (queued, ev.Moved(MoveTo(Anchor.AFTER, NEXT)), f"after {NEXT}"),
    (waiting, ev.Abandoned(ev.Abandonment.OWNER_DEAD), "owner_dead"),
    (waiting, ev.Abandoned(ev.Abandonment.CALLER_SILENT), "caller_silent"),
]


@pytest.mark.parametrize(("job", "event", "reason"), REASONS)
def test_the_reason_says_why(job: Callable[[], Standing], event: Event, reason: str | None):
    change = decide(job(), event, new_id=no_id)

    assert change.reason == reason


def test_the_delay_of_a_refusal_doubles_up_to_a_minute():
    delays = []
    for count in (0, 1, 2, 5, 6, 5_000):
        before = Refusals(count=count, since=AT, workers=("w1",)) if count else None
        change = decide(running(), ev.Unfit("no", "w1", HOUR, before), new_id=no_id)
        delays.append(change.delay.total_seconds())

    assert delays == [1, 2, 4, 32, 60, 60]


def test_a_refused_job_is_due_again_when_max_unfit_has_passed_at_the_latest():
    before = Refusals(count=40, since=AT, workers=("w1",))
    event = ev.Unfit("no", "w1", HOUR, before, HOUR - DELAY)

    assert decide(running(), event, new_id=no_id).delay == DELAY
    assert decide(running(Delivery.LINKED), event, new_id=lambda: NEXT).successor == Successor(
        NEXT, DELAY
    )


@pytest.mark.parametrize(
    "event",
    [ev.Failed("boom"), ev.Lost(Loss.SILENT, "boom"), ev.Unfit("boom", "w1", HOUR)],
)
@pytest.mark.parametrize("delivery", PRESETS)
def test_the_error_of_a_run_is_kept_wherever_its_job_goes(delivery: Delivery, event: Event):
    change = decide(running(delivery), event, new_id=lambda: NEXT)

    assert change.error == "boom"


def test_a_job_with_an_open_run_is_not_detached():
    with pytest.raises(TransitionRefused, match="the-job has an open run"):
        decide(running(), ev.DetachedJobFound(RunStatus.RUNNING), new_id=no_id)


def test_the_counts_of_a_detached_job_are_written_out():
    change = decide(
        running(failures=2, losses=1), ev.DetachedJobFound(RunStatus.FAILED), new_id=no_id
    )

    assert (change.failures, change.losses) == (2, 1)


def test_an_edit_and_a_place_are_handed_on_as_they_are():
    edit, place = JobEdit(params="[1]", at=AT), MoveTo(Anchor.SWAP, NEXT)

    assert decide(queued(), ev.Edited(edit), new_id=no_id).edit is edit
    assert decide(queued(), ev.Moved(place), new_id=no_id).place is place


@pytest.mark.parametrize("state", [State.QUEUED, State.RETRY_WAIT, State.SCHEDULED])
def test_params_are_frozen_at_the_first_claim(state: State):
    job = Standing(state=state, delivery=Delivery.LEASE, token=1)

    with pytest.raises(TransitionRefused, match=f"the-job is {state} .* frozen at its first claim"):
        decide(job, ev.Edited(JobEdit(params="[1]")), new_id=no_id)


def test_a_refusal_names_the_job_its_state_and_the_event():
    job = Standing(state=State.SUCCEEDED, delivery=Delivery.LINKED)

    with pytest.raises(TransitionRefused) as refused:
        decide(job, ev.CancelRequested(), new_id=no_id)

    assert str(refused.value) == (
        "job the-job is succeeded (linked); CancelRequested does not apply to it"
    )

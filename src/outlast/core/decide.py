"""The state machine of a job: `decide(job, event)` returns the change to write.

`decide` chooses the change; a store's `apply` checks the guard and writes it. No other code
chooses a state.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Final, assert_never

from outlast.core import event as ev
from outlast.core.change import SUCCESS, Change, Guard, JobView, Successor, Transition
from outlast.core.delivery import Delivery, OnFailure, OnLoss
from outlast.core.event import ZERO, Event, EventKind
from outlast.core.ids import JobId, RunId
from outlast.core.refusals import UNFIT, delay_after, refusal_detail
from outlast.core.retry import attempts_exhausted
from outlast.core.state import WAITING, Loss, RunStatus, State
from outlast.errors import TransitionRefused

__all__ = [
    "CLAIM",
    "SUCCESS",
    "TABLE",
    "Change",
    "Guard",
    "JobView",
    "Successor",
    "Transition",
    "decide",
    "succeed",
]

Rule = Callable[[JobView, Event, Callable[[], JobId]], Change]


def decide(job: JobView, event: Event, *, new_id: Callable[[], JobId]) -> Change:
    """Return the change that an event causes; TransitionRefused if the state does not allow it.

    `new_id` is called only for the id of a successor, or of a run for a job that has none.
    """
    rule = TABLE.get((job.state, type(event)))
    if rule is None:
        raise _refused(job, event)
    return rule(job, event, new_id)


def succeed(job_id: JobId, token: int, result: str | None) -> Change:
    """Return `decide(job, Succeeded(result))` for a running job, without the table lookup."""
    return Change(job_id, token, SUCCESS, result=result)


def _on_unfit(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
    """Return the refusal: the job waits or is continued, and no attempt is spent."""
    assert isinstance(event, ev.Unfit)
    if job.delivery.on_failure is OnFailure.CLOSE:
        change = _close(job, State.SKIPPED, RunStatus.SKIPPED, EventKind.SKIPPED, UNFIT)
        return replace(change, error=event.error)
    if event.age >= event.max_unfit:
        change = _close(job, State.DEAD_LETTER, RunStatus.FAILED, EventKind.DEAD_LETTER, UNFIT)
        return replace(change, error=event.error, failures=job.failures + 1)
    count = 1 if event.before is None else event.before.count + 1
    delay = min(delay_after(count), event.max_unfit - event.age)
    if job.delivery.on_failure is OnFailure.SUCCESSOR:
        change = _close_with_successor(job, RunStatus.RELEASED, Guard.OPEN, UNFIT, delay, new_id)
    else:
        move = _returned(State.RETRY_WAIT, RunStatus.RELEASED, EventKind.UNFIT)
        change = Change(job.id, job.token, move, reason=UNFIT, delay=delay)
    return replace(change, error=event.error, detail=refusal_detail(event.before, event.worker))


def _on_skipped(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Skipped)
    return _close(job, State.SKIPPED, RunStatus.SKIPPED, EventKind.SKIPPED, event.reason)


def _on_stopped(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Stopped)
    return _close(job, State.CANCELLED, RunStatus.CANCELLED, EventKind.CANCELLED, event.reason)


def _on_succeeded(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Succeeded)
    return succeed(job.id, job.token, event.result)


def _on_failed(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Failed)
    return _after_failure(job, job.failures + 1, event, new_id)


def _after_failure(
    job: JobView, failures: int, event: ev.Failed, new_id: Callable[[], JobId]
) -> Change:
    spent = attempts_exhausted(failures, job.max_attempts)
    match job.delivery.on_failure:
        case OnFailure.CLOSE:
            change = _close(job, State.FAILED, RunStatus.FAILED, EventKind.CLOSED, "failed")
        case _ if event.permanent or spent:
            why = "permanent" if event.permanent else "attempts_exhausted"
            change = _close(job, State.DEAD_LETTER, RunStatus.FAILED, EventKind.DEAD_LETTER, why)
        case OnFailure.SUCCESSOR:
            change = _close_with_successor(
                job, RunStatus.FAILED, Guard.OPEN, "retried", event.delay, new_id
            )
        case OnFailure.IN_PLACE:
            move = _returned(State.RETRY_WAIT, RunStatus.FAILED, EventKind.RETRY)
            change = Change(job.id, job.token, move, reason="failed", delay=event.delay)
    return replace(change, error=event.error, failures=failures)


def _on_lost(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Lost)
    return _after_loss(job, job.failures + 1, job.losses + 1, event, new_id)


def _after_loss(
    job: JobView, failures: int, losses: int, event: ev.Lost, new_id: Callable[[], JobId]
) -> Change:
    guard = Guard.LAPSED if event.reason == Loss.LEASE_EXPIRED else Guard.OPEN
    match job.delivery.on_loss:
        case OnLoss.CLOSE:
            change = _close(job, State.FAILED, RunStatus.LOST, EventKind.CLOSED, event.reason)
        case _ if attempts_exhausted(failures, job.max_attempts):
            change = _close(
                job, State.DEAD_LETTER, RunStatus.LOST, EventKind.DEAD_LETTER, event.reason
            )
        case OnLoss.SUCCESSOR:
            change = _close_with_successor(
                job, RunStatus.LOST, guard, event.reason, event.delay, new_id
            )
        case OnLoss.REQUEUE:
            to = State.RETRY_WAIT if event.delay else State.QUEUED
            move = _returned(to, RunStatus.LOST, EventKind.REQUEUED)
            change = Change(job.id, job.token, move, reason=event.reason, delay=event.delay)
    move = replace(change.move, guard=guard)
    return replace(change, move=move, error=event.error, failures=failures, losses=losses)


def _on_released(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Released)
    return _release(job, event, State.QUEUED, EventKind.RELEASED, event.reason, ZERO)


def _on_snoozed(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Snoozed)
    return _release(job, event, State.RETRY_WAIT, EventKind.SNOOZED, event.reason, event.delay)


def _cancel_running(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.CancelRequested)
    move = Transition(guard=Guard.OPEN, to=State.RUNNING, kind=EventKind.CANCEL_REQUESTED)
    return Change(job.id, job.token, move, reason=event.reason)


def _cancel_waiting(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.CancelRequested)
    move = Transition(guard=Guard.WAITING, to=State.CANCELLED, kind=EventKind.CANCELLED)
    return _without_run(job, move, event.reason or "cancelled")


def _group_stopped_running(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.GroupStopped)
    if event.skip:
        raise _refused(job, event)  # running members may finish
    return _cancel_running(job, ev.CancelRequested("group_stopped"), _)


def _group_stopped_waiting(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.GroupStopped)
    if not event.skip:
        return _cancel_waiting(job, ev.CancelRequested("group_stopped"), _)
    move = Transition(guard=Guard.WAITING, to=State.SKIPPED, kind=EventKind.SKIPPED)
    return _without_run(job, move, "group_skipped")


def _on_abandoned(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Abandoned)
    is_dead = event.reason is ev.Abandonment.OWNER_DEAD
    # An expired reservation may still be renewed by its caller; a dead caller's cannot.
    guard = Guard.WAITING if is_dead else Guard.RESERVATION_EXPIRED
    move = Transition(guard=guard, to=State.CANCELLED, kind=EventKind.ABANDONED)
    return _without_run(job, move, event.reason)


def _on_fell_due(job: JobView, _event: Event, _: Callable[[], JobId]) -> Change:
    return _without_run(job, Transition(guard=Guard.STATE, to=State.QUEUED), None)


def _on_unblocked(job: JobView, _event: Event, _: Callable[[], JobId]) -> Change:
    move = Transition(guard=Guard.STATE, to=State.SCHEDULED, kind=EventKind.UNBLOCKED)
    return _without_run(job, move, None)


def _on_misfired(job: JobView, _event: Event, _: Callable[[], JobId]) -> Change:
    move = Transition(guard=Guard.STATE, to=State.SKIPPED, kind=EventKind.MISFIRE)
    return _without_run(job, move, "misfire")


def _on_given_up(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.GivenUp)
    if job.state is State.FAILED and job.delivery is not Delivery.LINKED:
        raise _refused(job, event)
    move = Transition(guard=Guard.STATE, to=State.DEAD_LETTER, kind=EventKind.GIVEN_UP)
    return _without_run(job, move, event.reason)


def _on_detached(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
    """Return the change that its last run causes, counts unchanged; without a run, a loss."""
    assert isinstance(event, ev.DetachedJobFound)
    if event.last is None:
        lost = _on_lost(job, ev.Lost(Loss.STARTUP_RECOVERY, event.detail), new_id)
        return replace(lost, move=_detached(lost.move), run_id=RunId(new_id()))
    change = _after_last_run(job, event.last, event.reason, new_id)
    return replace(
        change,
        move=_detached(replace(change.move, run=None)),
        error=event.detail,
        failures=job.failures,
        losses=job.losses,
    )


def _after_last_run(
    job: JobView, last: RunStatus, why: str | None, new_id: Callable[[], JobId]
) -> Change:
    match last:
        case RunStatus.SUCCEEDED:
            return _close(job, State.SUCCEEDED, last, EventKind.RECOVERED, None)
        case RunStatus.SKIPPED:
            return _close(job, State.SKIPPED, last, EventKind.SKIPPED, why)
        case RunStatus.CANCELLED:
            return _close(job, State.CANCELLED, last, EventKind.CANCELLED, why)
        case RunStatus.FAILED:
            failed = ev.Failed("", permanent=why == "permanent")
            return _after_failure(job, job.failures, failed, new_id)
        case RunStatus.RELEASED if job.delivery.runs_again:
            return Change(
                job.id, job.token, _returned(State.QUEUED, last, EventKind.RELEASED), reason=why
            )
        case RunStatus.LOST | RunStatus.RELEASED:
            loss = Loss(why) if why in set(Loss) else Loss.STARTUP_RECOVERY
            return _after_loss(job, job.failures, job.losses, ev.Lost(loss), new_id)
        case RunStatus.RUNNING:
            raise TransitionRefused(f"job {job.id} has an open run; it is not detached")
    assert_never(last)


def _on_successor_missing(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.SuccessorMissing)
    if job.delivery is not Delivery.LINKED:
        raise _refused(job, event)
    if attempts_exhausted(job.failures, job.max_attempts):
        return _on_given_up(job, ev.GivenUp("attempts_exhausted"), new_id)
    move = Transition(guard=Guard.STATE, to=State.FAILED, kind=EventKind.CHAINED)
    return replace(_without_run(job, move, event.reason), successor=Successor(new_id()))


def _on_edited(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    """Return the edit; with a new due time a scheduled or queued job becomes scheduled again."""
    assert isinstance(event, ev.Edited)
    edit = event.edit
    if edit.params is not None and job.token:
        raise TransitionRefused(
            f"job {job.id} is {job.state} and was claimed before; its params are frozen at its "
            "first claim; cancel it and enqueue another job"
        )
    starts_over = edit.is_due_time and job.state in (State.SCHEDULED, State.QUEUED)
    to = State.SCHEDULED if starts_over else job.state
    move = Transition(guard=Guard.STATE, to=to, kind=EventKind.EDITED)
    return replace(_without_run(job, move, edit.fields), edit=edit)


def _on_moved(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Moved)
    move = Transition(guard=Guard.STATE, to=job.state, kind=EventKind.MOVED)
    return replace(_without_run(job, move, str(event.place)), place=event.place)


def _detached(move: Transition) -> Transition:
    return replace(move, guard=Guard.DETACHED, yields_to_cancel=False)


def _close(job: JobView, to: State, run: RunStatus, kind: EventKind, reason: str | None) -> Change:
    move = Transition(guard=Guard.OPEN, to=to, run=run, kind=kind)
    return Change(job.id, job.token, move, reason=reason)


def _returned(to: State, run: RunStatus, kind: EventKind) -> Transition:
    return Transition(guard=Guard.OPEN, to=to, run=run, kind=kind, yields_to_cancel=True)


def _close_with_successor(
    job: JobView,
    run: RunStatus,
    guard: Guard,
    reason: str,
    delay: timedelta,
    new_id: Callable[[], JobId],
) -> Change:
    move = Transition(
        guard=guard, to=State.FAILED, run=run, kind=EventKind.CHAINED, yields_to_cancel=True
    )
    successor = Successor(new_id(), delay)
    return Change(job.id, job.token, move, reason=reason, successor=successor)


def _release(
    job: JobView, event: Event, to: State, kind: EventKind, reason: str | None, delay: timedelta
) -> Change:
    if not job.delivery.runs_again:
        raise _refused(job, event)
    move = _returned(to, RunStatus.RELEASED, kind)
    return Change(job.id, job.token, move, reason=reason, delay=delay)


def _without_run(job: JobView, move: Transition, reason: str | None) -> Change:
    return Change(job.id, job.token, move, was=job.state, reason=reason)


def _refused(job: JobView, event: Event) -> TransitionRefused:
    return TransitionRefused(
        f"job {job.id} is {job.state} ({job.delivery}); {type(event).__name__} does not apply to it"
    )


TABLE: Final[Mapping[tuple[State, type[Event]], Rule]] = MappingProxyType(
    {
        (State.RUNNING, ev.Succeeded): _on_succeeded,
        (State.RUNNING, ev.Skipped): _on_skipped,
        (State.RUNNING, ev.Stopped): _on_stopped,
        (State.RUNNING, ev.Failed): _on_failed,
        (State.RUNNING, ev.Lost): _on_lost,
        (State.RUNNING, ev.Released): _on_released,
        (State.RUNNING, ev.Snoozed): _on_snoozed,
        (State.RUNNING, ev.Unfit): _on_unfit,
        (State.RUNNING, ev.CancelRequested): _cancel_running,
        **{(state, ev.CancelRequested): _cancel_waiting for state in WAITING},
        (State.RUNNING, ev.GroupStopped): _group_stopped_running,
        **{(state, ev.GroupStopped): _group_stopped_waiting for state in WAITING},
        **{(state, ev.Abandoned): _on_abandoned for state in WAITING},
        (State.SCHEDULED, ev.FellDue): _on_fell_due,
        (State.RETRY_WAIT, ev.FellDue): _on_fell_due,
        (State.BLOCKED, ev.Unblocked): _on_unblocked,
        (State.QUEUED, ev.Misfired): _on_misfired,
        (State.RETRY_WAIT, ev.GivenUp): _on_given_up,
        (State.FAILED, ev.GivenUp): _on_given_up,
        (State.RUNNING, ev.DetachedJobFound): _on_detached,
        (State.FAILED, ev.SuccessorMissing): _on_successor_missing,
        **{(state, ev.Edited): _on_edited for state in WAITING},
        **{(state, ev.Moved): _on_moved for state in WAITING},
    }
)
"""Every transition except the claim (`CLAIM`), which is an atomic operation of each store."""

CLAIM: Final = (State.QUEUED, State.RUNNING)
"""The transition of a claim: from, to."""

"""The one place that decides what becomes of a job.

`decide` chooses, a store's `apply` compares and writes. No other code picks a state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol, assert_never

from outlast.core import event as ev
from outlast.core.delivery import Delivery, OnFailure, OnLoss
from outlast.core.event import ZERO, Event, EventKind
from outlast.core.fast_dataclass import fast_frozen
from outlast.core.ids import JobId, RunId
from outlast.core.position import JobEdit, MoveTo
from outlast.core.retry import attempts_exhausted
from outlast.core.state import WAITING, Loss, RunStatus, State
from outlast.errors import TransitionRefused


class JobView(Protocol):
    """What a decision looks at; a Job and a Claim both have it."""

    @property
    def id(self) -> JobId: ...
    @property
    def state(self) -> State: ...
    @property
    def delivery(self) -> Delivery: ...
    @property
    def token(self) -> int: ...
    @property
    def failures(self) -> int: ...
    @property
    def losses(self) -> int: ...
    @property
    def max_attempts(self) -> int | None: ...


class Guard(StrEnum):
    """What must still be there, beside the token, for a change to be applied."""

    OPEN = "open"  # the open run
    LAPSED = "lapsed"  # the open run, its lease over
    WAITING = "waiting"  # the waiting row, in whichever waiting state
    RESERVATION_EXPIRED = "silent"  # the waiting row, and a reservation that nobody renewed in time
    STATE = "state"  # the waiting row or the end, in exactly the state decided from
    DETACHED = "adrift"  # nothing: it neither waits, runs nor has ended, and no run came since


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The part of a change that many jobs share.

    `yields`: if the open run bears a cancel request that the decision did not know of, the job
    ends `cancelled` and gets no successor; the run still closes as decided.
    """

    guard: Guard
    to: State
    run: RunStatus | None = None
    kind: EventKind | None = None
    yields_to_cancel: bool = False


@dataclass(frozen=True, slots=True)
class Successor:
    """The next job of a chain: a copy of its predecessor under a new id, due after `delay`."""

    id: JobId
    delay: timedelta = ZERO


@fast_frozen
class Change:
    """What to write, and the token without which it must not be written.

    `failures` and `losses` are the job's counts from now on; None leaves them as they are. What a
    run leaves behind (`artifacts`, `exit_code`, `log_path`) goes on record whatever its end is.
    `run_id` (guard `adrift`) names a run that is written closed, under the next token, for a job
    that has none. `edit` and `place` (guard `state`) are what becomes of a job that waits.
    """

    job_id: JobId
    token: int
    move: Transition
    was: State = State.RUNNING
    reason: str | None = None
    error: str | None = None
    result: str | None = None
    delay: timedelta = ZERO
    failures: int | None = None
    losses: int | None = None
    successor: Successor | None = None
    artifacts: tuple[str, ...] = ()
    exit_code: int | None = None
    log_path: str | None = None
    run_id: RunId | None = None
    edit: JobEdit | None = None
    place: MoveTo | None = None


SUCCESS: Final = Transition(guard=Guard.OPEN, to=State.SUCCEEDED, run=RunStatus.SUCCEEDED)

Rule = Callable[[JobView, Event, Callable[[], JobId]], Change]


def decide(job: JobView, event: Event, *, new_id: Callable[[], JobId]) -> Change:
    """The change that `event` means for `job`; TransitionRefused if its state does not allow it.

    `new_id` is called only when a successor, or a run for a job that has none, must be written.
    """
    rule = TABLE.get((job.state, type(event)))
    if rule is None:
        raise _refused(job, event)
    return rule(job, event, new_id)


def succeed(job_id: JobId, token: int, result: str | None) -> Change:
    """`decide(job, Succeeded(result))` for whoever knows that the job runs: the routine path."""
    return Change(job_id, token, SUCCESS, result=result)


def _skipped(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Skipped)
    return _close(job, State.SKIPPED, RunStatus.SKIPPED, EventKind.SKIPPED, event.reason)


def _stopped(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Stopped)
    return _close(job, State.CANCELLED, RunStatus.CANCELLED, EventKind.CANCELLED, event.reason)


def _succeeded(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Succeeded)
    return succeed(job.id, job.token, event.result)


def _failed(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
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
            change = _chain(job, RunStatus.FAILED, Guard.OPEN, "retried", event.delay, new_id)
        case OnFailure.IN_PLACE:
            move = _back(State.RETRY_WAIT, RunStatus.FAILED, EventKind.RETRY)
            change = Change(job.id, job.token, move, reason="failed", delay=event.delay)
    return replace(change, error=event.error, failures=failures)


def _lost(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
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
            change = _chain(job, RunStatus.LOST, guard, event.reason, event.delay, new_id)
        case OnLoss.REQUEUE:
            to = State.RETRY_WAIT if event.delay else State.QUEUED
            move = _back(to, RunStatus.LOST, EventKind.REQUEUED)
            change = Change(job.id, job.token, move, reason=event.reason, delay=event.delay)
    move = replace(change.move, guard=guard)
    return replace(change, move=move, error=event.error, failures=failures, losses=losses)


def _released(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Released)
    return _hand_back(job, event, State.QUEUED, EventKind.RELEASED, event.reason, ZERO)


def _snoozed(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Snoozed)
    return _hand_back(job, event, State.RETRY_WAIT, EventKind.SNOOZED, event.reason, event.delay)


def _cancel_running(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.CancelRequested)
    move = Transition(guard=Guard.OPEN, to=State.RUNNING, kind=EventKind.CANCEL_REQUESTED)
    return Change(job.id, job.token, move, reason=event.reason)


def _cancel_waiting(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.CancelRequested)
    move = Transition(guard=Guard.WAITING, to=State.CANCELLED, kind=EventKind.CANCELLED)
    return _unstarted(job, move, event.reason or "cancelled")


def _group_stopped_running(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.GroupStopped)
    if event.skip:
        raise _refused(job, event)  # what runs may finish
    return _cancel_running(job, ev.CancelRequested("group_stopped"), _)


def _group_stopped_waiting(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.GroupStopped)
    if not event.skip:
        return _cancel_waiting(job, ev.CancelRequested("group_stopped"), _)
    move = Transition(guard=Guard.WAITING, to=State.SKIPPED, kind=EventKind.SKIPPED)
    return _unstarted(job, move, "group_skipped")


def _abandoned(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Abandoned)
    is_dead = event.reason is ev.Abandonment.OWNER_DEAD
    guard = (
        Guard.WAITING if is_dead else Guard.RESERVATION_EXPIRED
    )  # the silent may be heard again meanwhile
    move = Transition(guard=guard, to=State.CANCELLED, kind=EventKind.ABANDONED)
    return _unstarted(job, move, event.reason)


def _fell_due(job: JobView, _event: Event, _: Callable[[], JobId]) -> Change:
    return _unstarted(job, Transition(guard=Guard.STATE, to=State.QUEUED), None)


def _unblocked(job: JobView, _event: Event, _: Callable[[], JobId]) -> Change:
    move = Transition(guard=Guard.STATE, to=State.SCHEDULED, kind=EventKind.UNBLOCKED)
    return _unstarted(job, move, None)


def _misfired(job: JobView, _event: Event, _: Callable[[], JobId]) -> Change:
    move = Transition(guard=Guard.STATE, to=State.SKIPPED, kind=EventKind.MISFIRE)
    return _unstarted(job, move, "misfire")


def _give_up(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.GivenUp)
    if job.state is State.FAILED and job.delivery is not Delivery.LINKED:
        raise _refused(job, event)
    move = Transition(guard=Guard.STATE, to=State.DEAD_LETTER, kind=EventKind.GIVEN_UP)
    return _unstarted(job, move, event.reason)


def _drifted(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
    """As its last run says, whose counts the job bears already; without a run it was lost."""
    assert isinstance(event, ev.DetachedJobFound)
    if event.last is None:
        lost = _lost(job, ev.Lost(Loss.STARTUP_RECOVERY, event.detail), new_id)
        return replace(lost, move=_adrift(lost.move), run_id=RunId(new_id()))
    change = _after_last_run(job, event.last, event.reason, new_id)
    return replace(
        change,
        move=_adrift(replace(change.move, run=None)),
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
                job.id, job.token, _back(State.QUEUED, last, EventKind.RELEASED), reason=why
            )
        case RunStatus.LOST | RunStatus.RELEASED:
            loss = Loss(why) if why in set(Loss) else Loss.STARTUP_RECOVERY
            return _after_loss(job, job.failures, job.losses, ev.Lost(loss), new_id)
        case RunStatus.RUNNING:
            raise TransitionRefused(f"job {job.id} has an open run; it is not adrift")
    assert_never(last)


def _continued(job: JobView, event: Event, new_id: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.SuccessorMissing)
    if job.delivery is not Delivery.LINKED:
        raise _refused(job, event)
    if attempts_exhausted(job.failures, job.max_attempts):
        return _give_up(job, ev.GivenUp("attempts_exhausted"), new_id)
    move = Transition(guard=Guard.STATE, to=State.FAILED, kind=EventKind.CHAINED)
    return replace(_unstarted(job, move, event.reason), successor=Successor(new_id()))


def _edited(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    """Another due time is waited for as at first; a backoff or a group keeps its own state."""
    assert isinstance(event, ev.Edited)
    edit = event.edit
    if edit.params is not None and job.token:
        raise TransitionRefused(
            f"job {job.id} is {job.state} and was claimed before; its params are frozen at its "
            "first claim, so cancel it and enqueue another"
        )
    starts_over = edit.is_due_time and job.state in (State.SCHEDULED, State.QUEUED)
    to = State.SCHEDULED if starts_over else job.state
    move = Transition(guard=Guard.STATE, to=to, kind=EventKind.EDITED)
    return replace(_unstarted(job, move, edit.fields), edit=edit)


def _rearranged(job: JobView, event: Event, _: Callable[[], JobId]) -> Change:
    assert isinstance(event, ev.Moved)
    move = Transition(guard=Guard.STATE, to=job.state, kind=EventKind.MOVED)
    return replace(_unstarted(job, move, str(event.place)), place=event.place)


def _adrift(move: Transition) -> Transition:
    return replace(
        move, guard=Guard.DETACHED, yields_to_cancel=False
    )  # whoever asked to cancel is forgotten


def _close(job: JobView, to: State, run: RunStatus, kind: EventKind, reason: str | None) -> Change:
    move = Transition(guard=Guard.OPEN, to=to, run=run, kind=kind)
    return Change(job.id, job.token, move, reason=reason)


def _back(to: State, run: RunStatus, kind: EventKind) -> Transition:
    return Transition(guard=Guard.OPEN, to=to, run=run, kind=kind, yields_to_cancel=True)


def _chain(
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


def _hand_back(
    job: JobView, event: Event, to: State, kind: EventKind, reason: str | None, delay: timedelta
) -> Change:
    if not job.delivery.runs_again:
        raise _refused(job, event)
    move = _back(to, RunStatus.RELEASED, kind)
    return Change(job.id, job.token, move, reason=reason, delay=delay)


def _unstarted(job: JobView, move: Transition, reason: str | None) -> Change:
    return Change(job.id, job.token, move, was=job.state, reason=reason)


def _refused(job: JobView, event: Event) -> TransitionRefused:
    return TransitionRefused(
        f"job {job.id} is {job.state} ({job.delivery}); {type(event).__name__} does not apply to it"
    )


TABLE: Final[Mapping[tuple[State, type[Event]], Rule]] = MappingProxyType(
    {
        (State.RUNNING, ev.Succeeded): _succeeded,
        (State.RUNNING, ev.Skipped): _skipped,
        (State.RUNNING, ev.Stopped): _stopped,
        (State.RUNNING, ev.Failed): _failed,
        (State.RUNNING, ev.Lost): _lost,
        (State.RUNNING, ev.Released): _released,
        (State.RUNNING, ev.Snoozed): _snoozed,
        (State.RUNNING, ev.CancelRequested): _cancel_running,
        **{(state, ev.CancelRequested): _cancel_waiting for state in WAITING},
        (State.RUNNING, ev.GroupStopped): _group_stopped_running,
        **{(state, ev.GroupStopped): _group_stopped_waiting for state in WAITING},
        **{(state, ev.Abandoned): _abandoned for state in WAITING},
        (State.SCHEDULED, ev.FellDue): _fell_due,
        (State.RETRY_WAIT, ev.FellDue): _fell_due,
        (State.BLOCKED, ev.Unblocked): _unblocked,
        (State.QUEUED, ev.Misfired): _misfired,
        (State.RETRY_WAIT, ev.GivenUp): _give_up,
        (State.FAILED, ev.GivenUp): _give_up,
        (State.RUNNING, ev.DetachedJobFound): _drifted,
        (State.FAILED, ev.SuccessorMissing): _continued,
        **{(state, ev.Edited): _edited for state in WAITING},
        **{(state, ev.Moved): _rearranged for state in WAITING},
    }
)
"""Every transition but one: the claim (`CLAIM`) is each store's own atomic step."""

CLAIM: Final = (State.QUEUED, State.RUNNING)

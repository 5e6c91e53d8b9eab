"""Changes of a job: what to write, and the condition under which it may be written."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Protocol

from outlast.core.delivery import Delivery
from outlast.core.event import ZERO, EventKind
from outlast.core.fast_dataclass import fast_frozen
from outlast.core.ids import JobId, RunId
from outlast.core.position import JobEdit, MoveTo
from outlast.core.state import Loss, RunStatus, State


class JobView(Protocol):
    """The fields of a job that a decision uses; `Job` and `Claim` both have them."""

    @property
    def id(self) -> JobId:
        """Id of the job."""
        ...

    @property
    def state(self) -> State:
        """Present state."""
        ...

    @property
    def delivery(self) -> Delivery:
        """Delivery of its type."""
        ...

    @property
    def token(self) -> int:
        """Fencing token of its last claim; 0 if it was never claimed."""
        ...

    @property
    def failures(self) -> int:
        """Failed and lost runs so far."""
        ...

    @property
    def losses(self) -> int:
        """Lost runs so far."""
        ...

    @property
    def max_attempts(self) -> int | None:
        """Attempts it may use; None is unlimited."""
        ...


class Guard(StrEnum):
    """What must be stored, besides the token, for a change to be applied."""

    OPEN = "open"  # the open run
    LAPSED = "lapsed"  # the open run, with an expired lease
    WAITING = "waiting"  # the waiting row, in any waiting state
    RESERVATION_EXPIRED = "silent"  # the waiting row, and an expired reservation
    STATE = "state"  # the waiting row or the end, in the state of the decision
    DETACHED = "adrift"  # no state row, and no newer run


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The part of a change that many jobs share.

    Attributes:
        guard: What must be stored for the change to be applied.
        to: The new state of the job.
        run: How the open run ends; None if no run ends.
        kind: Kind of the event that is recorded; None for none.
        yields_to_cancel: If the open run has a cancel request that the decision did not know,
            the job ends `cancelled` without a successor. The run still ends as decided.
    """

    guard: Guard
    to: State
    run: RunStatus | None = None
    kind: EventKind | None = None
    yields_to_cancel: bool = False


@dataclass(frozen=True, slots=True)
class Successor:
    """The next job of a retry chain: a copy of its predecessor with a new id, due after `delay`."""

    id: JobId
    delay: timedelta = ZERO


@fast_frozen
class Change:
    """A change to write, and the fencing token it depends on.

    Attributes:
        job_id: The job.
        token: The token the job must have.
        move: Guard, new state, end of the run and event.
        was: State from which the change was decided.
        reason: Reason code of the event and of the end.
        error: Text of the error, if one was raised.
        result: JSON text of the result.
        delay: Time until the job is due again.
        failures: New count of failures; None leaves it.
        losses: New count of losses; None leaves it.
        successor: The job that follows in the retry chain.
        artifacts: Paths recorded with the run, however it ended.
        exit_code: Exit code of the run's command or process.
        log_path: File with the output of the run's command.
        run_id: With the guard DETACHED: id of a run to record as ended, under the next token.
        edit: With the guard STATE: the edit of a waiting job.
        place: With the guard STATE: the new position of a waiting job.
        detail: Detail of the event; None: the error, unless the run failed and so keeps it.
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
    detail: str | None = None

    @property
    def event_detail(self) -> str | None:
        """Detail of the event of this change; the error of a failed run is in its record."""
        has_error = self.detail is None and self.move.run is not RunStatus.FAILED
        return self.error if has_error else self.detail

    @property
    def reason_code(self) -> str | None:
        """The reason if Outlast chose it; None for free text of a handler or an operator.

        Free text may quote arguments, so it is stored with the job but not logged.
        """
        is_stored_run = self.move.guard is Guard.DETACHED and self.move.kind is EventKind.RELEASED
        may_be_text = is_stored_run or self.move.kind in FREE_TEXT_REASONS
        return None if may_be_text and self.reason not in set(Loss) else self.reason


FREE_TEXT_REASONS: Final = frozenset({EventKind.SKIPPED, EventKind.SNOOZED, EventKind.CANCELLED})
"""Kinds of events whose reason a handler or an operator may have written."""

SUCCESS: Final = Transition(guard=Guard.OPEN, to=State.SUCCEEDED, run=RunStatus.SUCCEEDED)
"""The transition of every successful run, shared so that stores can test for it by identity."""

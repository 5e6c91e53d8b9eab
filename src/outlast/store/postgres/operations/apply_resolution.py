"""Resolve a change against the locked job: the state, counts and successor to write."""

from dataclasses import dataclass

from outlast.core.decide import Change, Guard, Successor
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.state import FINAL, WAITING, RunStatus, State
from outlast.store.postgres.operations.apply_lookup import LockedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedChange:
    """A change to write. `reason` is that of the job; the run keeps the reason of the change."""

    change: Change
    locked: LockedJob
    to: State
    kind: EventKind | None
    reason: str | None
    successor: Successor | None
    token: int
    failures: int
    losses: int

    @property
    def job(self) -> str:
        """The id of the job."""
        return self.locked.job

    @property
    def run(self) -> RunStatus | None:
        """The status of the closed run, if the change closes one."""
        return self.change.move.run

    @property
    def is_detached(self) -> bool:
        """Whether the job was in no state table."""
        return self.change.move.guard is Guard.DETACHED

    @property
    def closes(self) -> bool:
        """Whether the change closes an open run."""
        return self.run is not None and not self.is_detached

    @property
    def run_id(self) -> str | None:
        """The run that the change is about."""
        return self.change.run_id or self.locked.run_id

    @property
    def is_final(self) -> bool:
        """Whether the new state is final."""
        return self.to in FINAL

    @property
    def had_ended(self) -> bool:
        """Whether the job had ended before."""
        return self.locked.state in FINAL

    @property
    def ends(self) -> bool:
        """Whether the job ends by this change."""
        return self.is_final and not self.had_ended

    @property
    def ends_chain(self) -> bool:
        """Whether the chain ends, so that its active key is released."""
        return self.is_final and self.successor is None and not self.locked.has_successor

    @property
    def requeues(self) -> bool:
        """Whether a running job waits again."""
        return self.to in WAITING and self.locked.state is State.RUNNING

    @property
    def changes_waiting_state(self) -> bool:
        """Whether a waiting job stays waiting, in another state."""
        return self.to in WAITING and self.locked.state in WAITING

    def available_at(self, now: int) -> int:
        """Return when a requeued job is due: as before, unless the change has a delay."""
        delay = self.change.delay // MICROSECOND
        return self.locked.available_at if self.to is State.QUEUED and not delay else now + delay


def resolve(change: Change, locked: LockedJob) -> ResolvedChange:
    """Resolve a change; a cancel request made after the decision takes precedence."""
    move = change.move
    yields = move.yields_to_cancel and locked.cancel
    is_counted = move.guard in (Guard.OPEN, Guard.LAPSED, Guard.DETACHED)
    return ResolvedChange(
        change=change,
        locked=locked,
        to=State.CANCELLED if yields else move.to,
        kind=EventKind.CANCELLED if yields else move.kind,
        reason="cancel_requested" if yields else change.reason,
        successor=None if yields or _keeps_successor(change, locked) else change.successor,
        # The claim of a missing run would have raised the token.
        token=change.token + (change.run_id is not None),
        failures=_counted(change.failures, locked.failures, is_counted=is_counted),
        losses=_counted(change.losses, locked.losses, is_counted=is_counted),
    )


def _keeps_successor(change: Change, locked: LockedJob) -> bool:
    return change.move.guard is Guard.DETACHED and locked.has_successor


def _counted(decided: int | None, stored: int, *, is_counted: bool) -> int:
    return decided if is_counted and decided is not None else stored

"""What a change comes to, now that its job was found: the facts that are written."""

from dataclasses import dataclass

from outlast.core.decide import Change, Guard, Successor
from outlast.core.duration import MICROSECOND
from outlast.core.event import EventKind
from outlast.core.state import FINAL, WAITING, RunStatus, State
from outlast.store.postgres.operations.apply_lookup import LockedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedChange:
    """One change that is written. `reason` is the job's; its run keeps the change's own."""

    change: Change
    found: LockedJob
    to: State
    kind: EventKind | None
    reason: str | None
    successor: Successor | None
    token: int
    failures: int
    losses: int

    @property
    def job(self) -> str:
        return self.found.job

    @property
    def run(self) -> RunStatus | None:
        return self.change.move.run

    @property
    def is_adrift(self) -> bool:
        return self.change.move.guard is Guard.DETACHED

    @property
    def closes(self) -> bool:
        """Whether it closes an open run."""
        return self.run is not None and not self.is_adrift

    @property
    def run_id(self) -> str | None:
        return self.change.run_id or self.found.run_id

    @property
    def is_final(self) -> bool:
        return self.to in FINAL

    @property
    def had_ended(self) -> bool:
        return self.found.state in FINAL

    @property
    def ends(self) -> bool:
        """Whether the job ends here and now."""
        return self.is_final and not self.had_ended

    @property
    def ends_chain(self) -> bool:
        """Whether nothing follows it, so that the active key is free."""
        return self.is_final and self.successor is None and not self.found.is_followed

    @property
    def puts_back(self) -> bool:
        return self.to in WAITING and self.found.state is State.RUNNING

    @property
    def moves(self) -> bool:
        """Whether a waiting job goes on waiting, in another state."""
        return self.to in WAITING and self.found.state in WAITING

    def available_at(self, now: int) -> int:
        """When a job that is put back is due: as before, unless it shall wait."""
        delay = self.change.delay // MICROSECOND
        return self.found.available_at if self.to is State.QUEUED and not delay else now + delay


def resolve(change: Change, found: LockedJob) -> ResolvedChange:
    """A cancel request that the decision did not know of wins over going on."""
    move = change.move
    yields = move.yields_to_cancel and found.cancel
    is_counted = move.guard in (Guard.OPEN, Guard.LAPSED, Guard.DETACHED)
    return ResolvedChange(
        change=change,
        found=found,
        to=State.CANCELLED if yields else move.to,
        kind=EventKind.CANCELLED if yields else move.kind,
        reason="cancel_requested" if yields else change.reason,
        successor=None if yields or _keeps_successor(change, found) else change.successor,
        # The claim whose run is missing would have raised it.
        token=change.token + (change.run_id is not None),
        failures=_counted(change.failures, found.failures, is_counted=is_counted),
        losses=_counted(change.losses, found.losses, is_counted=is_counted),
    )


def _keeps_successor(change: Change, found: LockedJob) -> bool:
    return change.move.guard is Guard.DETACHED and found.is_followed


def _counted(decided: int | None, found: int, *, is_counted: bool) -> int:
    return decided if is_counted and decided is not None else found

"""Groups: jobs started and observed together, and what the end of one means for the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from outlast.core.job import NewJob
from outlast.core.limits import check_key, repr_short
from outlast.core.state import FINAL, State
from outlast.errors import InvalidGroup

MOST_MEMBERS: Final = 1_000_000
"""Members a group can have."""

MEMBER_FAILED: Final = "member_failed"
NEVER_COMPLETED: Final = "never_completed"
"""Reasons why a group closes by itself: a member failed, or members were never added."""

_ID_LENGTH: Final = 36

GOOD: Final = frozenset({State.SUCCEEDED, State.SKIPPED})
"""Ends after which a group continues; any other end of a member is a failure."""


class GroupMode(StrEnum):
    """When the members may run."""

    PARALLEL = "parallel"  # all at the same time, as workers allow
    SEQUENTIAL = "sequential"  # one after the other, in the order given


class OnMemberFailure(StrEnum):
    """What the failure of a member means for members that have not ended."""

    STOP = "stop"  # waiting members are cancelled, running ones are asked to stop
    CONTINUE = "continue"  # no effect
    SKIP = "skip"  # waiting members end `skipped`, running ones may finish


class ClosePolicy(StrEnum):
    """How the remaining members of a closing group end."""

    STOP = "stop"  # cancelled
    SKIP = "skip"  # skipped, except running members


class GroupState(StrEnum):
    """State of a group, derived from its members."""

    FILLING = "filling"  # not all members are stored; none runs
    RUNNING = "running"  # at least one member has not ended
    SUCCEEDED = "succeeded"  # every member succeeded or was skipped
    FAILED = "failed"  # all members have ended, and at least one failed
    CANCELLED = "cancelled"  # all have ended, none failed, one was cancelled or it was stopped


class GroupAction(StrEnum):
    """What a group does after the end of a member."""

    NOTHING = "nothing"  # no effect on the other members
    NEXT = "next"  # the next blocked member may run
    STOP = "stop"  # it closes: remaining members are cancelled
    SKIP = "skip"  # it closes: waiting members are skipped


def action_after_member(mode: GroupMode, on_failure: OnMemberFailure, end: State) -> GroupAction:
    """Return what the end of a member means; a linked job with a successor has not ended."""
    if end not in GOOD and on_failure is not OnMemberFailure.CONTINUE:
        return GroupAction(on_failure)
    return GroupAction.NEXT if mode is GroupMode.SEQUENTIAL else GroupAction.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroup:
    """A group to be stored, before any of its members."""

    id: str
    total: int
    mode: GroupMode = GroupMode.PARALLEL
    on_failure: OnMemberFailure = OnMemberFailure.CONTINUE
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as stored. `counts` has each member once, a retry chain by its last job."""

    id: str
    seq: int
    name: str | None
    mode: GroupMode
    on_failure: OnMemberFailure
    total: int
    created_at: datetime
    sealed_at: datetime | None
    closing: ClosePolicy | None
    reason: str | None
    counts: Mapping[State, int]

    @property
    def is_over(self) -> bool:
        """Whether all members have ended and no more can be added."""
        is_complete = self.sealed_at is not None or self.closing is not None
        return is_complete and all(state in FINAL for state in self.counts)

    @property
    def state(self) -> GroupState:
        """State of the group, derived from its members."""
        if not self.is_over:
            is_filling = self.sealed_at is None and self.closing is None
            return GroupState.FILLING if is_filling else GroupState.RUNNING
        if {State.FAILED, State.DEAD_LETTER} & self.counts.keys():
            return GroupState.FAILED
        is_cancelled = self.closing is not None or State.CANCELLED in self.counts
        return GroupState.CANCELLED if is_cancelled else GroupState.SUCCEEDED

    @property
    def done(self) -> int:
        """Members that have ended, including those that were pruned since."""
        ended = sum(count for state, count in self.counts.items() if state in FINAL)
        pruned = self.total - sum(self.counts.values()) if self.sealed_at is not None else 0
        return ended + pruned

    @property
    def progress(self) -> float:
        """Share of the members that have ended, from 0 to 1."""
        return self.done / self.total


@dataclass(frozen=True, slots=True)
class ClosingGroup:
    """A group that closes and may have remaining members."""

    id: str
    closing: ClosePolicy


def check_group(new: NewGroup) -> NewGroup:
    """Return the group if it can be stored; InvalidGroup otherwise."""
    if not isinstance(new.id, str) or len(new.id) != _ID_LENGTH:
        raise InvalidGroup(f"the id of a group is {repr_short(new.id)}; use a UUID")
    if new.name is not None:
        try:
            check_key(new.name, what="the name of a group")
        except ValueError as error:
            raise InvalidGroup(str(error)) from error
    if isinstance(new.total, bool) or not isinstance(new.total, int):
        raise InvalidGroup(f"the total of a group is {repr_short(new.total)}; use a whole number")
    if not 1 <= new.total <= MOST_MEMBERS:
        raise InvalidGroup(
            f"a group of {repr_short(new.total)} members; it must have 1 to {MOST_MEMBERS:,}"
        )
    return new


def membership_error(
    new: NewJob, *, is_known: bool, is_sealed: bool, closing: str | None
) -> str | None:
    """Return why a job cannot be added to its group in that state; None if it can."""
    if new.group_id is None:
        return "it is marked as a member of a group and has no group_id; give both"
    if new.retry_of is not None:
        return "a retry cannot be a new member of a group; leave one of the two out"
    if not is_known:
        return f"there is no group {repr_short(new.group_id)}; add the group before its members"
    if closing is not None:
        return f"group {new.group_id} was stopped ({closing}); start another"
    return f"group {new.group_id} is complete; start another" if is_sealed else None

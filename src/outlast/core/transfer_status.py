"""Transfer status of a store: its stages, the allowed changes, and what a sealed store refuses.

A store without a stored status is open. Every other status refuses new work: `add`, `claim`,
`fire` and each operation that changes waiting jobs or settings raises `StoreSealed`, or
`StoreMoved` if the transfer is final. Open runs continue: their ends, leases and progress are
written, and so is the worker registry. A seal expires by itself unless it is renewed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from outlast.core.address import shown_address
from outlast.core.decide import SUCCESS, Change, Guard
from outlast.core.event import EventKind
from outlast.errors import OperatorError, StoreMoved, StoreSealed

MAX_ADDRESS: Final = 2048
"""Most characters of the other store's URL."""


class TransferStage(StrEnum):
    """Stage of a store in a transfer."""

    OPEN = "open"  # it accepts work: there is no transfer, or it has ended
    FILLING = "filling"  # the rows of another store are being written into it
    SEALED = "sealed"  # its remaining rows are being copied to another store
    READY = "ready"  # it holds all rows and opens once the other store is moved
    MOVED = "moved"  # another store has replaced it, for good


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferStatus:
    """Status of a store in a transfer.

    Attributes:
        stage: How far the transfer is.
        other: URL of the other store, without user and password.
        transfer_id: Id of the transfer.
        until: When a seal expires; None for other stages.
        grace: From this moment on workers release the runs that are still open.
    """

    stage: TransferStage = TransferStage.OPEN
    other: str = ""
    transfer_id: str = ""
    until: datetime | None = None
    grace: datetime | None = None

    def __post_init__(self) -> None:
        """Leave out what an address must not show: a store may hold any text."""
        object.__setattr__(self, "other", self.other and shown_address(self.other))

    def at(self, now: datetime) -> "TransferStatus":
        """Return the status at that moment; an expired seal is open."""
        is_expired = self.until is not None and self.until <= now
        return OPEN if is_expired else self


OPEN: Final = TransferStatus()
"""Status of a store that is in no transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """A requested change of the transfer status.

    Attributes:
        stage: The stage to reach.
        other: URL of the other store, without user and password.
        transfer_id: Id of the transfer that asks for the change.
        span: How long a seal lasts from now.
        grace: Time until workers release open runs, for a new seal. A renewal has None: it is
            refused once the seal has expired, because work may have started since.
    """

    stage: TransferStage
    other: str
    transfer_id: str
    span: timedelta | None = None
    grace: timedelta | None = None

    def __post_init__(self) -> None:
        """Leave out what a store must not keep."""
        object.__setattr__(self, "other", self.other and shown_address(self.other))


def next_status(
    present: TransferStatus, step: StatusChange, now: datetime
) -> TransferStatus | None:
    """Return the status after a change, or None if the present status does not allow it.

    An open store may be filled, and so may one that the same store was filling; likewise for a
    seal. The transfer that began it then loses its rights. Every other change is allowed only to
    the transfer that is in progress.
    """
    status = present.at(now)
    is_same = (status.other, status.transfer_id) == (step.other, step.transfer_id)
    match step.stage:
        case TransferStage.FILLING:
            is_resumed = (
                status.stage in (TransferStage.FILLING, TransferStage.READY)
                and status.other == step.other
            )
            allowed = status.stage is TransferStage.OPEN or is_resumed
        case TransferStage.SEALED:
            is_renewable = status.stage is TransferStage.SEALED and is_same
            allowed = is_renewable if step.grace is None else _may_be_sealed(status, step)
        case TransferStage.READY:
            allowed = status.stage is TransferStage.FILLING and is_same
        case TransferStage.MOVED:
            allowed = status.stage is TransferStage.SEALED and is_same
        case TransferStage.OPEN:
            allowed = status.stage is not TransferStage.MOVED and is_same
    return _changed(status, step, now) if allowed else None


def _may_be_sealed(status: TransferStatus, step: StatusChange) -> bool:
    is_resumed = status.stage is TransferStage.SEALED and status.other == step.other
    return status.stage is TransferStage.OPEN or is_resumed


def _changed(status: TransferStatus, step: StatusChange, now: datetime) -> TransferStatus:
    if step.stage is TransferStage.OPEN:
        return OPEN
    if step.stage is not TransferStage.SEALED:
        return TransferStatus(stage=step.stage, other=step.other, transfer_id=step.transfer_id)
    assert step.span is not None, "a seal has an end"
    grace = status.grace if step.grace is None else now + step.grace
    return TransferStatus(
        stage=TransferStage.SEALED,
        other=step.other,
        transfer_id=step.transfer_id,
        until=now + step.span,
        grace=grace,
    )


def closed_error(status: TransferStatus) -> OperatorError:
    """Return the error for work that a store which is not open refuses."""
    if status.stage is TransferStage.MOVED:
        return StoreMoved(
            f"this store was moved to {status.other}, for good; use that address instead. "
            "Nothing was written",
            to=status.other,
        )
    resume = f"outlast db copy --from {status.other} --to this one"
    states = {
        TransferStage.SEALED: f"is sealed while it is being moved to {status.other}; wait for the "
        "end of the transfer",
        TransferStage.FILLING: f"is being filled from {status.other}; wait for the end of the "
        f"transfer, or start it again: {resume}",
        TransferStage.READY: f"holds all rows of {status.other} and is not open yet; finish the "
        f"transfer: {resume}",
    }
    return StoreSealed(f"this store {states[status.stage]}. Nothing was written")


def refuse_load(status: TransferStatus) -> OperatorError:
    """Return the error for rows loaded into a store that is not being filled."""
    return StoreSealed(
        f"this store is {status.stage}, not filling; it accepts rows only during a transfer: "
        "outlast db copy"
    )


def allowed_while_sealed(change: Change) -> bool:
    """Return whether a change ends an open run; a sealed store accepts such changes."""
    if change.move is SUCCESS:  # the most frequent change, decided first
        return True
    is_of_a_run = change.move.guard in (Guard.OPEN, Guard.LAPSED)
    return is_of_a_run and change.move.kind is not EventKind.CANCEL_REQUESTED

"""Delivery: what a job type guarantees when a run fails or is lost."""

from enum import StrEnum


class OnFailure(StrEnum):
    """What follows a failed run."""

    IN_PLACE = "in_place"  # the same job waits and is claimed again
    SUCCESSOR = "successor"  # a new job, linked to the failed one by `retry_of`
    CLOSE = "close"  # the job ends


class OnLoss(StrEnum):
    """What follows a lost run."""

    REQUEUE = "requeue"  # the same job returns to its position in the queue
    SUCCESSOR = "successor"  # a new job, linked to the lost one by `retry_of`
    CLOSE = "close"  # the job ends


class Delivery(StrEnum):
    """Delivery preset of a job type: one rule for failed runs, one for lost runs."""

    LEASE = "lease"  # at least once; the job is retried and reclaimed in place
    LINKED = "linked"  # each job executes at most once; its retry is a new, linked job
    ONCE = "once"  # at most one claim per slot; never run again
    BROADCAST = "broadcast"  # one task per node; reserved, not implemented

    @property
    def on_failure(self) -> OnFailure:
        """What follows a failed run of this delivery."""
        return _RULES[self][0]

    @property
    def on_loss(self) -> OnLoss:
        """What follows a lost run of this delivery."""
        return _RULES[self][1]

    @property
    def runs_again(self) -> bool:
        """Whether a started job of this delivery may return to the queue."""
        return self.on_loss is OnLoss.REQUEUE


_RULES = {
    Delivery.LEASE: (OnFailure.IN_PLACE, OnLoss.REQUEUE),
    Delivery.LINKED: (OnFailure.SUCCESSOR, OnLoss.SUCCESSOR),
    Delivery.ONCE: (OnFailure.CLOSE, OnLoss.CLOSE),
    Delivery.BROADCAST: (OnFailure.IN_PLACE, OnLoss.CLOSE),
}

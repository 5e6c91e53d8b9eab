"""Delivery: what a job type promises about running, failing and being lost."""

from enum import StrEnum


class OnFailure(StrEnum):
    """What follows a failed run."""

    IN_PLACE = "in_place"  # the same job waits and is tried again
    CHAIN = "chain"  # a new job is written, linked by retry_of
    CLOSE = "close"  # nothing follows


class OnLoss(StrEnum):
    """What follows a lost run."""

    REQUEUE = "requeue"  # the same job goes back to its place
    CHAIN = "chain"  # a new job is written, linked by retry_of
    CLOSE = "close"  # nothing follows


class Delivery(StrEnum):
    """The four presets; the two axes below each say all there is to know."""

    LEASE = "lease"  # at least once, result written once: retried and reclaimed in place
    CHAIN = "chain"  # a job executes at most once; its retry is a new job
    ONCE = "once"  # at most one claim per slot, never run again
    BROADCAST = "broadcast"  # one task per node; reserved until there is a cluster

    @property
    def on_failure(self) -> OnFailure:
        return _AXES[self][0]

    @property
    def on_loss(self) -> OnLoss:
        return _AXES[self][1]

    @property
    def runs_again(self) -> bool:
        """Whether a started job of this delivery may ever return to the queue."""
        return self.on_loss is OnLoss.REQUEUE


_AXES = {
    Delivery.LEASE: (OnFailure.IN_PLACE, OnLoss.REQUEUE),
    Delivery.CHAIN: (OnFailure.CHAIN, OnLoss.CHAIN),
    Delivery.ONCE: (OnFailure.CLOSE, OnLoss.CLOSE),
    Delivery.BROADCAST: (OnFailure.IN_PLACE, OnLoss.CLOSE),
}

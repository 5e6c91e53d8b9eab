"""The guarantees of S0 and their limits, in its order."""

from typing import Final

TOPOLOGY: Final = "single"

GUARANTEED: Final = (
    "one active worker process",
    "at most one execution claim for each (job_name, scheduled_for)",
    "no concurrent execution of one job",
    "safe restart after a crash",
    "idempotent ingestion and clustering",
)

NOT_GUARANTEED: Final = (
    "distributed locking",
    "cross-host coordination",
    "multi-node scaling",
)

DOES_NOT_MEAN: Final = (
    "exactly-once delivery by distributed consensus",
    "transactional guarantees of an event stream",
)
"""What "at most once per slot" is not."""

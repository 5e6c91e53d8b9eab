"""Runs: one attempt at a job, opened by its claim and closed once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from outlast.core.delivery import Delivery
from outlast.core.fast_dataclass import fast_frozen
from outlast.core.ids import JobId, RunId
from outlast.core.state import RunStatus, State


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """Who runs jobs: a stable instance, and the boot that tells one start of it from the next."""

    instance_id: str
    boot_id: str


NOBODY: Final = LeaseHolder(instance_id="?", boot_id="?")
"""Who held a run that left no trace; no worker can have that name."""


@fast_frozen
class Lease:
    """A worker's right to run a job. The token only ever rises, so an old one never matches."""

    job_id: JobId
    token: int


@fast_frozen
class Claim:
    """A job just taken: all that its worker needs to run it and to close the run."""

    job_id: JobId
    token: int
    run_id: RunId
    type: str
    params: str
    delivery: Delivery
    failures: int
    losses: int
    max_attempts: int | None
    cancel_requested: bool = False
    slot_at: datetime | None = None  # of the slot it was made for

    @property
    def id(self) -> JobId:
        return self.job_id

    @property
    def state(self) -> State:
        return State.RUNNING

    @property
    def lease(self) -> Lease:
        return Lease(self.job_id, self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as the store has it; after its end only artifacts may still be appended."""

    run_id: RunId
    job_id: JobId
    token: int
    status: RunStatus
    reason: str | None
    holder: str
    boot_id: str
    started_at: datetime
    finished_at: datetime | None
    error: str | None
    result: str | None
    exit_code: int | None
    log_path: str | None
    artifacts: tuple[str, ...]
    params_snapshot: str
    template_id: str | None
    template_at: datetime | None
    progress: str | None = None  # JSON: the last that the run reported of itself

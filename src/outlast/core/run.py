"""Runs: one attempt at a job, opened by a claim and ended once."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from outlast.core.delivery import Delivery
from outlast.core.envelope import plain
from outlast.core.fast_dataclass import fast_frozen
from outlast.core.ids import JobId, RunId
from outlast.core.limits import read_json
from outlast.core.state import Loss, RunStatus, State


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """The worker that holds a lease: a stable instance id, and the id of its present start."""

    instance_id: str
    boot_id: str


UNKNOWN_HOLDER: Final = LeaseHolder(instance_id="?", boot_id="?")
"""Lease holder of a run that left no trace; no worker can have this name."""


_LOSS_WORDS: Final = {
    Loss.LEASE_EXPIRED: "stopped renewing its lease",
    Loss.OWNER_DEAD: "died during the run",
    Loss.STARTUP_RECOVERY: "was restarted, and its earlier start left the run open",
    Loss.TIMEOUT: "stopped the run, which exceeded its max_runtime",
    Loss.SILENT: "was killed: it sent no heartbeat for max_silence",
    Loss.SHUTDOWN: "was shut down before the run ended",
}


def loss_text(reason: str | None, holder: str | None, boot_id: str | None) -> str:
    """Return in words why a run was lost: `worker w1 stopped renewing its lease (boot b1)`."""
    words = _LOSS_WORDS.get(Loss(reason)) if reason in set(Loss) else f"lost the run ({reason})"
    return f"worker {holder or 'unknown'} {words} (boot {boot_id or 'unknown'})"


@fast_frozen
class Lease:
    """The right to run a job. The token only rises, so that an old lease never matches."""

    job_id: JobId
    token: int


@fast_frozen
class Claim:
    """A claimed job: everything its worker needs to run it and to end the run."""

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
    slot_at: datetime | None = None  # time of its schedule slot
    metadata: str | None = None  # JSON: headers, tags and meta of the job

    @property
    def id(self) -> JobId:
        """Id of the job; the same as `job_id`."""
        return self.job_id

    @property
    def state(self) -> State:
        """State of a claimed job: running."""
        return State.RUNNING

    @property
    def lease(self) -> Lease:
        """The lease of this claim."""
        return Lease(self.job_id, self.token)


class Claims(list[Claim]):
    """The claims of one call, in claim order, and what the call saw of its queue.

    `due_in` is a time before which no other job of the queue becomes due, as far as is known: None
    says nothing. `waiting` counts the jobs that are left to claim, if the call asked for that.
    """

    __slots__ = ("due_in", "waiting")

    def __init__(
        self,
        claims: Iterable[Claim] = (),
        *,
        due_in: timedelta | None = None,
        waiting: int | None = None,
    ) -> None:
        super().__init__(claims)
        self.due_in = due_in
        self.waiting = waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as stored; after its end only artifacts may be appended."""

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
    progress: str | None = None  # JSON: last reported progress

    @property
    def decoded_result(self) -> Any:
        """The result as a JSON value, None without one; InvalidParams if it cannot be read."""
        what = f"result of run {self.run_id}"
        return None if self.result is None else read_json(plain(self.result, what), what=what)

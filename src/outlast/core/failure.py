"""A failed attempt, as it is told to whoever wants to hear of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from outlast.core.ids import JobId, RunId
from outlast.core.state import RunStatus, State


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a traceback; without the values of its variables."""

    file: str
    line: int
    function: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionInfo:
    """One exception: its class, what it said, and where, the innermost frame last."""

    type: str
    module: str
    message: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One attempt at a job that failed, or was lost in its worker's hands.

    It is told once the store has it on record. `state` is where that left the job: `retry_wait`
    if it will be tried again, after `retry_in`. In `payload` every value is `[redacted]` unless
    its field is shown; what is redacted there is also taken out of `traceback` and `raised`, which
    has the exception first and then what it was raised from.
    """

    job_id: JobId
    run_id: RunId
    job_type: str
    attempt: int
    max_attempts: int | None
    worker: str
    status: RunStatus
    state: State
    reason: str | None
    retry_in: timedelta | None
    payload: Mapping[str, Any]
    traceback: str
    raised: tuple[ExceptionInfo, ...]

    @property
    def is_final(self) -> bool:
        """Whether this attempt was the job's last."""
        return self.state in {State.DEAD_LETTER, State.FAILED}

    @property
    def error(self) -> str:
        """The name of what was raised; `lost` or `failed` if nothing was."""
        return self.raised[0].type if self.raised else str(self.status)


Sink = Callable[[Failure], object]
"""Whoever is told of failures. It is called in a thread of its own, and may take its time."""

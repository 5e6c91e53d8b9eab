"""Holdfast: durable background jobs and schedules."""

from holdfast.app import Holdfast
from holdfast.config import Settings
from holdfast.context import Run
from holdfast.core.command import Command
from holdfast.core.job import Job, Slot
from holdfast.core.outcome import Cancel, RetryAfter, Skip, Snooze
from holdfast.core.queue import Pause
from holdfast.core.retry import Backoff
from holdfast.core.state import State
from holdfast.errors import (
    CallerError,
    CommandFailed,
    DuplicateJob,
    HoldfastError,
    InvalidJob,
    InvalidParams,
    InvalidType,
    JobNotFound,
    JobNotSucceeded,
    LeaseLost,
    OperatorError,
    PayloadTooLarge,
    PermanentError,
    RunError,
    StopRequested,
    TransientError,
    TransitionRefused,
    UnknownType,
    WaitTimeout,
)
from holdfast.jobs.bulk import SomeRefused
from holdfast.jobs.handle import Handle
from holdfast.jobs.jobtype import Bound, JobType
from holdfast.store.base import Queue

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Bound",
    "CallerError",
    "Cancel",
    "Command",
    "CommandFailed",
    "DuplicateJob",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidJob",
    "InvalidParams",
    "InvalidType",
    "Job",
    "JobNotFound",
    "JobNotSucceeded",
    "JobType",
    "LeaseLost",
    "OperatorError",
    "Pause",
    "PayloadTooLarge",
    "PermanentError",
    "Queue",
    "RetryAfter",
    "Run",
    "RunError",
    "Settings",
    "Skip",
    "Slot",
    "Snooze",
    "SomeRefused",
    "State",
    "StopRequested",
    "TransientError",
    "TransitionRefused",
    "UnknownType",
    "WaitTimeout",
    "__version__",
]

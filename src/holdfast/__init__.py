"""Holdfast: durable background jobs and schedules."""

from holdfast.app import Holdfast
from holdfast.config import Settings
from holdfast.context import Run
from holdfast.core.command import Command
from holdfast.core.group import Group, GroupState
from holdfast.core.job import Job, Slot
from holdfast.core.lineage import Lineage
from holdfast.core.outcome import Cancel, RetryAfter, Skip, Snooze
from holdfast.core.queue import Pause
from holdfast.core.retry import Backoff
from holdfast.core.state import State
from holdfast.core.template import Template
from holdfast.errors import (
    CallerError,
    CommandFailed,
    DuplicateJob,
    GroupNotFound,
    HoldfastError,
    InvalidGroup,
    InvalidJob,
    InvalidParams,
    InvalidType,
    JobNotFound,
    JobNotSucceeded,
    LeaseLost,
    NoWorker,
    OperatorError,
    PayloadTooLarge,
    PermanentError,
    QueueBusy,
    RunError,
    StopRequested,
    SyncMisused,
    TemplateChanged,
    TransientError,
    TransitionRefused,
    UnknownTemplate,
    UnknownType,
    WaitTimeout,
)
from holdfast.jobs.bulk import SomeRefused
from holdfast.jobs.groups import GroupHandle
from holdfast.jobs.handle import Handle
from holdfast.jobs.jobtype import Bound, JobType
from holdfast.store.base import Queue
from holdfast.sync import Sync

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Bound",
    "CallerError",
    "Cancel",
    "Command",
    "CommandFailed",
    "DuplicateJob",
    "Group",
    "GroupHandle",
    "GroupNotFound",
    "GroupState",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "InvalidGroup",
    "InvalidJob",
    "InvalidParams",
    "InvalidType",
    "Job",
    "JobNotFound",
    "JobNotSucceeded",
    "JobType",
    "LeaseLost",
    "Lineage",
    "NoWorker",
    "OperatorError",
    "Pause",
    "PayloadTooLarge",
    "PermanentError",
    "Queue",
    "QueueBusy",
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
    "Sync",
    "SyncMisused",
    "Template",
    "TemplateChanged",
    "TransientError",
    "TransitionRefused",
    "UnknownTemplate",
    "UnknownType",
    "WaitTimeout",
    "__version__",
]

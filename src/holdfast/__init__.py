"""Holdfast: durable background jobs and schedules.

Each name is loaded when it is first asked for, so that a command that needs none starts at once.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.config import Settings
    from holdfast.context import Run
    from holdfast.core.command import Command
    from holdfast.core.failure import Failure
    from holdfast.core.group import Group, GroupState
    from holdfast.core.job import Job, Slot
    from holdfast.core.lineage import Lineage
    from holdfast.core.outcome import Cancel, RetryAfter, Skip, Snooze
    from holdfast.core.queue import Pause
    from holdfast.core.retry import Backoff
    from holdfast.core.schedule import Outcome, Schedule, SlotRecord
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
        InvalidSchedule,
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
        ScheduleChanged,
        SlotTaken,
        StopRequested,
        SyncMisused,
        TemplateChanged,
        TransientError,
        TransitionRefused,
        UnknownSchedule,
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
    "Failure",
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
    "InvalidSchedule",
    "InvalidType",
    "Job",
    "JobNotFound",
    "JobNotSucceeded",
    "JobType",
    "LeaseLost",
    "Lineage",
    "NoWorker",
    "OperatorError",
    "Outcome",
    "Pause",
    "PayloadTooLarge",
    "PermanentError",
    "Queue",
    "QueueBusy",
    "RetryAfter",
    "Run",
    "RunError",
    "Schedule",
    "ScheduleChanged",
    "Settings",
    "Skip",
    "Slot",
    "SlotRecord",
    "SlotTaken",
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
    "UnknownSchedule",
    "UnknownTemplate",
    "UnknownType",
    "WaitTimeout",
    "__version__",
]

_AT: _typing.Final = {
    "holdfast.app": ("Holdfast",),
    "holdfast.config": ("Settings",),
    "holdfast.context": ("Run",),
    "holdfast.core.command": ("Command",),
    "holdfast.core.failure": ("Failure",),
    "holdfast.core.group": (
        "Group",
        "GroupState",
    ),
    "holdfast.core.job": (
        "Job",
        "Slot",
    ),
    "holdfast.core.lineage": ("Lineage",),
    "holdfast.core.outcome": (
        "Cancel",
        "RetryAfter",
        "Skip",
        "Snooze",
    ),
    "holdfast.core.queue": ("Pause",),
    "holdfast.core.retry": ("Backoff",),
    "holdfast.core.schedule": (
        "Outcome",
        "Schedule",
        "SlotRecord",
    ),
    "holdfast.core.state": ("State",),
    "holdfast.core.template": ("Template",),
    "holdfast.errors": (
        "CallerError",
        "CommandFailed",
        "DuplicateJob",
        "GroupNotFound",
        "HoldfastError",
        "InvalidGroup",
        "InvalidJob",
        "InvalidParams",
        "InvalidSchedule",
        "InvalidType",
        "JobNotFound",
        "JobNotSucceeded",
        "LeaseLost",
        "NoWorker",
        "OperatorError",
        "PayloadTooLarge",
        "PermanentError",
        "QueueBusy",
        "RunError",
        "ScheduleChanged",
        "SlotTaken",
        "StopRequested",
        "SyncMisused",
        "TemplateChanged",
        "TransientError",
        "TransitionRefused",
        "UnknownSchedule",
        "UnknownTemplate",
        "UnknownType",
        "WaitTimeout",
    ),
    "holdfast.jobs.bulk": ("SomeRefused",),
    "holdfast.jobs.groups": ("GroupHandle",),
    "holdfast.jobs.handle": ("Handle",),
    "holdfast.jobs.jobtype": (
        "Bound",
        "JobType",
    ),
    "holdfast.store.base": ("Queue",),
    "holdfast.sync": ("Sync",),
}
"""Where each of them is."""

_WHERE: _typing.Final = {name: module for module, names in _AT.items() for name in names}


def __getattr__(name: str) -> _typing.Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__]

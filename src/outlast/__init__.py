"""Outlast: durable background jobs and schedules.

Names are imported on first use, so that `import outlast` is cheap.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from outlast.app import Outlast
    from outlast.config import Settings
    from outlast.core.command import Command
    from outlast.core.envelope import EncodedPayload, PayloadContext
    from outlast.core.event import EventRecord
    from outlast.core.explain import Explanation
    from outlast.core.failure import Failure
    from outlast.core.group import Group, GroupState
    from outlast.core.job import Job, Slot
    from outlast.core.lineage import Lineage
    from outlast.core.outcome import Cancel, RetryAfter, Skip, Snooze
    from outlast.core.queue import Pause
    from outlast.core.retry import Backoff
    from outlast.core.run import RunRecord
    from outlast.core.run_log import LogLine
    from outlast.core.schedule import Schedule, SlotOutcome, SlotRecord
    from outlast.core.state import RunStatus, State
    from outlast.core.template import Template
    from outlast.errors import (
        CallerError,
        ClockSkewTooLarge,
        CodecFailed,
        CommandFailed,
        ConfigurationError,
        DuplicateJob,
        ForeignStore,
        GroupNotFound,
        IdentityInUse,
        InvalidArgument,
        InvalidGroup,
        InvalidJob,
        InvalidParams,
        InvalidSchedule,
        InvalidType,
        JobNotFound,
        JobNotSucceeded,
        LeaseLost,
        NoWorkerAvailable,
        OperatorError,
        OutlastError,
        PayloadTooLarge,
        PayloadUnreadable,
        PermanentError,
        QueueBusy,
        QueueNotFound,
        RunError,
        ScheduleChanged,
        ScheduleNotFound,
        SchemaTooNew,
        SlotTaken,
        StopRequested,
        StoreBusy,
        StoreClosed,
        StoreCorrupt,
        StoreFull,
        StoreMissing,
        StoreMoved,
        StoreReadOnly,
        StoreSealed,
        StoreUnavailable,
        SyncMisused,
        TemplateChanged,
        TemplateNotFound,
        TransactionTimeout,
        TransientError,
        TransitionRefused,
        TypeNotFound,
        UnfitParams,
        WaitTimeout,
    )
    from outlast.job_module import JobModule
    from outlast.jobs.bulk import BulkResult
    from outlast.jobs.enqueue_many import PartialEnqueueError
    from outlast.jobs.envelopes import PayloadCodec
    from outlast.jobs.group_results import MemberResult
    from outlast.jobs.groups import GroupHandle
    from outlast.jobs.handle import Handle
    from outlast.jobs.job_search import JobPage
    from outlast.jobs.jobtype import Bound, JobType
    from outlast.jobs.queue_declaration import DeclaredQueue
    from outlast.run_context import Run
    from outlast.scheduler.preview import Upcoming
    from outlast.store.contract.queues import Queue
    from outlast.sync import Sync
    from outlast.worker.embedded import Worker

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "Bound",
    "BulkResult",
    "CallerError",
    "Cancel",
    "ClockSkewTooLarge",
    "CodecFailed",
    "Command",
    "CommandFailed",
    "ConfigurationError",
    "DeclaredQueue",
    "DuplicateJob",
    "EncodedPayload",
    "EventRecord",
    "Explanation",
    "Failure",
    "ForeignStore",
    "Group",
    "GroupHandle",
    "GroupNotFound",
    "GroupState",
    "Handle",
    "IdentityInUse",
    "InvalidArgument",
    "InvalidGroup",
    "InvalidJob",
    "InvalidParams",
    "InvalidSchedule",
    "InvalidType",
    "Job",
    "JobModule",
    "JobNotFound",
    "JobNotSucceeded",
    "JobPage",
    "JobType",
    "LeaseLost",
    "Lineage",
    "LogLine",
    "MemberResult",
    "NoWorkerAvailable",
    "OperatorError",
    "Outlast",
    "OutlastError",
    "PartialEnqueueError",
    "Pause",
    "PayloadCodec",
    "PayloadContext",
    "PayloadTooLarge",
    "PayloadUnreadable",
    "PermanentError",
    "Queue",
    "QueueBusy",
    "QueueNotFound",
    "RetryAfter",
    "Run",
    "RunError",
    "RunRecord",
    "RunStatus",
    "Schedule",
    "ScheduleChanged",
    "ScheduleNotFound",
    "SchemaTooNew",
    "Settings",
    "Skip",
    "Slot",
    "SlotOutcome",
    "SlotRecord",
    "SlotTaken",
    "Snooze",
    "State",
    "StopRequested",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreFull",
    "StoreMissing",
    "StoreMoved",
    "StoreReadOnly",
    "StoreSealed",
    "StoreUnavailable",
    "Sync",
    "SyncMisused",
    "Template",
    "TemplateChanged",
    "TemplateNotFound",
    "TransactionTimeout",
    "TransientError",
    "TransitionRefused",
    "TypeNotFound",
    "UnfitParams",
    "Upcoming",
    "WaitTimeout",
    "Worker",
    "__version__",
]

_NAMES_BY_MODULE: _typing.Final = {
    "outlast.app": ("Outlast",),
    "outlast.config": ("Settings",),
    "outlast.run_context": ("Run",),
    "outlast.core.command": ("Command",),
    "outlast.core.envelope": (
        "EncodedPayload",
        "PayloadContext",
    ),
    "outlast.core.event": ("EventRecord",),
    "outlast.core.explain": ("Explanation",),
    "outlast.core.failure": ("Failure",),
    "outlast.core.group": (
        "Group",
        "GroupState",
    ),
    "outlast.core.job": (
        "Job",
        "Slot",
    ),
    "outlast.core.lineage": ("Lineage",),
    "outlast.core.outcome": (
        "Cancel",
        "RetryAfter",
        "Skip",
        "Snooze",
    ),
    "outlast.core.queue": ("Pause",),
    "outlast.core.retry": ("Backoff",),
    "outlast.core.run": ("RunRecord",),
    "outlast.core.run_log": ("LogLine",),
    "outlast.core.schedule": (
        "Schedule",
        "SlotOutcome",
        "SlotRecord",
    ),
    "outlast.core.state": (
        "RunStatus",
        "State",
    ),
    "outlast.core.template": ("Template",),
    "outlast.errors": (
        "CallerError",
        "ClockSkewTooLarge",
        "CodecFailed",
        "CommandFailed",
        "ConfigurationError",
        "DuplicateJob",
        "ForeignStore",
        "GroupNotFound",
        "IdentityInUse",
        "InvalidArgument",
        "InvalidGroup",
        "InvalidJob",
        "InvalidParams",
        "InvalidSchedule",
        "InvalidType",
        "JobNotFound",
        "JobNotSucceeded",
        "LeaseLost",
        "NoWorkerAvailable",
        "OperatorError",
        "OutlastError",
        "PayloadTooLarge",
        "PayloadUnreadable",
        "PermanentError",
        "QueueBusy",
        "QueueNotFound",
        "RunError",
        "ScheduleChanged",
        "ScheduleNotFound",
        "SchemaTooNew",
        "SlotTaken",
        "StopRequested",
        "StoreBusy",
        "StoreClosed",
        "StoreCorrupt",
        "StoreFull",
        "StoreMissing",
        "StoreMoved",
        "StoreReadOnly",
        "StoreSealed",
        "StoreUnavailable",
        "SyncMisused",
        "TemplateChanged",
        "TemplateNotFound",
        "TransactionTimeout",
        "TransientError",
        "TransitionRefused",
        "TypeNotFound",
        "UnfitParams",
        "WaitTimeout",
    ),
    "outlast.job_module": ("JobModule",),
    "outlast.jobs.bulk": ("BulkResult",),
    "outlast.jobs.job_search": ("JobPage",),
    "outlast.jobs.queue_declaration": ("DeclaredQueue",),
    "outlast.jobs.enqueue_many": ("PartialEnqueueError",),
    "outlast.jobs.envelopes": ("PayloadCodec",),
    "outlast.jobs.group_results": ("MemberResult",),
    "outlast.jobs.groups": ("GroupHandle",),
    "outlast.jobs.handle": ("Handle",),
    "outlast.jobs.jobtype": (
        "Bound",
        "JobType",
    ),
    "outlast.scheduler.preview": ("Upcoming",),
    "outlast.store.contract.queues": ("Queue",),
    "outlast.sync": ("Sync",),
    "outlast.worker.embedded": ("Worker",),
}
"""The module of each public name."""

_MODULE_BY_NAME: _typing.Final = {
    name: module for module, names in _NAMES_BY_MODULE.items() for name in names
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(_MODULE_BY_NAME[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__]

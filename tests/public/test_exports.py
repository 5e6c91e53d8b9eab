"""The public list is short, sorted, and true."""

import inspect
import subprocess
import sys
import typing

import pytest

import outlast
from outlast import GroupHandle, Handle, JobModule, JobType, Outlast, Worker, errors
from outlast.errors import OutlastError
from outlast.jobs.groups import GroupManager
from outlast.jobs.job_manager import JobManager
from outlast.jobs.queues import QueueManager
from outlast.jobs.templates import TemplateManager
from outlast.scheduler.plan_builder import ScheduleOptions
from outlast.scheduler.schedules import ScheduleManager

PUBLIC_CLASSES = (
    Outlast, Handle, GroupHandle, JobType, Worker,
    GroupManager, JobManager, JobModule, QueueManager, ScheduleManager, TemplateManager,
)  # fmt: skip


def returned_types(kind):
    """The classes of this package in the return annotations of a class's public methods."""
    known = {
        "Worker": Worker,
        "ScheduleManager": ScheduleManager,
        "ScheduleOptions": ScheduleOptions,
    }
    for name, method in inspect.getmembers(kind):
        method = method.fget if isinstance(method, property) else method  # noqa: PLW2901
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        pending = [typing.get_type_hints(method, localns=known).get("return")]
        while pending:
            found = pending.pop()
            pending += typing.get_args(found)
            origin = typing.get_origin(found) or found
            if isinstance(origin, type) and origin.__module__.startswith("outlast."):
                yield origin


def test_every_public_name_can_be_imported():
    assert [name for name in outlast.__all__ if not hasattr(outlast, name)] == []
    assert sorted(outlast.__all__) == list(outlast.__all__)


def test_nothing_else_is_public():
    for name in outlast.__all__:
        getattr(outlast, name)  # each is there once it was asked for
    modules = {name for name in vars(outlast) if f"outlast.{name}" in sys.modules}
    seen = {name for name in vars(outlast) if not name.startswith("_")} - modules

    assert seen == set(outlast.__all__) - {"__version__"}


def test_every_public_name_says_what_it_is():
    silent = [
        name
        for name in outlast.__all__
        if name != "__version__" and not getattr(outlast, name).__doc__
    ]

    assert silent == []


def test_every_public_error_is_of_our_tree():
    errors = [
        thing
        for thing in (getattr(outlast, name) for name in outlast.__all__)
        if isinstance(thing, type) and issubclass(thing, Exception)
    ]

    assert errors
    assert all(issubclass(error, OutlastError) for error in errors)


def test_every_error_can_be_caught_by_its_public_name():
    made = [
        name
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, Exception)
    ]

    assert {"StoreUnavailable", "StoreFull", "TransactionTimeout"} <= set(made)
    assert [name for name in made if getattr(outlast, name, None) is not vars(errors)[name]] == []


def test_what_a_public_method_returns_has_a_public_name():
    """Managers and steps of a call are reached through the app; lines of a preview are read."""
    reached = {
        "Client", "Decorator", "GroupManager", "JobManager", "QueueManager", "ScheduleManager",
        "TemplateManager", "Store",
        "ConfiguredJobType", "ConfiguredTemplate", "EnqueuePlan", "BackfillLine", "SlotChange",
        "Plan", "TimeRule",
    }  # fmt: skip
    returned = {kind.__name__ for each in PUBLIC_CLASSES for kind in returned_types(each)}

    assert {"RunRecord", "Explanation", "EventRecord", "Handle", "Worker"} <= returned
    assert returned - reached <= set(outlast.__all__)


@pytest.mark.slow
def test_importing_starts_nothing_and_pulls_in_no_database_client():
    code = (
        "import sys, threading, outlast;"
        "print(threading.active_count(), sorted({'sqlite3', 'asyncpg', 'boto3', 'aetcd'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )

    assert done.stdout.split() == ["1", "[]"]

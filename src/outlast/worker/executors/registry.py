"""The executors of a worker, by name."""

from collections.abc import Mapping
from pathlib import Path

from outlast.jobs.executor_choice import ExecutorName
from outlast.worker.executors.base import Executor
from outlast.worker.executors.command import CommandExecutor, ExecutorChanged
from outlast.worker.executors.coroutine import AsyncExecutor, OnStep
from outlast.worker.executors.process import ProcessExecutor
from outlast.worker.executors.thread import ThreadExecutor


def make_executors(
    *,
    concurrency: int,
    logs: Path,
    addresses: Mapping[str, str],
    on_step: OnStep | None,
    on_executor_changed: ExecutorChanged = lambda _lease, _executor: None,
) -> dict[ExecutorName, Executor]:
    """Create all executors. None holds a resource before its first use."""
    threads = ThreadExecutor(concurrency)
    return {
        "async": AsyncExecutor(on_step),
        "thread": threads,
        "process": ProcessExecutor(addresses),
        "command": CommandExecutor(threads, logs, on_executor_changed),
    }

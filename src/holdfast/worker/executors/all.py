"""Every executor a worker has, by name."""

from collections.abc import Mapping
from pathlib import Path

from holdfast.jobs.executing import ExecutorName
from holdfast.worker.executors.base import Executor
from holdfast.worker.executors.command import CommandExecutor, Moved
from holdfast.worker.executors.coroutine import AsyncExecutor, Stepping
from holdfast.worker.executors.process import ProcessExecutor
from holdfast.worker.executors.thread import ThreadExecutor


def all_executors(
    *,
    concurrency: int,
    logs: Path,
    addresses: Mapping[str, str],
    stepping: Stepping | None,
    moved: Moved = lambda _lease, _executor: None,
) -> dict[ExecutorName, Executor]:
    """None of them holds anything until it is first used."""
    threads = ThreadExecutor(concurrency)
    return {
        "async": AsyncExecutor(stepping),
        "thread": threads,
        "process": ProcessExecutor(addresses),
        "command": CommandExecutor(threads, logs, moved),
    }

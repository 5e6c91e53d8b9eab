"""Every executor a worker has, by name."""

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
    stepping: OnStep | None,
    moved: ExecutorChanged = lambda _lease, _executor: None,
) -> dict[ExecutorName, Executor]:
    """None of them holds anything until it is first used."""
    threads = ThreadExecutor(concurrency)
    return {
        "async": AsyncExecutor(stepping),
        "thread": threads,
        "process": ProcessExecutor(addresses),
        "command": CommandExecutor(threads, logs, moved),
    }

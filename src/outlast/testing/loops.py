"""Runs coroutines from sync test code, even inside a running event loop."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result; blocks a running event loop meanwhile."""
    if not is_in_loop():
        return in_own_loop(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="outlast-look") as thread:
        return thread.submit(in_own_loop, coroutine).result()


def in_own_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop; the thread must not run one."""
    with new_runner() as runner:
        return runner.run(coroutine)


def new_runner() -> asyncio.Runner:
    """Return a runner whose loop factory keeps the event loop set for this thread."""
    return asyncio.Runner(loop_factory=asyncio.new_event_loop)


def is_in_loop() -> bool:
    """Return whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

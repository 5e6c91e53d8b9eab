"""Coroutines run to their end from plain code, beside whatever loop there is."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """What it answers, also from inside a running loop: that one waits meanwhile."""
    if not is_in_loop():
        return in_own_loop(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="outlast-look") as thread:
        return thread.submit(in_own_loop, coroutine).result()


def in_own_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """The same, where no loop runs."""
    with new_runner() as runner:
        return runner.run(coroutine)


def new_runner() -> asyncio.Runner:
    """With a factory, a runner leaves the event loop that is set for this thread as it is."""
    return asyncio.Runner(loop_factory=asyncio.new_event_loop)


def is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

"""Start processes that act on one store at the same moment."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import Barrier
from typing import Any, TypeVar

from outlast.store.contract import Store
from outlast.store.open import open_store
from outlast.testing.conformance.fork_server import quick_start

Answer = TypeVar("Answer")
Act = Callable[[Store], Awaitable[Answer]]

PATIENCE = 180.0
"""Seconds until a race whose runners never came together is called off."""

_gate: Barrier | None = None


async def race(url: str, runners: Sequence[Sequence[Act[Answer]]]) -> list[list[Answer]]:
    """What each process answered, round by round; `runners` has each process's act per round.

    Acts are picklable (`functools.partial` of a module's function). Every process has the store
    open before the first round, and no round begins before all are ready for it.
    """
    return await asyncio.to_thread(_race, url, runners)


class Other:
    """A process that has done something to the store and stays, to be killed."""

    def __init__(self, process: Any) -> None:
        self._process = process

    async def kill(self) -> None:
        """Kill it, as an operator or the kernel would, and see it dead."""
        self._process.kill()
        await asyncio.to_thread(self._process.join, PATIENCE)


@asynccontextmanager
async def _busy(url: str, act: Act[Any]) -> Any:
    context = quick_start()
    here, there = context.Pipe()
    process = context.Process(target=_stay, args=(url, act, there, dict(os.environ)), daemon=True)
    process.start()
    there.close()
    try:
        assert await asyncio.to_thread(here.poll, PATIENCE), "the other process said nothing"
        assert here.recv(), "the other process was refused"
        yield Other(process)
    finally:
        await Other(process).kill()
        here.close()


def busy(url: str, act: Act[Any]) -> AbstractAsyncContextManager[Other]:
    """Another process that has done this with success, and stays until it is killed."""
    manager: AbstractAsyncContextManager[Other] = _busy(url, act)
    return manager


def _stay(url: str, act: Act[Any], there: Any, environment: dict[str, str]) -> None:
    os.environ.update(environment)  # a child has that of the process it was forked from

    async def stay() -> None:
        async with opened(url) as store:
            there.send(await act(store))
            await asyncio.Event().wait()

    asyncio.run(stay())


@asynccontextmanager
async def _opened(url: str) -> Any:
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def opened(url: str) -> AbstractAsyncContextManager[Store]:
    """The store at that address, open within the block."""
    manager: AbstractAsyncContextManager[Store] = _opened(url)
    return manager


def _race(url: str, runners: Sequence[Sequence[Act[Answer]]]) -> list[list[Answer]]:
    context = quick_start()
    count = len(runners)
    gate = context.Barrier(count)
    with ProcessPoolExecutor(
        count, context, initializer=_enter, initargs=(gate, dict(os.environ))
    ) as pool:
        asked = [pool.submit(_run, url, acts) for acts in runners]
        return [answer.result(PATIENCE) for answer in asked]


def _enter(gate: Barrier, environment: dict[str, str]) -> None:
    global _gate  # noqa: PLW0603 - a barrier reaches a child only while it is started
    _gate = gate
    os.environ.update(environment)


def _run(url: str, acts: Sequence[Act[Answer]]) -> list[Answer]:
    return asyncio.run(_act(url, acts))


async def _act(url: str, acts: Sequence[Act[Answer]]) -> list[Answer]:
    assert _gate is not None
    answers = []
    async with opened(url) as store:
        for act in acts:
            _gate.wait(PATIENCE)
            answers.append(await act(store))
    return answers

"""Real processes that do one thing to one store at the same moment."""

import asyncio
import multiprocessing
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from multiprocessing.connection import wait
from threading import Barrier, Thread
from typing import Any, TypeVar

from holdfast.store.base import Store
from holdfast.store.open import open_store

Answer = TypeVar("Answer")
Act = Callable[[Store], Awaitable[Answer]]

PATIENCE = 60.0
"""Seconds until a race whose runners never came together is called off."""

_POOLS: list[ProcessPoolExecutor] = []
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
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_stay, args=(url, act, there), daemon=True)
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


def _stay(url: str, act: Act[Any], there: Any) -> None:
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
    asked_for = len(runners), url.partition(":")[0]
    try:
        asked = [_pool(*asked_for).submit(_run, url, acts) for acts in runners]
        return [answer.result(PATIENCE) for answer in asked]
    except BaseException:
        dismiss()  # whoever still waits at the gate would spoil the next race
        raise


@cache
def _pool(count: int, _kind: str) -> ProcessPoolExecutor:
    """Kept for the next race: to start a process and import a driver takes longer than to race.

    Each kind of store has its own, for a process knows the environment that it was started in.
    """
    # Spawned: a forked child would share its parent's connections, which SQLite forbids.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        count, context, initializer=_enter, initargs=(context.Barrier(count),)
    )
    _POOLS.append(pool)
    return pool


def dismiss() -> None:
    """End the processes that were kept."""
    _pool.cache_clear()
    while _POOLS:
        pool = _POOLS.pop()
        processes = list((pool._processes or {}).values())  # noqa: SLF001 - 3.14 has a verb for it
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def _enter(gate: Barrier) -> None:
    global _gate  # noqa: PLW0603 - a barrier reaches a child only while it is started
    _gate = gate
    Thread(target=_go_with_the_parent, daemon=True).start()


def _go_with_the_parent() -> None:
    """Whoever kept us may be killed; nobody else would end us."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


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

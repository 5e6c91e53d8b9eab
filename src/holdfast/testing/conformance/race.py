"""Real processes that do one thing to one store at the same moment."""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import Barrier
from typing import Any, TypeVar

from holdfast.store.base import Store
from holdfast.store.open import open_store

Answer = TypeVar("Answer")
Act = Callable[[Store], Awaitable[Answer]]

PATIENCE = 60.0
"""Seconds until a race whose runners never came together is called off."""

_gate: Barrier | None = None


async def race(url: str, runners: Sequence[Sequence[Act[Answer]]]) -> list[list[Answer]]:
    """What each process answered, round by round; `runners` has each process's act per round.

    Acts are picklable (`functools.partial` of a module's function). Every process has the store
    open before the first round, and no round begins before all are ready for it.
    """
    return await asyncio.to_thread(_race, url, runners)


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
    # Spawned: a forked child would share its parent's connections, which SQLite forbids.
    context = multiprocessing.get_context("spawn")
    count = len(runners)
    gate = context.Barrier(count)
    with ProcessPoolExecutor(count, context, initializer=_enter, initargs=(gate,)) as pool:
        asked = [pool.submit(_run, url, acts) for acts in runners]
        return [answer.result(PATIENCE) for answer in asked]


def _enter(gate: Barrier) -> None:
    global _gate  # noqa: PLW0603 - a barrier reaches a child only while it is started
    _gate = gate


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

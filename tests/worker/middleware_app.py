"""Handlers with middleware, in a module that a handler process can import.

`install` gives both to a test's own app; `app` is what a handler process finds here.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

from outlast import Outlast, Run

ADDRESS = "middleware_app:app"
SEEN: ContextVar[tuple[str, ...]] = ContextVar("SEEN", default=())


async def outer(run: Run) -> AsyncIterator[None]:
    token = SEEN.set((*SEEN.get(), f"outer {run.type}"))
    await asyncio.sleep(0)
    yield
    SEEN.reset(token)


def inner(run: Run) -> Iterator[None]:
    token = SEEN.set((*SEEN.get(), f"inner {run.attempt}"))
    yield
    SEEN.reset(token)


async def in_loop() -> tuple[str, ...]:
    await asyncio.sleep(0)
    return SEEN.get()


def in_thread() -> tuple[str, ...]:
    return SEEN.get()


async def in_process() -> tuple[int, tuple[str, ...]]:
    return os.getpid(), SEEN.get()


def plainly_in_process() -> tuple[int, tuple[str, ...]]:
    asyncio.run(asyncio.sleep(0))  # no loop runs in this thread
    return os.getpid(), SEEN.get()


def fails() -> None:
    raise KeyError("from the handler")


def install(app: Outlast, *around: Any) -> Outlast:
    for handler in (in_loop, in_thread):
        app.job(handler)
    app.job(executor="process")(in_process)
    app.job(executor="process")(plainly_in_process)
    app.job(name="fails_in_process", executor="process")(fails)
    for each in around:
        app.around(each)
    return app


app = install(Outlast("sqlite:///unused.db"), outer, inner)

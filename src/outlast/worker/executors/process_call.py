"""Call of a handler in a handler process, inside its middleware."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from outlast.jobs.jobtype import JobType
from outlast.jobs.middleware import (
    Middleware,
    async_only,
    await_inside,
    call_inside,
    plain_only,
)
from outlast.run_context import Run


def call_handler(
    kind: JobType[..., Any], run: Run, params: dict[str, Any], runner: asyncio.Runner
) -> object:
    """Return what the handler returns; async code runs on the loop of `runner`."""
    given = (run,) if kind.takes_run else ()
    call = partial(kind.function, *given, **params)
    middleware = kind.middleware
    if not middleware:
        value = call()
        return runner.run(value) if asyncio.iscoroutine(value) else value
    if inspect.iscoroutinefunction(kind.function):
        return runner.run(await_inside(middleware, run, call))
    plain = partial(call_inside, plain_only(middleware), run, call)
    outer = async_only(middleware)
    return _call_between(outer, run, plain, runner) if outer else plain()


def _call_between(
    middleware: Sequence[Middleware], run: Run, call: Callable[[], Any], runner: asyncio.Runner
) -> object:
    """Call a plain handler while async middleware waits; the loop stands still meanwhile.

    So the handler runs in the main thread, where a stop request reaches it, and may use a loop of
    its own. One task runs the middleware to its end, in the context that the handler sees.
    """
    loop, context = runner.get_loop(), contextvars.copy_context()
    entered: asyncio.Future[None] = loop.create_future()
    outcome: asyncio.Future[tuple[object, BaseException | None]] = loop.create_future()

    async def handler() -> object:
        entered.set_result(None)
        value, error = await outcome
        if error is not None:
            raise error
        return value

    task = loop.create_task(await_inside(middleware, run, handler), context=context)
    runner.run(_first(task, entered))
    if entered.done():
        outcome.set_result(context.run(_outcome, call))
    return runner.run(_result(task))


async def _first(task: asyncio.Task[Any], entered: asyncio.Future[None]) -> None:
    await asyncio.wait([task, entered], return_when=asyncio.FIRST_COMPLETED)


async def _result(task: asyncio.Task[Any]) -> object:
    return await task


def _outcome(call: Callable[[], Any]) -> tuple[object, BaseException | None]:
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again inside the middleware
        return None, error

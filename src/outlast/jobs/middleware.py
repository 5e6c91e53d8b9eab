"""Middleware: functions that run around each handler, registered with `@app.around`."""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Sequence,
)
from typing import Any

from outlast.core.limits import repr_short
from outlast.errors import InvalidType, RunError
from outlast.run_context import Run

Middleware = Callable[[Run], AsyncIterator[None] | Iterator[None]]
"""A generator function, plain or async, that takes the run and yields once: there it runs."""


def check_middleware(function: object) -> None:
    """Raise InvalidType unless `function` is a generator function that takes a run."""
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        raise InvalidType(
            f"middleware is {repr_short(function)}; write a function that takes the run and yields "
            "once, without @contextmanager: `async def timing(run: Run) -> AsyncIterator[None]`"
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise InvalidType(
            f"middleware {_name(function)} must take one argument, the run"
        ) from error


def is_async(middleware: Middleware) -> bool:
    """Whether it is an async generator function."""
    return inspect.isasyncgenfunction(middleware)


def plain_only(middleware: Sequence[Middleware]) -> list[Middleware]:
    """Return those that are plain generator functions, in their order."""
    return [each for each in middleware if not is_async(each)]


def async_only(middleware: Sequence[Middleware]) -> list[Middleware]:
    """Return those that are async generator functions, in their order."""
    return [each for each in middleware if is_async(each)]


def call_inside(middleware: Sequence[Middleware], run: Run, call: Callable[[], Any]) -> Any:
    """Return what `call` returns, inside plain middleware; the first is the outermost."""
    if not middleware:
        return call()
    steps: Any = middleware[0](run)
    _begin(middleware[0], steps)
    try:
        value = call_inside(middleware[1:], run, call)
    except BaseException as error:
        _pass_error(middleware[0], steps, error)
        raise
    _pass_value(middleware[0], steps, value)
    return value


async def await_inside(
    middleware: Sequence[Middleware], run: Run, call: Callable[[], Awaitable[Any]]
) -> Any:
    """Return what `call` returns, inside middleware of both forms; the first is the outermost."""
    if not middleware:
        return await call()
    steps: Any = middleware[0](run)
    in_loop = is_async(middleware[0])
    await _begin_async(middleware[0], steps) if in_loop else _begin(middleware[0], steps)
    try:
        value = await await_inside(middleware[1:], run, call)
    except BaseException as error:
        if in_loop:
            await _pass_error_async(middleware[0], steps, error)
        else:
            _pass_error(middleware[0], steps, error)
        raise
    if in_loop:
        await _pass_value_async(middleware[0], steps, value)
    else:
        _pass_value(middleware[0], steps, value)
    return value


def _begin(middleware: Middleware, steps: Generator[None, Any, None]) -> None:
    try:
        next(steps)
    except StopIteration:
        raise _did_not_yield(middleware) from None


async def _begin_async(middleware: Middleware, steps: AsyncGenerator[None, Any]) -> None:
    try:
        await anext(steps)
    except StopAsyncIteration:
        raise _did_not_yield(middleware) from None


def _pass_value(middleware: Middleware, steps: Generator[None, Any, None], value: object) -> None:
    try:
        steps.send(value)
    except StopIteration:
        return
    steps.close()
    raise _yielded_twice(middleware)


async def _pass_value_async(
    middleware: Middleware, steps: AsyncGenerator[None, Any], value: object
) -> None:
    try:
        await steps.asend(value)
    except StopAsyncIteration:
        return
    await steps.aclose()
    raise _yielded_twice(middleware)


def _pass_error(
    middleware: Middleware, steps: Generator[None, Any, None], error: BaseException
) -> None:
    """Show the handler's error to the middleware. Raises what it raises instead, if it does."""
    traceback = error.__traceback__
    try:
        steps.throw(error)
    except StopIteration:  # it caught the error, which remains that of the run
        error.__traceback__ = traceback  # without the frames of the middleware
        return
    except BaseException as raised:
        if raised is error or _is_wrapped(raised, error):
            error.__traceback__ = traceback
            return
        raise
    steps.close()
    raise _yielded_twice(middleware) from error


async def _pass_error_async(
    middleware: Middleware, steps: AsyncGenerator[None, Any], error: BaseException
) -> None:
    """Do the same for an async one."""
    traceback = error.__traceback__
    try:
        await steps.athrow(error)
    except StopAsyncIteration:
        error.__traceback__ = traceback
        return
    except BaseException as raised:
        if raised is error or _is_wrapped(raised, error):
            error.__traceback__ = traceback
            return
        raise
    await steps.aclose()
    raise _yielded_twice(middleware) from error


def _is_wrapped(raised: BaseException, error: BaseException) -> bool:
    """Whether a generator turned the handler's StopIteration into a RuntimeError."""
    stops = isinstance(error, StopIteration | StopAsyncIteration)
    return stops and isinstance(raised, RuntimeError) and raised.__cause__ is error


def _did_not_yield(middleware: Middleware) -> RunError:
    return RunError(
        f"middleware {_name(middleware)} returned without a yield, so the handler was not called; "
        "yield once, where the handler runs, or raise an error"
    )


def _yielded_twice(middleware: Middleware) -> RunError:
    return RunError(
        f"middleware {_name(middleware)} yielded twice; yield once, where the handler runs"
    )


def _name(middleware: object) -> str:
    return str(getattr(middleware, "__qualname__", repr_short(middleware)))

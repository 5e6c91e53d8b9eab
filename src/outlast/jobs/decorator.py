"""Types of `@app.job`: what it decorates and what it returns."""

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from pydantic import BaseModel

from outlast.core.command import Command
from outlast.core.outcome import Cancel, RetryAfter, Skip, Snooze
from outlast.jobs.jobtype import JobType
from outlast.run_context import Run

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
# Each by name, not by their base: pyright takes only these exact types out of a handler's union.
HandlerEnding = Snooze | Skip | Cancel | RetryAfter | Command


class AsyncHandler(Protocol[R_co]):
    """A handler class with an async `handle`; it may take the Run before its payload."""

    @classmethod
    def payload_model(cls) -> type[BaseModel]:
        """Return the model of the params."""
        ...

    @property
    def handle(self) -> Callable[..., Coroutine[Any, Any, R_co | HandlerEnding]]:
        """Run a job."""
        ...


class Handler(Protocol[R_co]):
    """A handler class with a sync `handle`, which runs in a thread."""

    @classmethod
    def payload_model(cls) -> type[BaseModel]:
        """Return the model of the params."""
        ...

    @property
    def handle(self) -> Callable[..., R_co | HandlerEnding]:
        """Run a job."""
        ...


class Decorator(Protocol):
    """Type of `@app.job(…)`: drops `run` from the signature and outcomes from the result."""

    @overload
    def __call__(self, handler: type[AsyncHandler[R]], /) -> JobType[..., R]: ...
    @overload
    def __call__(self, handler: type[Handler[R]], /) -> JobType[..., R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Run, P], Coroutine[Any, Any, R | HandlerEnding]], /
    ) -> JobType[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | HandlerEnding]], /
    ) -> JobType[P, R]: ...
    # A handler of commands returns nothing else, which would leave no type for the result.
    @overload
    def __call__(
        self, function: Callable[Concatenate[Run, P], HandlerEnding], /
    ) -> JobType[P, None]: ...
    @overload
    def __call__(self, function: Callable[P, HandlerEnding], /) -> JobType[P, None]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Run, P], R | HandlerEnding], /
    ) -> JobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R | HandlerEnding], /) -> JobType[P, R]: ...

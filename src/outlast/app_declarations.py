"""What an app or a job module declares in code: job types, schedules, queues and middleware."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    Unpack,
    overload,
)

from outlast.app_name import calling_frame, place_of
from outlast.core.duration import Duration
from outlast.core.log_capture import LogCapture
from outlast.core.retry import Backoff, Delays
from outlast.jobs.client_source import ClientSource
from outlast.jobs.decorator import AsyncHandler, Decorator, Handler, HandlerEnding
from outlast.jobs.executor_choice import ExecutorName
from outlast.jobs.handler_class import default_name
from outlast.jobs.jobtype import Bound, JobType
from outlast.jobs.middleware import Middleware, check_middleware
from outlast.jobs.policy import DeliveryName, ErrorNames, JobDefaults, Policy, VerdictName
from outlast.jobs.queue_declaration import QueueDeclaration, declare_queue
from outlast.jobs.queues import OrderingName
from outlast.jobs.registry import Registry
from outlast.run_context import Run

if TYPE_CHECKING:
    from outlast.scheduler.plan_builder import ScheduleOptions
    from outlast.scheduler.schedules import ScheduleDeclaration

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=Middleware)


@dataclass(slots=True, kw_only=True)
class DeclarationSet:
    """What was declared so far; `layers` is the middleware that runs around the handlers."""

    source: ClientSource
    types: Registry
    middleware: list[Middleware] = field(default_factory=list)
    layers: Sequence[Middleware]
    schedules: "dict[str, ScheduleDeclaration]" = field(default_factory=dict)
    queues: dict[str, QueueDeclaration] = field(default_factory=dict)


class CodeDeclarations:
    """The declarations that an app and a job module have in common."""

    _code: "DeclarationSet"

    @overload
    def job(self, handler: type[AsyncHandler[R]], /) -> JobType[..., R]: ...
    @overload
    def job(self, handler: type[Handler[R]], /) -> JobType[..., R]: ...
    @overload
    def job(
        self, function: Callable[Concatenate[Run, P], Coroutine[Any, Any, R | HandlerEnding]], /
    ) -> JobType[P, R]: ...
    @overload
    def job(
        self, function: Callable[P, Coroutine[Any, Any, R | HandlerEnding]], /
    ) -> JobType[P, R]: ...
    @overload
    def job(
        self, function: Callable[Concatenate[Run, P], R | HandlerEnding], /
    ) -> JobType[P, R]: ...
    @overload
    def job(self, function: Callable[P, R | HandlerEnding], /) -> JobType[P, R]: ...
    @overload
    def job(
        self,
        *,
        name: str | None = None,
        delivery: DeliveryName = "lease",
        retry: Backoff | Delays | None = None,
        queue: str = "default",
        priority: int = 0,
        max_runtime: Duration | None = None,
        executor: ExecutorName | None = None,
        errors: ErrorNames | None = None,
        unknown_error: VerdictName = "transient",
        retention: Duration | Literal["forever"] | None = None,
        log_capture: LogCapture = None,
        **jobs: Unpack[JobDefaults],
    ) -> Decorator: ...
    def job(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        delivery: DeliveryName = "lease",
        retry: Backoff | Delays | None = None,
        queue: str = "default",
        priority: int = 0,
        max_runtime: Duration | None = None,
        executor: ExecutorName | None = None,
        errors: ErrorNames | None = None,
        unknown_error: VerdictName = "transient",
        retention: Duration | Literal["forever"] | None = None,
        log_capture: LogCapture = None,
        **jobs: Unpack[JobDefaults],
    ) -> Any:
        """Register a handler: `@app.job`, or `@app.job(retry=Backoff(3), queue="mail")`.

        A handler is `async def`, or `def` (run in a thread), and may take `run: Run` first. Its
        other params are those of `enqueue`. A class with `payload_model()` and
        `handle(payload)` is a handler too, instantiated for each run; write
        `daily = app.job(DailyHandler)`, since mypy ignores decorators of classes.

        Args:
            function: The handler.
            name: Name of the job type; default: the name of the handler.
            delivery: What happens to a run whose worker dies.
            retry: Backoff and number of attempts; or the waits: `["10s", "1m", "10m"]`, or a
                function of the retry's number.
            queue: Default queue of its jobs.
            priority: Default priority of its jobs.
            max_runtime: Time limit of a run; for process and command it includes their start.
            executor: `process` runs the handler in a process that can be killed; `command`
                runs the Command that it returns.
            errors: Which exceptions are retried: `{KeyError: "permanent"}`.
            unknown_error: The class of all other exceptions.
            retention: How long its ended jobs are kept; `"forever"`, or None for the setting
                `retention` of the app.
            log_capture: Whether what its runs log is kept; or from which level: "WARNING".
            **jobs: Defaults of its jobs, as in `JobType.options`: `tags`, `headers` and `meta`;
                and what a `key` does: `unique_for="1h"` and others.

        Raises InvalidType if settings contradict each other.
        """

        def register(handler: Callable[..., Any]) -> JobType[..., Any]:
            policy = Policy.new(
                name=default_name(handler) if name is None else name,
                delivery=delivery,
                retry=retry,
                queue=queue,
                priority=priority,
                max_runtime=max_runtime,
                executor=executor,
                errors=errors,
                unknown_error=unknown_error,
                retention=retention,
                log_capture=log_capture,
                **jobs,
            )
            job_type: JobType[..., Any] = JobType(
                handler, policy, self._code.source, self._code.layers
            )
            self._code.types.add(job_type)
            return job_type

        return register if function is None else register(function)

    def queue(
        self,
        name: str,
        *,
        ordering: OrderingName | EllipsisType = ...,
        concurrency: int | EllipsisType | None = ...,
        gap: int | EllipsisType = ...,
    ) -> str:
        """Declare settings of a queue: `mail = app.queue("mail", concurrency=3)`; return its name.

        A worker writes the given settings before its first claim, if the declaration has changed
        since it was last written. So what an operator sets later stays until the code changes.
        The settings are those of `app.queues.save`. InvalidArgument if one cannot be used or the
        queue is declared already.
        """
        declared = declare_queue(
            name,
            place=place_of(calling_frame()),
            known=self._code.queues,
            ordering=ordering,
            concurrency=concurrency,
            gap=gap,
        )
        self._code.queues[name] = declared
        return name

    def schedule(
        self,
        name: str,
        cron: str | None = None,
        job_type: JobType[..., Any] | Bound[Any] | str | None = None,
        *,
        coalesce: bool,
        misfire_grace: Duration,
        **options: Unpack["ScheduleOptions"],
    ) -> None:
        """Declare a schedule: `app.schedule("nightly", "0 2 * * *", report, coalesce=True, …)`.

        For params give `report.bind(days=7)`, which type checkers check, or a type and `params=`.

        `every="15m"` replaces the cron expression, `template="weekly"` the type. A worker writes
        the declaration to the store when it starts; later edits in the store are kept until the
        declaration changes. If no live worker declares it for ten minutes, it is disabled
        (`undeclared`). After an outage, slots late by more than `misfire_grace` are
        `missed`; of the others each runs, or with `coalesce` only the last one.
        """
        from outlast.scheduler.schedules import declare  # noqa: PLC0415 - loaded on demand

        asked: dict[str, Any] = {
            **options,
            "cron": cron,
            "job_type": job_type,
            "coalesce": coalesce,
            "misfire_grace": misfire_grace,
        }
        place = place_of(calling_frame())
        self._code.schedules[name] = declare(name, asked, self._code.schedules, place=place)
        self._code.types.tell_watchers()

    def around(self, middleware: M) -> M:
        """Run a function around each handler: `@app.around`.

        It takes the run and yields once, where the handler runs; it is a plain or an async
        generator function. The first one registered is the outermost. `value = yield` is what
        the handler returned, and an error of the handler is raised there. The run keeps both,
        unless the middleware raises an error: that becomes the error of the run.

        Around a `def` handler, async middleware runs on the event loop, outside the plain one,
        which runs in the handler's thread. Raises InvalidType if it is no such function.
        """
        check_middleware(middleware)
        self._code.middleware.append(middleware)
        return middleware

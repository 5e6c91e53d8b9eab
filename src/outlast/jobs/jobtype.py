"""Job type: a handler with its policy, and the typed ways to enqueue it."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import update_wrapper
from typing import Any, Final, Generic, ParamSpec, TypeVar

from outlast.core.duration import Duration
from outlast.core.job import NewJob, Slot
from outlast.errors import InvalidParams
from outlast.jobs.client import Client
from outlast.jobs.direct_run import DirectRunOptions, OnBusy
from outlast.jobs.enqueue_plan import NO_DIRECT_OPTIONS, EnqueuePlan
from outlast.jobs.executor_choice import STOPS
from outlast.jobs.handle import Handle
from outlast.jobs.handler_class import read_class
from outlast.jobs.middleware import Middleware
from outlast.jobs.options import OnConflict, check_on_conflict, new_job
from outlast.jobs.policy import Policy
from outlast.jobs.signature import Signature, read_signature

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class JobType(Generic[P, R_co]):
    """A registered handler. Calling it calls the decorated function directly.

    `stops` says how a run reacts to a stop request: an async handler is cancelled at its next
    await, a thread sees the request at its next checkpoint, a process or command is killed.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        policy: Policy,
        client: Client,
        middleware: Sequence[Middleware] = (),
    ) -> None:
        call, signature = _read(function, policy)
        self.function: Final = call
        self.codec: Final = signature.params
        self.policy: Final = policy
        self.name: Final = policy.name
        self.delivery: Final = policy.delivery
        self.retry: Final = policy.retry
        self.classifier: Final = policy.classifier
        self.queue: Final = policy.queue
        self.priority: Final = policy.priority
        self.max_runtime: Final = policy.max_runtime
        self.executor: Final = signature.executor
        self.stops: Final = STOPS[signature.executor]
        self.takes_run: Final = signature.takes_run
        self.load: Final = signature.params.load
        self.dump_result: Final = signature.result.dump
        self.load_result: Final = signature.result.load
        self.client: Final = client
        self.middleware: Final = middleware
        self._dump: Final = signature.params.dump
        self._positional: Final = signature.positional
        self._plan: Final = self.plan(new_job(policy))
        self._decorated = function
        update_wrapper(self, function, updated=())

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Store a job with these params; once this returns, the job is durable.

        `await send_invoice.enqueue(invoice_id=3)`. The params are those of the handler without
        its `run`. InvalidParams or PayloadTooLarge if they cannot be stored.
        """
        return await self._plan.enqueue(self._plan.encode(args, kwargs))

    async def run_now(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Run a job before all others of its queue; returns when a worker has claimed it.

        `handle = await story.run_now(chapter=3)`, then `await handle.result()`. Until the claim
        no other job of that queue starts; in a queue with `concurrency=1`, none until this job
        has ended. The job is not retried. `.options(wait="30s", on_busy="reject",
        request="req-7")` change the details.

        Raises QueueBusy if the queue is paused or another direct run reserves it for too long,
        NoWorkerAvailable if no worker claims the job in time. In both cases, and if the caller
        is cancelled, the job does not run.
        """
        return await self._plan.run_now(args, kwargs)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> "Bound[R_co]":
        """Return a checked job for `app.enqueue_many` and `app.groups.start`."""
        return Bound(self._plan, self._plan.encode(args, kwargs))

    def options(
        self,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        bucket: str | None = None,
        active_key: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        slot: datetime | Slot | None = None,
        max_attempts: int | None = None,
        start_within: Duration | None = None,
        group_id: str | None = None,
        tags: Iterable[str] | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        on_conflict: OnConflict = "return",
        tx: Any = None,
        wait: Duration | None = None,
        on_busy: OnBusy | None = None,
        request: str | None = None,
    ) -> "ConfiguredJobType[P, R_co]":
        """Return this type with options for one job: `.options(delay="5m").enqueue(…)`.

        None means the default of the type.

        Args:
            delay: Due after this time; give `delay` or `at`.
            at: Due at this moment.
            key: At most one job with this key, ever.
            bucket: Narrows `key`, such as to a day.
            active_key: At most one job with this key that has not ended.
            priority: Higher is claimed first.
            queue: Another queue.
            slot: The occurrence that the job is for; at most one job per slot, ever.
            max_attempts: How often it is tried.
            start_within: Skip the job if it has not started by then.
            group_id: A label for filters.
            tags: Words to find the job by, with those of the type: `["urgent"]`.
            headers: Text for middleware and other programs, over that of the type.
            meta: A small JSON object, over that of the type; filters match its values.
            on_conflict: What to do if the key or slot is taken: `return` that job, `skip`
                (`enqueue_many` leaves it out), or `reject` with DuplicateJob.
            tx: Your connection to the store's database, in a transaction: the job exists when
                that commits. Open the app first, or the two may wait for each other.
            wait: For `run_now`: how long to wait for the queue and a worker together.
            on_busy: For `run_now`: `wait` for a reserved queue, or `reject` at once.
            request: For `run_now`: the name that others see as holder of the queue.
        """
        check_on_conflict(on_conflict)
        like = new_job(
            self.policy,
            delay=delay,
            at=at,
            key=key,
            bucket=bucket,
            active_key=active_key,
            priority=priority,
            queue=queue,
            slot=slot,
            max_attempts=max_attempts,
            start_within=start_within,
            group_id=group_id,
            tags=tags,
            headers=headers,
            meta=meta,
        )
        if like.queue != self.policy.queue:
            self.client.on_queue(like.queue)
        direct = DirectRunOptions.new(
            wait=wait, on_busy=on_busy, request=request, max_attempts=max_attempts
        )
        return ConfiguredJobType(self.plan(like, on_conflict=on_conflict, tx=tx, direct=direct))

    def plan(
        self,
        like: NewJob,
        *,
        on_conflict: OnConflict = "return",
        tx: Any = None,
        direct: DirectRunOptions = NO_DIRECT_OPTIONS,
    ) -> EnqueuePlan:
        """Return how to enqueue a job of this type with the fields of `like`."""
        return EnqueuePlan(
            self.name,
            self.client,
            like,
            encode=self.encode_params,
            on_conflict=on_conflict,
            tx=tx,
            direct=direct,
        )

    def encode_params(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the payload of a call: its params as JSON; InvalidParams names a wrong one."""
        return self._dump(self._named(args, kwargs) if args else kwargs)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            raise InvalidParams(
                f'"{self.name}" takes {len(self._positional)} arguments without a name, not '
                f"{len(args)}; it knows: {', '.join(self._positional) or 'none'}"
            )
        named = dict(zip(self._positional, args, strict=False))
        if not kwargs:
            return named
        if twice := named.keys() & kwargs.keys():
            raise InvalidParams(f'"{self.name}" was given "{min(twice)}" twice; give it once')
        return named | kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the decorated function or class directly."""
        if self.takes_run and not isinstance(self._decorated, type):
            self._require_run(args, kwargs)
        return self._decorated(*args, **kwargs)

    def _require_run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise TypeError with a remedy if the params do not fit, as without the run."""
        try:
            inspect.signature(self._decorated).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(
                f"{self.name}: {error}. Its first parameter is the run: call it in a test with "
                f"`await outlast.run({self.name}, …)`, or enqueue it"
            ) from None

    def __repr__(self) -> str:
        return f"<job type {self.name!r}, {self.delivery}, queue {self.queue!r}>"


def _read(handler: Callable[..., Any], policy: Policy) -> tuple[Callable[..., Any], Signature]:
    """Return the function of a run, and its signature."""
    if isinstance(handler, type):
        return read_class(handler, policy.name, executor=policy.executor)
    return handler, read_signature(handler, policy.name, executor=policy.executor)


class ConfiguredJobType(Generic[P, R_co]):
    """A job type with the options of one enqueue."""

    __slots__ = ("_plan",)

    def __init__(self, plan: EnqueuePlan) -> None:
        self._plan = plan

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Store a job with these params and options; once this returns, the job is durable."""
        return await self._plan.enqueue(self._plan.encode(args, kwargs))

    async def run_now(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Run a job before all others of its queue, as `JobType.run_now` does."""
        return await self._plan.run_now(args, kwargs)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> "Bound[R_co]":
        """Return a checked job for `app.enqueue_many` and `app.groups.start`."""
        return Bound(self._plan, self._plan.encode(args, kwargs))


class Bound(Generic[R_co]):
    """A checked job that is not stored yet."""

    __slots__ = ("_params", "_plan")

    def __init__(self, plan: EnqueuePlan, params: str) -> None:
        self._plan = plan
        self._params = params


def plan_of(bound: Bound[Any]) -> tuple[EnqueuePlan, str]:
    """Return how to enqueue a bound job, and its payload."""
    return bound._plan, bound._params  # noqa: SLF001 - hidden from callers only

"""The front door: an app over one store."""

import os
import re
import secrets
import socket
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from datetime import datetime
from random import SystemRandom
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from holdfast.clock import SystemClock
from holdfast.config import SettingOptions, Settings
from holdfast.context import Run
from holdfast.core.event import EventRecord
from holdfast.core.group import Group
from holdfast.core.ids import Ids
from holdfast.core.job import Job
from holdfast.core.lineage import Lineage
from holdfast.core.retry import Backoff
from holdfast.core.run import RunRecord
from holdfast.core.span import Span
from holdfast.core.state import State
from holdfast.jobs import bulk, placing, queues, retrying
from holdfast.jobs.client import Client
from holdfast.jobs.decorator import AsyncHandler, Decorator, Ending, Handler
from holdfast.jobs.executing import ExecutorName
from holdfast.jobs.following import event_stream
from holdfast.jobs.groups import (
    PAGE,
    GroupHandle,
    ModeName,
    OnFailureName,
    check_page,
    group_id_of,
    start_group,
)
from holdfast.jobs.handle import Handle
from holdfast.jobs.handler_class import default_name
from holdfast.jobs.jobtype import Bound, JobType
from holdfast.jobs.placing import End
from holdfast.jobs.policy import DeliveryName, ErrorNames, Policy, VerdictName
from holdfast.jobs.registry import Registry
from holdfast.jobs.templates import Templates
from holdfast.jobs.waiting import job_id_of
from holdfast.store.base import Queue, Store
from holdfast.store.open import open_store
from holdfast.sync import Sync

if TYPE_CHECKING:
    from holdfast.worker.embedded import Worker
    from holdfast.worker.engine import Engine
    from holdfast.worker.held import Held

P = ParamSpec("P")
R = TypeVar("R")


class Holdfast:
    """Durable jobs over one store.

    `app = Holdfast("sqlite:///jobs.db")`. Nothing is opened until it is needed; `async with app:`
    closes it at the end. Settings may be given by name: `Holdfast(url, lease="30s", renew="10s")`.
    """

    def __init__(
        self,
        url: str | Store,
        *,
        settings: Settings | None = None,
        **overrides: Unpack[SettingOptions],
    ) -> None:
        self.settings = (settings or Settings()).with_(**overrides)
        self.registry = Registry()
        self.url = url if isinstance(url, str) else None
        self._ids = Ids(SystemClock().now, secrets.randbits)
        self._store = _store(url, self._ids)
        self._client = Client(
            self._store,
            settings=self.settings,
            ids=self._ids,
            load_result=self.registry.load_result,
            dump_params=self.registry.dump_params,
        )

    @overload
    def job(self, handler: type[AsyncHandler[R]], /) -> JobType[..., R]: ...
    @overload
    def job(self, handler: type[Handler[R]], /) -> JobType[..., R]: ...
    @overload
    def job(
        self, function: Callable[Concatenate[Run, P], Coroutine[Any, Any, R | Ending]], /
    ) -> JobType[P, R]: ...
    @overload
    def job(self, function: Callable[P, Coroutine[Any, Any, R | Ending]], /) -> JobType[P, R]: ...
    @overload
    def job(self, function: Callable[Concatenate[Run, P], R | Ending], /) -> JobType[P, R]: ...
    @overload
    def job(self, function: Callable[P, R | Ending], /) -> JobType[P, R]: ...
    @overload
    def job(
        self,
        *,
        name: str | None = None,
        delivery: DeliveryName = "lease",
        retry: Backoff | None = None,
        queue: str = "default",
        priority: int = 0,
        max_runtime: Span | None = None,
        executor: ExecutorName | None = None,
        errors: ErrorNames | None = None,
        unknown_error: VerdictName = "transient",
    ) -> Decorator: ...
    def job(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        delivery: DeliveryName = "lease",
        retry: Backoff | None = None,
        queue: str = "default",
        priority: int = 0,
        max_runtime: Span | None = None,
        executor: ExecutorName | None = None,
        errors: ErrorNames | None = None,
        unknown_error: VerdictName = "transient",
    ) -> Any:
        """Register a handler: `@app.job`, or `@app.job(retry=Backoff(3), queue="mail")`.

        The handler may be `async def` or `def` (run in a thread), and may take the `run: Run`
        first. Its other arguments are what `enqueue` takes. `executor="process"` runs it in a
        process of its own, which can be killed; `executor="command"` runs the Command it returns;
        for both, `max_runtime` also counts the time their process takes to start.
        `errors` says which exceptions are worth another try: `{KeyError: "permanent"}`.
        A class with `payload_model()` and `handle(payload)` is a handler too, and each run makes
        one; write `daily = app.job(DailyHandler)`, for mypy overlooks decorators of classes.
        InvalidType if a setting contradicts another.
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
            )
            job_type: JobType[..., Any] = JobType(handler, policy, self._client)
            self.registry.add(job_type)
            return job_type

        return register if function is None else register(function)

    async def enqueue_many(self, bound: Iterable[Bound[R]], *, tx: Any = None) -> list[Handle[R]]:
        """Store many jobs: `await app.enqueue_many(send.bind(n) for n in range(10_000))`.

        Each one is stored or refused alone; SomeRefused, at the end, names those that were not.
        """
        return await bulk.enqueue_many(self._client, bound, tx=tx)

    async def group(
        self,
        bound: Iterable[Bound[Any]],
        *,
        mode: ModeName = "parallel",
        on_failure: OnFailureName | None = None,
        name: str | None = None,
    ) -> GroupHandle:
        """Jobs watched together: `await app.group([load.bind(), send.bind()], mode="sequential")`.

        All are checked first, and none runs before all are stored; if one cannot be, none does.
        `parallel` runs them as workers are free, `sequential` one after the other. When a member
        fails for good or is cancelled, `on_failure` says what becomes of the others: `continue`
        (the default of `parallel`), `stop` (of `sequential`): who waits is cancelled and who runs
        is asked to stop, or `skip`: who waits is skipped. At most 100,000 jobs.
        """
        return await start_group(self._client, bound, mode=mode, on_failure=on_failure, name=name)

    def group_handle(self, group_id: str) -> GroupHandle:
        """A handle on a group known by its id, whether it exists or not."""
        return GroupHandle(group_id_of(group_id), self._client)

    async def groups(self, limit: int = PAGE, before: int | None = None) -> list[Group]:
        """A page of groups, the newest first; `before=groups[-1].seq` gives the next page."""
        store = await self._client.store()
        return await store.find_groups(limit=check_page(limit), before=before)

    async def get(self, job_id: str) -> Job:
        """The job as it stands; JobNotFound if there is none."""
        return await self._client.find(job_id_of(job_id))

    async def runs(self, job_id: str) -> list[RunRecord]:
        """Every run of a job, the first one first."""
        return await (await self._client.store()).runs(job_id_of(job_id))

    async def events(self, job_id: str) -> list[EventRecord]:
        """Everything unusual that happened to a job, oldest first."""
        return await (await self._client.store()).events(job_id_of(job_id))

    def event_stream(self, after: int = 0, *, follow: bool = False) -> AsyncIterator[EventRecord]:
        """Everything unusual that happened to anybody: `async for event in app.event_stream():`.

        In an order in which nothing is missed: keep the id of the last one, and go on `after` it.
        `follow` waits for more, for ever.
        """
        return event_stream(self._client, after=after, follow=follow)

    async def lineage(self, job_id: str) -> Lineage:
        """The chain that job belongs to, from its root to its tip, with every attempt."""
        return await retrying.lineage(self._client, job_id_of(job_id))

    async def retry(self, job_id: str) -> Handle[Any]:
        """Do a job again that failed, was skipped or cancelled: a new job, counting from zero.

        It follows the last job of the chain, and copies what was asked. TransitionRefused if that
        one has not ended so, or is delivered once; DuplicateJob if somebody retried it meanwhile.
        """
        return await retrying.retry(self._client, job_id_of(job_id))

    async def retry_many(
        self,
        *,
        states: Iterable[str] | None = None,
        queue: str | None = None,
        type: str | None = None,  # noqa: A002 - it is what a job calls it
        limit: int = 1000,
    ) -> list[Handle[Any]]:
        """Do many again, the newest first: `await app.retry_many(queue="mail")`.

        Dead letters, unless `states` says which. Left out are jobs that were retried already, so
        it may be repeated, and those delivered once.
        """
        return await retrying.retry_many(
            self._client, states=states, queue=queue, type=type, limit=limit
        )

    async def wait(self, job_id: str, timeout: Span | None = None) -> Job:  # noqa: ASYNC109 - WaitTimeout names the job
        """The job once it has ended; for a chain, the last of its jobs. WaitTimeout after that."""
        return await self._client.wait(job_id_of(job_id), timeout=timeout)

    async def cancel(self, job_id: str, reason: str | None = None) -> State:
        """Ask that a job not run, or stop: `cancelled` if it will not run, `running` if told."""
        return await self._client.cancel(job_id_of(job_id), reason=reason)

    async def set_queue(
        self,
        name: str,
        *,
        ordering: queues.OrderingName = "scheduled",
        concurrency: int | None = None,
        gap: int = 100,
    ) -> Queue:
        """Create a queue or change it: `await app.set_queue("story", concurrency=1)`.

        `concurrency` is how many of its jobs run at a time, over all workers; None is no limit.
        `ordering="position"` places each new job behind the last, `gap` apart. What is left out
        is set to its default; a pause stays. InvalidJob names a value that cannot be.
        """
        return await queues.set_queue(self._client, name, ordering, concurrency, gap)

    async def pause(
        self, queue: str, *, reason: str | None = None, duration: Span | None = None
    ) -> Queue:
        """Let no more jobs of a queue start, until `resume` or for `duration`; what runs goes on.

        Pausing it again replaces reason and duration.
        """
        return await queues.pause(self._client, queue, reason, duration)

    async def resume(self, queue: str) -> bool:
        """Let a paused queue go on at once; False if it was not paused."""
        return await queues.resume(self._client, queue)

    async def queue(self, name: str) -> Queue:
        """A queue's settings and its pause, or the defaults if nobody has set it."""
        return await queues.get(self._client, name)

    async def queues(self) -> list[Queue]:
        """Every queue that was ever set or paused, by name."""
        return await (await self._client.store()).queues()

    async def move(
        self,
        job_id: str,
        to: End | None = None,
        *,
        before: str | None = None,
        after: str | None = None,
        swap: str | None = None,
    ) -> Job:
        """Give a job that waits another place: `await app.move(job_id, "front")`, `before=other`.

        Among the jobs of its queue and priority; the others keep their order. TransitionRefused
        if it, or the other one, does not wait any more; InvalidJob if the other is of another
        queue or priority.
        """
        place = {"before": before, "after": after, "swap": swap}
        return await placing.move(self._client, job_id_of(job_id), to, **place)

    async def edit(
        self,
        job_id: str,
        *,
        params: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Span | None = None,
        at: datetime | None = None,
    ) -> Job:
        """Change a job that waits: `await app.edit(job_id, params={"n": 3}, delay="5m")`.

        `params` are all of its arguments, checked as at its enqueue; they are frozen at the first
        claim. With another `priority` it goes behind the jobs of that one. TransitionRefused if
        it does not wait any more.
        """
        return await placing.edit(
            self._client, job_id_of(job_id), params=params, priority=priority, delay=delay, at=at
        )

    async def next_jobs(self, queue: str = "default", limit: int = 10) -> list[Job]:
        """The next jobs of a queue in the order in which they are taken; what is due counts."""
        return await placing.next_jobs(self._client, queue, limit)

    async def normalise(self, queue: str) -> int:
        """Make the positions of a queue even again (100, 200, 300 …); how many changed."""
        return await placing.normalise(self._client, queue)

    def handle(self, job_id: str) -> Handle[Any]:
        """A handle on a job known by its id, whether it exists or not."""
        return Handle(job_id_of(job_id), self._client, created=False)

    def worker(
        self,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int | None = None,
        types: Collection[str] | None = None,
        instance_id: str | None = None,
        app_address: str | None = None,
    ) -> "Worker":
        """A worker in this process: `async with app.worker(): …`. It takes only types it knows.

        `app_address` (`"myapp:app"`) is where the processes of `executor="process"` find the app;
        left out, it is looked for in the module of each such handler.
        """
        from holdfast.worker.embedded import Worker  # noqa: PLC0415 - callers may never need one

        return Worker(
            self._store,
            self.registry,
            self.settings,
            ids=self._ids,
            random=SystemRandom().random,
            instance_id=instance_id or _instance_id(),
            queues=queues,
            types=types,
            concurrency=concurrency,
            app_address=app_address,
        )

    def engine(
        self,
        held: "Held",
        *,
        queues: Sequence[str] | None,
        types: Collection[str] | None,
        concurrency: int | None,
        app_address: str,
    ) -> "Engine":
        """What takes and runs this app's jobs, for whoever renews their leases elsewhere."""
        from holdfast.worker.engine import Engine  # noqa: PLC0415 - callers may never need one

        return Engine(
            self._store,
            self.registry,
            self.settings,
            ids=self._ids,
            random=SystemRandom().random,
            held=held,
            queues=self.registry.queues() if queues is None else queues,
            types=types,
            concurrency=concurrency,
            app_address=app_address,
        )

    def sync(self) -> Sync:
        """For code that is not async: `with app.sync() as wait: job = wait(send.enqueue(3))`."""
        return Sync(self._client.open, self.close)

    @property
    def templates(self) -> Templates:
        """Stored job definitions by name: save, get, all, remove, enqueue."""
        return Templates(self._client, self.registry)

    @property
    def store(self) -> Store:
        """The store itself, for tools; it is opened by whoever uses it first."""
        return self._store

    @contextmanager
    def using(self, store: Store, *, ids: Ids | None = None) -> Iterator[None]:
        """For a block, this app over another store: `with app.using(store): …`, as tests do.

        Its job types, and the workers made meanwhile, follow; so does every handle, so take none
        across the end of the block. It closes neither store. Blocks may be nested; no other thread
        may be using the app when one begins or ends.
        """
        kept = self._store, self._ids
        with self._client.using(store, ids or self._ids):
            self._store, self._ids = store, ids or self._ids
            try:
                yield
            finally:
                self._store, self._ids = kept

    async def close(self) -> None:
        """Let go of the store; twice is fine."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        await self._client.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _store(url: str | Store, ids: Ids) -> Store:
    if isinstance(url, str) or not hasattr(url, "add"):
        return open_store(cast("str", url), ids=ids)  # which says what an address looks like
    return url


def _instance_id() -> str:
    host = re.sub(r"[^A-Za-z0-9_.:-]", "-", socket.gethostname()) or "host"
    return f"{host[:100]}-{os.getpid()}"

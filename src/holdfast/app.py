"""The front door: an app over one store."""

import os
import re
import secrets
import socket
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from random import SystemRandom
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from holdfast.clock import SystemClock
from holdfast.config import SettingOptions, Settings
from holdfast.context import Run
from holdfast.core.command import Command
from holdfast.core.event import EventRecord
from holdfast.core.group import Group
from holdfast.core.ids import Ids
from holdfast.core.job import Job
from holdfast.core.outcome import Cancel, RetryAfter, Skip, Snooze
from holdfast.core.retry import Backoff
from holdfast.core.run import RunRecord
from holdfast.core.span import Span
from holdfast.core.state import State
from holdfast.jobs import bulk
from holdfast.jobs.client import Client
from holdfast.jobs.executing import ExecutorName
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
from holdfast.jobs.jobtype import Bound, JobType
from holdfast.jobs.policy import DeliveryName, ErrorNames, Policy, VerdictName
from holdfast.jobs.registry import Registry
from holdfast.jobs.waiting import job_id_of
from holdfast.store.base import Store
from holdfast.store.open import open_store

if TYPE_CHECKING:
    from holdfast.worker.embedded import Worker
    from holdfast.worker.engine import Engine
    from holdfast.worker.held import Held

P = ParamSpec("P")
R = TypeVar("R")
# Each by name, not by their base: pyright takes only these exact types out of a handler's union.
Ending = Snooze | Skip | Cancel | RetryAfter | Command


class Decorator(Protocol):
    """What `@app.job(…)` is: `run` leaves the signature, the endings leave the result."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Run, P], Coroutine[Any, Any, R | Ending]], /
    ) -> JobType[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R | Ending]], /
    ) -> JobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Run, P], R | Ending], /) -> JobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R | Ending], /) -> JobType[P, R]: ...


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
        )

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
        InvalidType if a setting contradicts another.
        """

        def register(handler: Callable[..., Any]) -> JobType[..., Any]:
            policy = Policy.new(
                name=getattr(handler, "__name__", "") if name is None else name,
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

    async def wait(self, job_id: str, timeout: Span | None = None) -> Job:  # noqa: ASYNC109 - WaitTimeout names the job
        """The job once it has ended; for a chain, the last of its jobs. WaitTimeout after that."""
        return await self._client.wait(job_id_of(job_id), timeout=timeout)

    async def cancel(self, job_id: str, reason: str | None = None) -> State:
        """Ask that a job not run, or stop: `cancelled` if it will not run, `running` if told."""
        return await self._client.cancel(job_id_of(job_id), reason=reason)

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

    @property
    def store(self) -> Store:
        """The store itself, for tools; it is opened by whoever uses it first."""
        return self._store

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

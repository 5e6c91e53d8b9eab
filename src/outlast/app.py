"""The app: job types, schedules and workers over one store."""

import os
import re
import secrets
import socket
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
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

from outlast.admin import Admin
from outlast.app_hooks import Hooks
from outlast.app_name import app_name, calling_frame
from outlast.clock import SystemClock
from outlast.config import SettingOptions, Settings
from outlast.core.duration import Duration
from outlast.core.ids import Ids
from outlast.core.retry import Backoff, Delays
from outlast.jobs import enqueue_many
from outlast.jobs.client import Client
from outlast.jobs.decorator import AsyncHandler, Decorator, Handler, HandlerEnding
from outlast.jobs.executor_choice import ExecutorName
from outlast.jobs.handle import Handle
from outlast.jobs.handler_class import default_name
from outlast.jobs.jobtype import Bound, JobType
from outlast.jobs.lifespan import NO_LIFESPAN, check_lifespan
from outlast.jobs.policy import DeliveryName, ErrorNames, MetadataOptions, Policy, VerdictName
from outlast.jobs.registry import Registry
from outlast.jobs.templates import TemplateManager
from outlast.run_context import Run
from outlast.store.contract import Capability, HasPollingDefaults, Store
from outlast.store.open import open_store, url_from_environment
from outlast.store.transfer_completion import complete_transfer
from outlast.sync import Sync

if TYPE_CHECKING:
    from outlast.scheduler.plan_builder import ScheduleOptions
    from outlast.scheduler.schedules import ScheduleDeclaration, ScheduleManager
    from outlast.worker.embedded import BackgroundServices, Worker
    from outlast.worker.engine import WorkerEngine
    from outlast.worker.lease_table import LeaseTable

P = ParamSpec("P")
R = TypeVar("R")


class Outlast(Hooks, Admin):
    """Durable jobs over one store.

    `app = Outlast("sqlite:///jobs.db")`; without a URL the variable OUTLAST_URL names the store.
    The store is opened on first use; `async with app:` closes it at the end. Settings may be given
    by name: `Outlast(url, lease="30s", renew="10s")`.

    `name` (default: the module that creates the app) tells apps apart that share a store.
    `lifespan` is an async context manager around the work of each process, and its value is
    `run.context`.

    Attributes:
        name: The name of the app.
        url: The store's URL; None if a store object was given.
        settings: The settings, with the defaults of the store.
        registry: The registered job types, by name.
    """

    def __init__(
        self,
        url: str | Store | None = None,
        *,
        name: str | None = None,
        settings: Settings | None = None,
        lifespan: "Callable[[Outlast], AbstractAsyncContextManager[Any]] | None" = None,
        **overrides: Unpack[SettingOptions],
    ) -> None:
        if lifespan is not None:
            check_lifespan(lifespan)
        self._lifespan = lifespan
        self.name = app_name(name, calling_frame())
        given = (settings or Settings()).with_(**overrides)
        self.registry = Registry()
        url = url_from_environment() if url is None else url
        self.url = url if isinstance(url, str) else None
        self._declared: dict[str, ScheduleDeclaration] = {}
        self._failure_sinks = []
        self._middleware = []
        self._ids = Ids(SystemClock().now, secrets.randbits)
        self._store = _store(url, self._ids)
        self.settings = _with_store_defaults(given, self._store)
        self._client = Client(
            self._store,
            settings=self.settings,
            ids=self._ids,
            load_result=self.registry.load_result,
            dump_params=self.registry.dump_params,
            opened=partial(complete_transfer, open_store=open_store),
            on_queue=self.registry.warn_of_queue,
        )

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
        **metadata: Unpack[MetadataOptions],
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
        **metadata: Unpack[MetadataOptions],
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
            **metadata: `tags`, `headers` and `meta` of its jobs, as in `JobType.options`.

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
                **metadata,
            )
            job_type: JobType[..., Any] = JobType(handler, policy, self._client, self._middleware)
            self.registry.add(job_type)
            return job_type

        return register if function is None else register(function)

    async def enqueue_many(self, bound: Iterable[Bound[R]], *, tx: Any = None) -> list[Handle[R]]:
        """Store many jobs: `await app.enqueue_many(send.bind(n) for n in range(10_000))`.

        Each job is stored or refused by itself; PartialEnqueueError, at the end, names those
        that were refused. If the store fails, `answers` of its error has the handle of each job
        that is stored, None for each that may be; the jobs behind the last answer were not sent.
        """
        return await enqueue_many.enqueue_many(self._client, bound, tx=tx)

    def worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        types: Collection[str] | None = None,
        instance_id: str | None = None,
        app_address: str | None = None,
    ) -> "Worker":
        """Return a worker in this process: `async with app.worker(): …`.

        It claims jobs of the registered types from `queues`. By default it serves every type and
        the queues of all types, those registered later included. `app_address` (`"myapp:app"`)
        tells the processes of `executor="process"` where the app is; the default is the module
        of each such handler.
        """
        from outlast.worker.embedded import Worker  # noqa: PLC0415 - loaded on demand

        return Worker(
            self._store,
            self.registry,
            self.settings,
            ids=self._ids,
            random=SystemRandom().random,
            background_services=self._background_services(),
            instance_id=instance_id or _instance_id(),
            queues=queues,
            types=types,
            concurrency=concurrency,
            app_address=app_address,
            failure_sinks=tuple(self._failure_sinks),
            app_name=self.name,
            declared_schedules=lambda: sorted(self._declared),
            lifespan=self._new_lifespan() or NO_LIFESPAN,
        )

    def _background_services(self) -> "BackgroundServices":
        """Return the background task of an embedded worker: the schedule trigger."""
        from outlast.scheduler.loop import TriggerLoop, sync_declared  # noqa: PLC0415 - same

        async def trigger(store: Store) -> None:
            await sync_declared(self.sync_schedules)
            # Without the leader lock: its file would remain beside the database file.
            await TriggerLoop(
                store,
                self._ids.job,
                self.settings.poll,
                clock=SystemClock(),
                random=SystemRandom().random,
                use_leader_lock=False,
            ).run()

        return trigger

    def _new_engine(
        self,
        held: "LeaseTable",
        *,
        queues: Sequence[str] | None,
        types: Collection[str] | None,
        concurrency: int | None,
        app_address: str,
    ) -> "WorkerEngine":
        """Return an engine that claims and runs jobs; another process renews their leases."""
        from outlast.worker.engine import WorkerEngine  # noqa: PLC0415 - loaded on demand

        return WorkerEngine(
            self._store,
            self.registry,
            self.settings,
            ids=self._ids,
            random=SystemRandom().random,
            leases=held,
            queues=self.registry.queues() if queues is None else queues,
            types=types,
            concurrency=concurrency,
            app_address=app_address,
            failure_sinks=tuple(self._failure_sinks),
        )

    def sync(self) -> Sync:
        """Return a bridge for sync code: `with app.sync() as wait: wait(send.enqueue(3))`."""
        return Sync(self._client.open, self.close)

    @property
    def templates(self) -> TemplateManager:
        """Stored job definitions by name: get, list, save, remove, enqueue, options."""
        return TemplateManager(self._client, self.registry)

    def schedule(
        self,
        name: str,
        cron: str | None = None,
        job_type: JobType[..., Any] | str | None = None,
        *,
        coalesce: bool,
        misfire_grace: Duration,
        **options: Unpack["ScheduleOptions"],
    ) -> None:
        """Declare a schedule: `app.schedule("nightly", "0 2 * * *", report, coalesce=True, …)`.

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
        self._declared[name] = declare(name, asked, self._declared)
        self.registry.tell_watchers()

    @property
    def schedules(self) -> "ScheduleManager":
        """Stored schedules by name: get, list, save, edit, remove, pause, resume, run, …."""
        from outlast.scheduler.schedules import ScheduleManager  # noqa: PLC0415 - same

        return ScheduleManager(self._client, self.registry, self._declared)

    async def sync_schedules(self) -> None:
        """Write the schedules that this app declares to the store, as its workers do."""
        if self._declared:
            await self.schedules.sync(self._declared, app=self.name)

    @property
    def store(self) -> Store:
        """The store itself, for tools; open the app or the store before using it."""
        return self._store

    @contextmanager
    def with_store(self, store: Store, *, ids: Ids | None = None) -> Iterator[None]:
        """Use another store for a block: `with app.with_store(store): …`, for tests.

        Job types, handles and workers created in the block use that store; do not use such a
        handle after the block. Neither store is closed. Blocks may be nested. No other thread
        may use the app while a block begins or ends.
        """
        outer = self._store, self._ids
        with self._client.using(store, ids or self._ids):
            self._store, self._ids = store, ids or self._ids
            try:
                yield
            finally:
                self._store, self._ids = outer

    async def close(self) -> None:
        """Close the store; idempotent."""
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
        return open_store(cast("str", url), ids=ids)  # its error shows how a URL looks
    return url


def _with_store_defaults(given: Settings, store: Store) -> Settings:
    if Capability.ONE_WRITE_LOCK in store.capabilities:
        given = given.for_one_write_lock()
    if not isinstance(store, HasPollingDefaults):
        return given
    return given.with_store_defaults(
        poll=store.polling_defaults.poll, tick=store.polling_defaults.tick
    )


def _instance_id() -> str:
    host = re.sub(r"[^A-Za-z0-9_.:-]", "-", socket.gethostname()) or "host"
    return f"{host[:100]}-{os.getpid()}"

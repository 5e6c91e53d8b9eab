"""Test harness: an app over a store and a clock of the test."""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final, ParamSpec, Self, TypeVar

from outlast.app import Outlast
from outlast.config import check_count
from outlast.core.duration import Duration, parse_duration
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.core.state import State
from outlast.errors import InvalidType
from outlast.jobs.jobtype import JobType
from outlast.run_context import NO_CONTEXT
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.direct_call import call_handler
from outlast.testing.drain import Drained, Drainer
from outlast.testing.enqueued import ExpectedJob, explain, explain_unwanted
from outlast.testing.loops import is_in_loop, new_runner, run_blocking
from outlast.testing.schedule_replay import ScheduleReplay, declare

P = ParamSpec("P")
T = TypeVar("T")

PAGE: Final = 1_000
LATER: Final = frozenset({State.SCHEDULED, State.RETRY_WAIT})


class Harness:
    """An app under test. Methods that run handlers are async; reads and the clock are sync.

    `with Harness(app, store, clock, ids=ids) as jobs: …` is the fixture `outlast`. The clock
    stands still until `advance` moves it. Backoff has its maximum jitter: after
    `Backoff(base="1m")`, `advance("1m")` makes the first retry due.

    The lifespan of the app is around each drain and each `run`; set `context` to replace it.
    """

    def __init__(
        self, app: Outlast, store: Store, clock: FakeClock, *, ids: Ids, logs: Path
    ) -> None:
        """Create a harness; `logs` is the folder for the output of commands."""
        self.app = app
        self.store = store
        self.clock = clock
        self._ids = ids
        self.context: Any = NO_CONTEXT
        self._logs = logs
        self._block = ExitStack()
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        self._block.enter_context(self.app.with_store(self.store, ids=self._ids))
        try:
            run_blocking(declare(self.app))  # their first slots follow the start of the test
        except BaseException:
            self._block.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._runner is not None:
                self._runner.close()
        finally:
            self._block.close()

    @property
    def now(self) -> datetime:
        """Time of the test, aware UTC."""
        return self.clock.now()

    def advance(self, span: Duration) -> None:
        """Move the clock: `outlast.advance("1h")`.

        The next drain runs the jobs due then, and those of the slots that came due meanwhile.
        """
        self.clock.advance(span)

    async def drain(
        self,
        *,
        limit: int | None = None,
        raising: bool = False,
        concurrency: int = 1,
        schedules: bool = True,
    ) -> Drained:
        """Run due jobs, and those that they enqueue, until none is due; return the runs in order.

        Jobs are claimed, run and finished as by a worker. Handlers with `executor="process"` run
        in this process, where they see the fakes of the test; commands are executed.

        Slots that came due since the last drain are fired first, each at its own time, and their
        jobs run at that time, as if a worker had run while `advance` moved the clock.

        Args:
            limit: Run at most this many jobs.
            raising: Stop at the first failure and raise the handler's exception; the job is
                left as a worker leaves it.
            concurrency: How many jobs run at a time.
            schedules: Whether slots are fired.
        """
        drainer = Drainer(self.app, self.store, ids=self._ids, logs=self._logs)
        return await self._drain(
            drainer, limit=limit, raising=raising, concurrency=concurrency, schedules=schedules
        )

    async def drain_until_idle(self, *, within: Duration = "1d", raising: bool = False) -> Drained:
        """Drain, move the clock to the next due job, and repeat, for at most `within`.

        The clock stays at the last due time; jobs due later than `within` are not run. Slots are
        fired as the clock passes them; the next slot of a schedule is no reason to go on.
        """
        latest = self.now + parse_duration(within, what="within")
        drainer = Drainer(self.app, self.store, ids=self._ids, logs=self._logs)
        drained = await self._drain(drainer, raising=raising)
        while (due := await self._next_due()) is not None and due <= latest:
            self.clock.advance(due - self.now)
            drained = await self._drain(drainer, raising=raising)
        return drained

    async def run(self, job_type: JobType[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call one handler as a worker does, without storing a job; return its result.

        Params and result make a round trip through JSON, so values that cannot be stored fail.
        Exceptions of the handler are raised; a `Snooze`, `Skip`, `Cancel`, `RetryAfter` or
        `Command` is returned as it is. The run is the first attempt and has no transaction.
        """
        kind = self._type(job_type)
        async with self._lifespan() as context:
            return await call_handler(kind, args, kwargs, ids=self._ids, context=context)

    def jobs(
        self,
        job_type: JobType[..., Any] | str | None = None,
        *,
        queue: str | None = None,
        states: Collection[State] | None = None,
    ) -> list[Job]:
        """Return the stored jobs, the first one enqueued first."""
        kind = None if job_type is None else self._type(job_type).name
        which = None if states is None else frozenset(states)
        return run_blocking(self._find(Filter(type=kind, queue=queue, states=which)))

    def assert_enqueued(
        self,
        job_type: JobType[..., Any] | str,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        count: int | None = None,
        queue: str | None = None,
        within: Duration | None = None,
        **fields: Any,
    ) -> list[Job]:
        """Fail unless a matching job was enqueued; return the jobs that match.

        `outlast.assert_enqueued(send_invoice, invoice_id=3, within="5m")`. Params not named
        match anything. Jobs that have run since count too; retries do not. The message shows
        the stored jobs.

        Args:
            job_type: The job type, or its name.
            count: The exact number of matching jobs.
            queue: The queue of the job.
            within: The latest due time from now.
            params: For params called `count`, `queue` or `within`.
            **fields: The params.
        """
        __tracebackhide__ = True
        wanted = self._wanted(job_type, {**(params or {}), **fields}, queue, within)
        jobs = self._enqueued()
        fitting = [job for job in jobs if not wanted.misses(job, self.now)]
        least = 1 if count is None else check_count(count, what="count", least=0)
        if len(fitting) < least or (count is not None and len(fitting) != count):
            raise AssertionError(explain(wanted, jobs, fitting, count=count, now=self.now))
        return fitting

    def assert_not_enqueued(
        self,
        job_type: JobType[..., Any] | str,
        params: Mapping[str, Any] | None = None,
        /,
        *,
        queue: str | None = None,
        within: Duration | None = None,
        **fields: Any,
    ) -> None:
        """Fail if a matching job was enqueued, and show it; see `assert_enqueued`."""
        __tracebackhide__ = True
        wanted = self._wanted(job_type, {**(params or {}), **fields}, queue, within)
        fitting = [job for job in self._enqueued() if not wanted.misses(job, self.now)]
        if fitting:
            raise AssertionError(explain_unwanted(wanted, fitting, now=self.now))

    def complete(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in a sync test: `outlast.complete(send_invoice.enqueue(3))`."""
        if is_in_loop():
            coroutine.close()
            raise RuntimeError("this test runs in an event loop already; write `await` instead")
        if self._runner is None:
            self._runner = new_runner()
        return self._runner.run(coroutine)

    async def _drain(
        self, drainer: Drainer, *, limit: int | None = None, schedules: bool = True, **how: Any
    ) -> Drained:
        """Drain at the time of each due slot, then at the present time."""
        if limit is not None:
            check_count(limit, what="limit")
        await self.store.open()
        await declare(self.app)

        async def drain() -> bool:
            """Drain up to the limit; return whether more jobs may be run."""
            room = None if limit is None else limit - drainer.count
            if room != 0:
                await drainer.drain(limit=room, **how)
            return limit is None or drainer.count < limit

        async with self._lifespan() as drainer.context:
            if schedules:
                await ScheduleReplay(self.store, self.clock, self._ids.job).run(drain)
            await drain()
        return drainer.drained

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[Any]:
        """Enter the lifespan of the app unless the test gave a context."""
        app, is_replaced = self.app, self.context is not NO_CONTEXT
        lifespan = None if is_replaced else app._new_lifespan()  # noqa: SLF001 - same package
        if lifespan is None:
            yield self.context
            return
        context = await lifespan.start()
        try:
            yield context
        finally:
            await lifespan.stop()

    def _type(self, asked: JobType[..., Any] | str) -> JobType[..., Any]:
        if isinstance(asked, str):
            return self.app.registry.get(asked)
        if not isinstance(asked, JobType):
            raise InvalidType(f"{asked!r:.80} is no job type; pass what `@app.job` made, or a name")
        if asked.client is not self.app.registry.get(asked.name).client:
            raise InvalidType(
                f'job type "{asked.name}" belongs to another app than `outlast_app`; use that one'
            )
        return asked

    def _wanted(
        self,
        job_type: JobType[..., Any] | str,
        params: Mapping[str, Any],
        queue: str | None,
        within: Duration | None,
    ) -> ExpectedJob:
        span = None if within is None else parse_duration(within, what="within")
        return ExpectedJob.new(self._type(job_type), params, queue=queue, within=span)

    def _enqueued(self) -> list[Job]:
        # Synchronous: an assertion that is a coroutine passes if it is never awaited.
        found = run_blocking(self._find(Filter()))
        return [job for job in found if job.retry_of is None]

    async def _next_due(self) -> datetime | None:
        later = await self._find(Filter(states=LATER))
        # A due job that is left cannot be run: a wait for it would not end.
        return min((job.available_at for job in later if job.available_at > self.now), default=None)

    async def _find(self, what: Filter) -> list[Job]:
        await self.store.open()
        jobs: list[Job] = []
        while page := await self.store.find(
            what, limit=PAGE, before=jobs[-1].seq if jobs else None
        ):
            jobs.extend(page)
        return [self.app.registry.envelopes.reveal(job) for job in reversed(jobs)]

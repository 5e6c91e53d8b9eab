"""What a test holds in its hands: an app on a store and a clock of the test's own."""

import asyncio
from collections.abc import Collection, Coroutine, Mapping
from contextlib import ExitStack
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
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.direct_call import call_handler
from outlast.testing.drain import Drained, Drainer
from outlast.testing.enqueued import ExpectedJob, explain, explain_unwanted
from outlast.testing.loops import is_in_loop, new_runner, run_blocking

P = ParamSpec("P")
T = TypeVar("T")

PAGE: Final = 1_000
LATER: Final = frozenset({State.SCHEDULED, State.RETRY_WAIT})


class Harness:
    """An app under test. What runs your handlers is awaited; looking and moving the clock is not.

    `with Harness(app, store, clock, ids=ids) as jobs: …` is what the fixture `outlast` gives.
    Time stands still until `advance` moves it. Backoff waits its longest, so that a test knows
    when: after `Backoff(base="1m")`, `advance("1m")` makes the first retry due.
    """

    def __init__(
        self, app: Outlast, store: Store, clock: FakeClock, *, ids: Ids, logs: Path
    ) -> None:
        """`logs` is the folder for the output of commands."""
        self.app = app
        self.store = store
        self.clock = clock
        self._ids = ids
        self._logs = logs
        self._block = ExitStack()
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        self._block.enter_context(self.app.with_store(self.store, ids=self._ids))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._runner is not None:
                self._runner.close()
        finally:
            self._block.close()

    @property
    def now(self) -> datetime:
        """The time of the test, aware UTC."""
        return self.clock.now()

    def advance(self, span: Duration) -> None:
        """Let time pass: `outlast.advance("1h")`. What falls due then runs with the next drain."""
        self.clock.advance(span)

    async def drain(
        self, *, limit: int | None = None, raising: bool = False, concurrency: int = 1
    ) -> Drained:
        """Run what is due now, and what that enqueues, until nothing is due; what ran, in order.

        Jobs are claimed, run and finished as by a worker. With `limit`, no more jobs than that.
        `raising`: the first failure ends it, and what the handler raised leaves here; the job is
        as a worker would leave it. Handlers of `executor="process"` run in this process, so that
        they see what the test has put in place; commands are really run.
        """
        drainer = Drainer(self.app, self.store, ids=self._ids, logs=self._logs)
        return await drainer.drain(limit=limit, raising=raising, concurrency=concurrency)

    async def drain_until_idle(self, *, within: Duration = "1d", raising: bool = False) -> Drained:
        """Drain, go on to the moment when the next job is due, and again, for at most `within`.

        The clock stays at the last moment at which something was due; what is due later than
        `within` is left as it is.
        """
        latest = self.now + parse_duration(within, what="within")
        drainer = Drainer(self.app, self.store, ids=self._ids, logs=self._logs)
        drained = await drainer.drain(raising=raising)
        while (due := await self._next_due()) is not None and due <= latest:
            self.clock.advance(due - self.now)
            drained = await drainer.drain(raising=raising)
        return drained

    async def run(self, job_type: JobType[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call one handler as a worker would, without storing a job; what it returns.

        Arguments and result take the trip through JSON, so that what cannot be stored fails here.
        Whatever the handler raises comes out; a `Snooze`, `Skip`, `Cancel`, `RetryAfter` or
        `Command` is answered as it is. Its run is the first attempt and has no transaction.
        """
        return await call_handler(self._type(job_type), args, kwargs, ids=self._ids)

    def jobs(
        self,
        job_type: JobType[..., Any] | str | None = None,
        *,
        queue: str | None = None,
        states: Collection[State] | None = None,
    ) -> list[Job]:
        """The jobs there are now, the first one enqueued first."""
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
        **args: Any,
    ) -> list[Job]:
        """Fail, and show what was enqueued, unless such a job was; the jobs that fit.

        `outlast.assert_enqueued(send_invoice, invoice_id=3, within="5m")`. Arguments not named do
        not matter. Jobs that have run since count too; retries do not. `count`: exactly so many.
        `within`: due that soon. `params` is for arguments called `count`, `queue` or `within`.
        """
        __tracebackhide__ = True
        wanted = self._wanted(job_type, {**(params or {}), **args}, queue, within)
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
        **args: Any,
    ) -> None:
        """Fail, and show them, if such jobs were enqueued; see `assert_enqueued`."""
        __tracebackhide__ = True
        wanted = self._wanted(job_type, {**(params or {}), **args}, queue, within)
        fitting = [job for job in self._enqueued() if not wanted.misses(job, self.now)]
        if fitting:
            raise AssertionError(explain_unwanted(wanted, fitting, now=self.now))

    def complete(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """In a test that is a plain function: `outlast.complete(send_invoice.enqueue(3))`."""
        if is_in_loop():
            coroutine.close()
            raise RuntimeError("this test runs in an event loop already; write `await` instead")
        if self._runner is None:
            self._runner = new_runner()
        return self._runner.run(coroutine)

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
        args: Mapping[str, Any],
        queue: str | None,
        within: Duration | None,
    ) -> ExpectedJob:
        span = None if within is None else parse_duration(within, what="within")
        return ExpectedJob.new(self._type(job_type), args, queue=queue, within=span)

    def _enqueued(self) -> list[Job]:
        # At once, not awaited: an assertion that is a coroutine passes when nobody awaits it.
        found = run_blocking(self._find(Filter()))
        return [job for job in found if job.retry_of is None]

    async def _next_due(self) -> datetime | None:
        later = await self._find(Filter(states=LATER))
        # What is due and still there cannot be run: waiting for it would never end.
        return min((job.available_at for job in later if job.available_at > self.now), default=None)

    async def _find(self, what: Filter) -> list[Job]:
        await self.store.open()
        jobs: list[Job] = []
        while page := await self.store.find(
            what, limit=PAGE, before=jobs[-1].seq if jobs else None
        ):
            jobs.extend(page)
        return jobs[::-1]

"""Drain: run due jobs as a worker does, one by one and deterministically."""

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, overload

from outlast.app import Outlast
from outlast.config import check_count
from outlast.core.decide import Change
from outlast.core.event import Unfit
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.core.run import Claim, Lease, LeaseHolder, RunRecord
from outlast.core.state import RunStatus
from outlast.jobs.jobtype import JobType
from outlast.jobs.registry import Registry
from outlast.run_context import NO_CONTEXT
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.worker.engine import WorkerEngine
from outlast.worker.lease_table import InMemoryLeaseTable
from outlast.worker.maintenance.loop import Maintenance
from outlast.worker.run_outcome import ActiveRun, OutcomeJudge

HOLDER: Final = LeaseHolder(instance_id="test", boot_id="test")
MAX_RUNS: Final = 10_000
"""Runs of a drain without limit; more mean that a job enqueues itself without end."""

NOT_SUCCEEDED: Final = frozenset({RunStatus.FAILED, RunStatus.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedRun:
    """One run: the job after it, the run record, the result and the handler's error."""

    job: Job
    run: RunRecord
    result: Any
    error: BaseException | None

    @property
    def type(self) -> str:
        """Name of the job type."""
        return self.job.type

    @property
    def outcome(self) -> RunStatus:
        """Status of the ended run."""
        return self.run.status

    def __str__(self) -> str:
        why = f" ({self.error!r})" if self.error is not None else ""
        return f"{self.type} {self.job.params} {self.outcome}{why}"


@dataclass(frozen=True, slots=True)
class Drained(Sequence[DrainedRun]):
    """The runs of a drain, in claim order."""

    runs: tuple[DrainedRun, ...] = ()

    @property
    def succeeded(self) -> list[DrainedRun]:
        """Runs that succeeded."""
        return [ran for ran in self.runs if ran.outcome is RunStatus.SUCCEEDED]

    @property
    def failed(self) -> list[DrainedRun]:
        """Runs that failed or were lost; their jobs may be retried."""
        return [ran for ran in self.runs if ran.outcome in NOT_SUCCEEDED]

    @overload
    def __getitem__(self, place: int) -> DrainedRun: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[DrainedRun, ...]: ...
    def __getitem__(self, place: int | slice) -> DrainedRun | tuple[DrainedRun, ...]:
        return self.runs[place]

    def __iter__(self) -> Iterator[DrainedRun]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"Drained({'; '.join(map(str, self.runs)) or 'nothing was due'})"


class Drainer:
    """Drains an app's store; `drained` has all runs so far, `context` is that of the runs."""

    def __init__(self, app: Outlast, store: Store, *, ids: Ids, logs: Path) -> None:
        self.context: Any = NO_CONTEXT
        self._store = store
        self._registry = _in_this_process(app.registry)
        # A test has one version of the code: params that do not fit it are an error at once.
        self._settings = app.settings.with_(prefetch=0, logs=logs, max_unfit="0s")
        self._ids = ids
        self._witness = _RecordingJudge(ids.job, _max_jitter)
        self._ran: list[DrainedRun] = []

    async def drain(
        self, *, limit: int | None = None, raising: bool = False, concurrency: int = 1
    ) -> None:
        """Run due jobs until none is due, or `limit` jobs were run."""
        room = None if limit is None else check_count(limit, what="limit")
        await self._store.open()
        await Maintenance(self._store, self._ids.job).run_once()
        served: list[str] = []
        # A job may enqueue into another queue: repeat until no new queue appears.
        while served != (found := await self._queues()) and room != 0:
            served = found
            room = await self._serve(found, room, raising=raising, concurrency=concurrency)

    @property
    def count(self) -> int:
        """Number of runs so far."""
        return len(self._ran)

    @property
    def drained(self) -> Drained:
        """All runs so far, in order."""
        return Drained(tuple(self._ran))

    async def _queues(self) -> list[str]:
        used = {queue for queue, _ in await self._store.counts()}
        return sorted({*self._registry.queues(), *used})

    async def _serve(
        self, queues: list[str], room: int | None, *, raising: bool, concurrency: int
    ) -> int | None:
        held = _RecordingLeaseTable(room)
        engine = self._engine(held, queues, concurrency)
        engine.context = self.context
        engine.prepare(HOLDER)
        ear = _CancelListener(self._store, held, engine, self._settings.lease)
        try:
            while await engine.run_once():
                for claim in held.take_claims():
                    await self._note(claim, raising=raising)
                self._require_progress(room)
        finally:
            await ear.close()
            await engine.stop(timedelta(0))
            engine.close()
        return None if room is None else held.room

    def _engine(
        self, held: "_RecordingLeaseTable", queues: list[str], concurrency: int
    ) -> WorkerEngine:
        return WorkerEngine(
            self._store,
            self._registry,
            self._settings,
            ids=self._ids,
            random=_max_jitter,
            leases=held,
            queues=queues,
            concurrency=concurrency,
            judge=self._witness,
        )

    async def _note(self, claim: Claim, *, raising: bool) -> None:
        job = (await self._store.get([claim.job_id]))[0]
        runs = await self._store.runs(claim.job_id)
        run = next(run for run in runs if run.token == claim.token)
        assert job is not None
        result = self._registry.load_result(job.type, run.result)
        error = self._witness.errors.get(claim.lease)
        self._ran.append(DrainedRun(job=job, run=run, result=result, error=error))
        if raising and run.status in NOT_SUCCEEDED:
            raise error or AssertionError(
                f'a job of type "{job.type}" was {run.status} ({run.reason}): {run.error}'
            )

    def _require_progress(self, room: int | None) -> None:
        if room is None and len(self._ran) >= MAX_RUNS:
            last = ", ".join(sorted({ran.type for ran in self._ran[-100:]}))
            raise AssertionError(
                f"{MAX_RUNS:,} jobs were run without an end: does one enqueue itself, or retry or "
                f"snooze without delay? The last ones were of type {last}; drain with a limit"
            )


class _RecordingJudge(OutcomeJudge):
    """Records the exceptions of handlers; a store keeps only their text."""

    errors: dict[Lease, BaseException]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.errors = {}

    def raised(self, active: ActiveRun, error: BaseException) -> Change:
        self.errors[active.claim.lease] = error
        return super().raised(active, error)

    def refused(self, claim: Claim, event: Unfit, error: BaseException) -> Change:
        self.errors[claim.lease] = error
        return super().refused(claim, event, error)


class _RecordingLeaseTable(InMemoryLeaseTable):
    """Lease table that records every claim and accepts a limited number."""

    def __init__(self, room: int | None) -> None:
        super().__init__()
        self.room = InMemoryLeaseTable.room if room is None else room
        self._notes: list[Claim] = []

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        self._notes.extend(claims)
        self.room -= len(claims)
        return super().add(claims)

    def take_claims(self) -> list[Claim]:
        notes, self._notes = self._notes, []
        return notes


class _CancelListener:
    """Passes stop requests to running handlers; a worker sees them when it renews leases."""

    def __init__(
        self, store: Store, held: InMemoryLeaseTable, engine: WorkerEngine, lease: timedelta
    ) -> None:
        self._store = store
        self._held = held
        self._engine = engine
        self._lease = lease
        self._loop = asyncio.get_running_loop()
        self._looking: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._deaf = store.subscribe(self._on_notification, topics=[Topic.CANCELLED])

    async def close(self) -> None:
        self._is_closed = True  # a notification may still arrive
        self._deaf()
        await asyncio.gather(*self._looking)

    def _on_notification(self, _: Notification) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing runs on it
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._is_closed:
            return
        task = self._loop.create_task(self._poll())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _poll(self) -> None:
        leases = self._held.all()
        renewals = await self._store.renew(leases, span=self._lease)
        for lease, renewal in zip(leases, renewals, strict=True):
            if renewal.cancel_requested or not renewal.held:
                self._engine.on_renewal(lease, renewal)


def _in_this_process(registry: Registry) -> Registry:
    """Return the same types without process executors.

    A process would not see the fakes of the test, and its app would use the real store.
    """
    here = Registry()
    for name in registry.names():
        here.add(_here(registry.get(name)))
    return here


def _here(kind: JobType[..., Any]) -> JobType[..., Any]:
    if kind.executor != "process":
        return kind
    moved: Any = copy(kind)
    moved.executor = "async" if inspect.iscoroutinefunction(kind.function) else "thread"
    return moved  # type: ignore[no-any-return]  # a job type still


def _max_jitter() -> float:
    """Return the maximum jitter, so that a retry is due exactly after its backoff."""
    return 1.0

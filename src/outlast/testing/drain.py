"""Running what is due as a worker does, job by job, with nothing left to chance."""

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
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.core.run import Claim, Lease, LeaseHolder, RunRecord
from outlast.core.state import RunStatus
from outlast.jobs.jobtype import JobType
from outlast.jobs.registry import Registry
from outlast.store.contract import Store
from outlast.store.contract.notifications import Notification, Topic
from outlast.worker.engine import WorkerEngine
from outlast.worker.lease_table import InMemoryLeaseTable
from outlast.worker.maintenance.loop import Maintenance
from outlast.worker.run_outcome import ActiveRun, OutcomeJudge

HOLDER: Final = LeaseHolder(instance_id="test", boot_id="test")
MOST: Final = 10_000
"""More than that, without a limit, and some job enqueues itself for ever."""

BAD: Final = frozenset({RunStatus.FAILED, RunStatus.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainedRun:
    """One run: the job as it was left, the run itself, its result, and what its handler raised."""

    job: Job
    run: RunRecord
    result: Any
    error: BaseException | None

    @property
    def type(self) -> str:
        return self.job.type

    @property
    def outcome(self) -> RunStatus:
        """How the run ended."""
        return self.run.status

    def __str__(self) -> str:
        why = f" ({self.error!r})" if self.error is not None else ""
        return f"{self.type} {self.job.params} {self.outcome}{why}"


@dataclass(frozen=True, slots=True)
class Drained(Sequence[DrainedRun]):
    """What a drain ran, in the order in which it was taken."""

    runs: tuple[DrainedRun, ...] = ()

    @property
    def succeeded(self) -> list[DrainedRun]:
        return [ran for ran in self.runs if ran.outcome is RunStatus.SUCCEEDED]

    @property
    def failed(self) -> list[DrainedRun]:
        """Those whose handler failed, or was lost; they may be tried again."""
        return [ran for ran in self.runs if ran.outcome in BAD]

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
    """Drains an app's store, once or several times; `drain` answers all that ran so far."""

    def __init__(self, app: Outlast, store: Store, *, ids: Ids, logs: Path) -> None:
        self._store = store
        self._registry = _in_this_process(app.registry)
        self._settings = app.settings.with_(prefetch=0, logs=logs)
        self._ids = ids
        self._witness = _RecordingJudge(ids.job, _longest)
        self._ran: list[DrainedRun] = []

    async def drain(
        self, *, limit: int | None = None, raising: bool = False, concurrency: int = 1
    ) -> Drained:
        """Run what is due until nothing is, or `limit` jobs were run."""
        room = None if limit is None else check_count(limit, what="limit")
        await self._store.open()
        await Maintenance(self._store, self._ids.job).run_once()
        served: list[str] = []
        # A job may enqueue another where nobody has looked: so look until there is no new place.
        while served != (found := await self._queues()) and room != 0:
            served = found
            room = await self._serve(found, room, raising=raising, concurrency=concurrency)
        return Drained(tuple(self._ran))

    async def _queues(self) -> list[str]:
        used = {queue for queue, _ in await self._store.counts()}
        return sorted({*self._registry.queues(), *used})

    async def _serve(
        self, queues: list[str], room: int | None, *, raising: bool, concurrency: int
    ) -> int | None:
        held = _Noted(room)
        engine = self._engine(held, queues, concurrency)
        engine.prepare(HOLDER)
        ear = _CancelListener(self._store, held, engine, self._settings.lease)
        try:
            while await engine.run_once():
                for claim in held.take_notes():
                    await self._note(claim, raising=raising)
                self._require_an_end(room)
        finally:
            await ear.close()
            await engine.stop(timedelta(0))
            engine.close()
        return None if room is None else held.room

    def _engine(self, held: "_Noted", queues: list[str], concurrency: int) -> WorkerEngine:
        return WorkerEngine(
            self._store,
            self._registry,
            self._settings,
            ids=self._ids,
            random=_longest,
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
        if raising and run.status in BAD:
            raise error or AssertionError(
                f'a job of type "{job.type}" was {run.status} ({run.reason}): {run.error}'
            )

    def _require_an_end(self, room: int | None) -> None:
        if room is None and len(self._ran) >= MOST:
            last = ", ".join(sorted({ran.type for ran in self._ran[-100:]}))
            raise AssertionError(
                f"{MOST:,} jobs were run and there is no end: does one enqueue itself, or retry or "
                f"snooze without delay? The last ones were of type {last}; drain with a limit"
            )


class _RecordingJudge(OutcomeJudge):
    """Remembers what handlers raised: a store keeps only the words."""

    errors: dict[Lease, BaseException]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.errors = {}

    def raised(self, active: ActiveRun, error: BaseException) -> Change:
        self.errors[active.claim.lease] = error
        return super().raised(active, error)

    def invalid_params(self, claim: Claim, error: BaseException) -> Change:
        self.errors[claim.lease] = error
        return super().invalid_params(claim, error)


class _Noted(InMemoryLeaseTable):
    """Keeps a note of every claim, and takes no more than it was allowed."""

    def __init__(self, room: int | None) -> None:
        super().__init__()
        self.room = InMemoryLeaseTable.room if room is None else room
        self._notes: list[Claim] = []

    def add(self, claims: Sequence[Claim]) -> list[Lease]:
        self._notes.extend(claims)
        self.room -= len(claims)
        return super().add(claims)

    def take_notes(self) -> list[Claim]:
        notes, self._notes = self._notes, []
        return notes


class _CancelListener:
    """Tells handlers that run when somebody cancels their job; a worker hears it as it renews."""

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
        self._deaf = store.subscribe(self._hear, topics=[Topic.CANCELLED])

    async def close(self) -> None:
        self._is_closed = True  # a hint may be on its way still
        self._deaf()
        await asyncio.gather(*self._looking)

    def _hear(self, _: Notification) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody runs here any more
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._is_closed:
            return
        task = self._loop.create_task(self._look())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look(self) -> None:
        leases = self._held.all()
        renewals = await self._store.renew(leases, span=self._lease)
        for lease, renewal in zip(leases, renewals, strict=True):
            if renewal.cancel_requested or not renewal.held:
                self._engine.on_renewal(lease, renewal)


def _in_this_process(registry: Registry) -> Registry:
    """The same types, none of them in a process of its own: it would not see the test's fakes,
    and its app would use the real store."""
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


def _longest() -> float:
    """Jitter at its most: a retry is due exactly when its backoff says."""
    return 1.0

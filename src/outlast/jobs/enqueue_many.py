"""Enqueue of many jobs: chunked, pipelined insert."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from outlast.core.job import NewJob
from outlast.errors import (
    CallerError,
    DuplicateJob,
    InvalidArgument,
    InvalidJob,
    OperatorError,
    TypeNotFound,
)
from outlast.jobs.client import Client
from outlast.jobs.enqueue_plan import EnqueuePlan, add_within
from outlast.jobs.handle import Handle
from outlast.jobs.jobtype import Bound, plan_of
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added

CHUNK: Final = 500
"""Jobs per write; the next chunk is prepared meanwhile."""
_MAX_SHOWN: Final = 5

R = TypeVar("R")


class PartialEnqueueError(InvalidJob):
    """Some jobs of an `enqueue_many` were not stored; all others are.

    `handles` has the stored ones, `failures` the errors by the index of the job in the call.
    """

    def __init__(self, handles: list[Handle[Any]], failures: dict[int, CallerError]) -> None:
        shown = [f"job {place}: {error}" for place, error in list(failures.items())[:_MAX_SHOWN]]
        more = f"; and {len(failures) - _MAX_SHOWN:,} more" if len(failures) > _MAX_SHOWN else ""
        super().__init__(
            f"{len(failures):,} jobs were not stored, the other {len(handles):,} are: "
            f"{'; '.join(shown)}{more}"
        )
        self.handles = handles
        self.failures = failures


async def enqueue_many(
    client: Client, bound: Iterable[Bound[R]], *, tx: Any = None
) -> list[Handle[R]]:
    """Store jobs in the order given; PartialEnqueueError, at the end, names the refused ones.

    If the store fails, its error has in `answers` the handle of each job that is stored, in the
    order given, None for each that was refused or may be stored or not; later jobs were not sent.
    """
    bulk: _ChunkedEnqueue[R] = _ChunkedEnqueue(client, await client.store(), tx)
    source = iter(bound)
    try:
        while chunk := list(islice(source, CHUNK)):
            await bulk.put(chunk)
    finally:
        await bulk.settle()  # also if `bound` raised: a started write is completed
    if bulk.failures:
        raise PartialEnqueueError(bulk.handles, bulk.failures)
    return bulk.handles


class _ChunkedEnqueue(Generic[R]):
    """Chunked insert: while the store writes one chunk, the next one is prepared."""

    def __init__(self, client: Client, store: Store, tx: Any) -> None:
        self.handles: list[Handle[R]] = []
        self.failures: dict[int, CallerError] = {}
        self._answers: list[Handle[R] | None] = []
        self._client = client
        self._store = store
        self._tx = tx
        self._plans: list[EnqueuePlan] = []
        self._jobs: list[NewJob] = []
        self._writing: asyncio.Task[list[Added]] | None = None

    async def put(self, chunk: list[Bound[R]]) -> None:
        """Prepare a chunk, wait for the write of the one before, and start writing this one."""
        calls = [plan_of(bound) for bound in chunk]
        ids = self._client.ids.jobs(len(chunk))
        jobs = [
            plan.make(job_id, params) for (plan, params), job_id in zip(calls, ids, strict=True)
        ]
        plans = [plan for plan, _ in calls]
        for plan in plans:
            self._require_ours(plan)
        await self.settle()
        self._plans, self._jobs = plans, jobs
        if self._tx is None:
            self._writing = asyncio.create_task(self._add(jobs))
            await asyncio.sleep(0)  # so that the write begins before the next chunk is prepared
        else:
            self._note(await add_within(self._store, self._tx, jobs))

    def _require_ours(self, plan: EnqueuePlan) -> None:
        if plan.client is not self._client:
            raise TypeNotFound(
                f'job type "{plan.type_name}" belongs to another app; enqueue it there, or '
                "register it here"
            )
        if plan.tx is not None:
            raise InvalidArgument(
                "a bound job has a tx of its own; give enqueue_many(…, tx=…) instead"
            )

    async def settle(self) -> None:
        """Wait for the write under way, if any, and note the result of each of its jobs."""
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                added = await writing
            except OperatorError as error:
                self._note(error.answers or [None] * len(self._jobs))
                raise error.with_answers(self._answers) from error
            self._note(added)

    async def _add(self, jobs: list[NewJob]) -> list[Added]:
        return await self._store.add(jobs)

    def _note(self, answers: Sequence[Added | None]) -> None:
        for plan, job, added in zip(self._plans, self._jobs, answers, strict=True):
            self._answers.append(None if added is None else self._handle(plan, job, added))

    def _handle(self, plan: EnqueuePlan, job: NewJob, added: Added) -> Handle[R] | None:
        """Return the job's handle; None, and a failure noted, if it was refused."""
        if added.created:
            handle: Handle[R] = Handle(added.id, self._client, created=True)
        else:
            try:
                handle = plan.to_handle(job.id, added)
            except (InvalidJob, DuplicateJob) as error:
                self.failures[len(self._answers)] = error
                return None
        if handle.created or plan.on_conflict != "skip":
            self.handles.append(handle)
        return handle

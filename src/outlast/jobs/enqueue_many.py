"""Enqueueing many jobs: one chunk is prepared while the one before is written."""

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from outlast.core.job import NewJob
from outlast.errors import CallerError, DuplicateJob, InvalidArgument, InvalidJob, TypeNotFound
from outlast.jobs.client import Client
from outlast.jobs.handle import Handle
from outlast.jobs.jobtype import Bound, add_within
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added

CHUNK: Final = 500
"""How many are written at a time, while as many are prepared."""
_SHOWN: Final = 5

R = TypeVar("R")


class PartialEnqueueError(InvalidJob):
    """Some jobs of an `enqueue_many` were not stored; all the others are.

    `handles` are those of the others, `failures` the errors by the place of their job in the call.
    """

    def __init__(self, handles: list[Handle[Any]], failures: dict[int, CallerError]) -> None:
        shown = [f"job {place}: {error}" for place, error in list(failures.items())[:_SHOWN]]
        more = f"; and {len(failures) - _SHOWN:,} more" if len(failures) > _SHOWN else ""
        super().__init__(
            f"{len(failures):,} jobs were not stored, the other {len(handles):,} are: "
            f"{'; '.join(shown)}{more}"
        )
        self.handles = handles
        self.failures = failures


async def enqueue_many(
    client: Client, bound: Iterable[Bound[R]], *, tx: Any = None
) -> list[Handle[R]]:
    """Store them all in the order given; PartialEnqueueError, at the end, names those it could not."""
    bulk: _ChunkedEnqueue[R] = _ChunkedEnqueue(client, await client.store(), tx)
    source = iter(bound)
    try:
        while chunk := list(islice(source, CHUNK)):
            await bulk.put(chunk)
    finally:
        await bulk.settle()  # also when `bound` raised: what is under way is being stored
    if bulk.failures:
        raise PartialEnqueueError(bulk.handles, bulk.failures)
    return bulk.handles


class _ChunkedEnqueue(Generic[R]):
    """At most one chunk on its way to the store, and what became of those before."""

    def __init__(self, client: Client, store: Store, tx: Any) -> None:
        self.handles: list[Handle[R]] = []
        self.failures: dict[int, CallerError] = {}
        self._client = client
        self._store = store
        self._tx = tx
        self._place = 0
        self._chunk: list[Bound[R]] = []
        self._jobs: list[NewJob] = []
        self._writing: asyncio.Task[list[Added]] | None = None

    async def put(self, chunk: list[Bound[R]]) -> None:
        """Prepare these, see the chunk before them settled, and send them off."""
        ids = self._client.ids.jobs(len(chunk))
        jobs = [
            bound.configured.make(job_id, bound.params)
            for bound, job_id in zip(chunk, ids, strict=True)
        ]
        for bound in chunk:
            self._require_ours(bound)
        await self.settle()
        self._chunk, self._jobs = chunk, jobs
        if self._tx is None:
            self._writing = asyncio.create_task(self._add(jobs))
            await asyncio.sleep(0)  # so that the write begins before the next chunk is prepared
        else:
            self._note(await add_within(self._store, self._tx, jobs))

    def _require_ours(self, bound: Bound[R]) -> None:
        configured = bound.configured
        if configured.client is not self._client:
            raise TypeNotFound(
                f'job type "{configured.type.name}" belongs to another app; enqueue it there, or '
                "register it here"
            )
        if configured.tx is not None:
            raise InvalidArgument(
                "a bound job has a tx of its own; give enqueue_many(…, tx=…) instead"
            )

    async def settle(self) -> None:
        """Wait for the chunk that is under way, if any, and note what became of each job."""
        writing, self._writing = self._writing, None
        if writing is not None:
            self._note(await writing)

    async def _add(self, jobs: list[NewJob]) -> list[Added]:
        return await self._store.add(jobs)

    def _note(self, answers: list[Added]) -> None:
        for bound, job, added in zip(self._chunk, self._jobs, answers, strict=True):
            if added.created:
                self.handles.append(Handle(added.id, self._client, created=True))
            else:
                self._note_unusual(bound, job, added)
            self._place += 1

    def _note_unusual(self, bound: Bound[R], job: NewJob, added: Added) -> None:
        try:
            handle = bound.configured.to_handle(job.id, added)
        except (InvalidJob, DuplicateJob) as error:
            self.failures[self._place] = error
            return
        if handle.created or bound.configured.on_conflict != "skip":
            self.handles.append(handle)

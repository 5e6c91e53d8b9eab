"""Enqueueing many jobs: one chunk is prepared while the one before is written."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, Final, Generic, TypeVar

from holdfast.core.job import NewJob
from holdfast.errors import CallerError, DuplicateJob, InvalidJob, UnknownType
from holdfast.jobs.client import Client
from holdfast.jobs.handle import Handle
from holdfast.jobs.jobtype import Bound, add_within
from holdfast.store.base import Added, Store

CHUNK: Final = 500
"""How many are written at a time, while as many are prepared."""
FIRST: Final = (125, 375)
"""How many before that: the store waits for the first of them, and for them alone."""
_SHOWN: Final = 5

R = TypeVar("R")


class SomeRefused(InvalidJob):
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
    """Store them all in the order given; SomeRefused, at the end, names those it could not."""
    bulk: _Bulk[R] = _Bulk(client, await client.store(), tx)
    try:
        for chunk in _chunks(bound):
            await bulk.put(chunk)
    finally:
        await bulk.settle()  # also when `bound` raised: what is under way is being stored
    if bulk.failures:
        raise SomeRefused(bulk.handles, bulk.failures)
    return bulk.handles


def _chunks(bound: Iterable[Bound[R]]) -> Iterator[list[Bound[R]]]:
    source = iter(bound)
    for size in chain(FIRST, repeat(CHUNK)):
        if not (chunk := list(islice(source, size))):
            return
        yield chunk


@dataclass(frozen=True, slots=True)
class _Sent(Generic[R]):
    """A chunk on its way to the store."""

    chunk: list[Bound[R]]
    jobs: list[NewJob]
    writing: "asyncio.Task[list[Added]]"


class _Bulk(Generic[R]):
    """At most one chunk on its way to the store, and what became of those before."""

    def __init__(self, client: Client, store: Store, tx: Any) -> None:
        self.handles: list[Handle[R]] = []
        self.failures: dict[int, CallerError] = {}
        self._client = client
        self._store = store
        self._tx = tx
        self._place = 0
        self._sent: _Sent[R] | None = None

    async def put(self, chunk: list[Bound[R]]) -> None:
        """Prepare these, see the chunk before them written, send them off, and note the others."""
        ids = self._client.ids.jobs(len(chunk))
        jobs = [
            bound.configured.make(job_id, bound.params)
            for bound, job_id in zip(chunk, ids, strict=True)
        ]
        for bound in chunk:
            self._require_ours(bound)
        if self._tx is not None:  # whoever gives it may use it between two chunks
            self._note(chunk, jobs, await add_within(self._store, self._tx, jobs))
            return
        before, answers = self._sent, await self._written()
        self._sent = _Sent(chunk, jobs, asyncio.create_task(self._add(jobs)))
        await asyncio.sleep(0)  # so that the write begins before anything else is done
        if before is not None:
            self._note(before.chunk, before.jobs, answers)

    def _require_ours(self, bound: Bound[R]) -> None:
        configured = bound.configured
        if configured.client is not self._client:
            raise UnknownType(
                f'job type "{configured.type.name}" belongs to another app; enqueue it there, or '
                "register it here"
            )
        if configured.tx is not None:
            raise InvalidJob("a bound job has a tx of its own; give enqueue_many(…, tx=…) instead")

    async def settle(self) -> None:
        """Wait for the chunk that is under way, if any, and note what became of each job."""
        if (sent := self._sent) is not None:
            self._note(sent.chunk, sent.jobs, await self._written())

    async def _written(self) -> list[Added]:
        sent, self._sent = self._sent, None
        return [] if sent is None else await sent.writing

    async def _add(self, jobs: list[NewJob]) -> list[Added]:
        return await self._store.add(jobs)

    def _note(self, chunk: list[Bound[R]], jobs: list[NewJob], answers: list[Added]) -> None:
        for bound, job, added in zip(chunk, jobs, answers, strict=True):
            if added.created:
                self.handles.append(Handle(added.id, self._client, created=True))
            else:
                self._note_unusual(bound, job, added)
            self._place += 1

    def _note_unusual(self, bound: Bound[R], job: NewJob, added: Added) -> None:
        try:
            handle = bound.configured.settle(job.id, added)
        except (InvalidJob, DuplicateJob) as error:
            self.failures[self._place] = error
            return
        if handle.created or bound.configured.on_conflict != "skip":
            self.handles.append(handle)

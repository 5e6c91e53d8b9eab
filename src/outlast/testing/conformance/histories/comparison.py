"""Ask a store and the model the same questions by the same clock."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

from outlast.core.audit.model import DanglingRecord, JobAudit
from outlast.core.event import EventRecord
from outlast.core.group import Group
from outlast.core.ids import Ids, JobId
from outlast.core.job import Job
from outlast.core.run import RunRecord
from outlast.core.state import WAITING, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.histories.diff import differences
from outlast.testing.conformance.histories.invariants import Dump, check_dump, check_since
from outlast.testing.conformance.histories.strategies import QUEUES
from outlast.testing.model.store import ModelStore
from outlast.verify import verify

MakeStore = Callable[[FakeClock, Ids], Store]
Answer = TypeVar("Answer")
Seen = list[Job | None]
History = tuple[list[RunRecord], list[EventRecord], Seen]
GroupView = tuple[list[Group], list[bool | None], list[list[JobId]]]
View = tuple[Seen, dict[tuple[str, State], int], list[list[JobId]], list[History], GroupView]
MANY = 10_000
PAGE = 7


class StoreComparison:
    """Both stores. `known` are the ids of all jobs ever added, `chained` those that followed one.

    Numbers and texts that a store is free to choose (seq, event ids, the words of a refusal) are
    not compared. `every`: after how many steps all is compared; the answers are after each.
    """

    def __init__(self, make_store: MakeStore, *, every: int = 1) -> None:
        self.clock = FakeClock()
        self.known: list[JobId] = []
        self.groups: list[str] = []
        self.chained: set[JobId] = set()
        self.touched: set[JobId] = set()
        self.agree = False
        self._step = 0
        self._every, self._since = every, 0
        self._jobs: dict[JobId, Job] = {}
        self._runner = asyncio.Runner()
        ids = Ids(self.clock.now, self._bits)
        self.model: Store = ModelStore(self.clock, ids)
        self.store = make_store(self.clock, ids)
        self.both(lambda store: store.open())

    def both(
        self,
        ask: Callable[[Store], Awaitable[Answer]],
        *,
        shown: Callable[[Answer], Any] = lambda answer: answer,
    ) -> Answer:
        """The model's answer; AssertionError if the store's is another."""
        self._step += 1
        self.agree = False
        answer = self._run(ask(self.model))
        expected, found = shown(answer), shown(self._run(ask(self.store)))
        assert found == expected, "the store and the model differ\n" + differences(found, expected)
        self.agree = True
        return answer

    @property
    def running(self) -> list[Job]:
        """The jobs that ran when last compared."""
        return [job for job in self._jobs.values() if job.state is State.RUNNING]

    @property
    def unstarted(self) -> list[Job]:
        """The jobs that waited when last compared, and those that failed."""
        states = WAITING | {State.FAILED}
        return [job for job in self._jobs.values() if job.state in states]

    def reopen(self, *, boots: bool) -> None:
        """Close both and open them again, after a reboot perhaps."""
        self.both(lambda store: store.close())
        if boots:
            self.clock.reboot()
        self.both(lambda store: store.open())

    def follow(self) -> None:
        """Look at what a step has done: at both stores when it is time to, else at the model."""
        self._since += 1
        if self._since < self._every:
            self._saw(_without_seqs(self._run(self.model.get(self.known))))
        else:
            self.compare()

    def compare(self) -> None:
        """Compare every job, every list, and the history of what was touched since last time."""
        jobs, *_ = self.both(lambda store: _view(store, self.known, self.touched, self.groups))
        self.both(lambda store: store.reservations(limit=MANY))
        self.both(lambda store: store.refusals(sorted(self.touched)))
        self.touched.clear()
        self._since = 0
        self._saw(jobs)

    def _saw(self, jobs: Seen) -> None:
        present = {job.id: job for job in jobs if job}
        check_since(self._jobs, present)
        self._jobs = present

    def compare_all(self) -> None:
        """Compare everything, and hold it against every invariant."""
        self.touched.update(self.known)
        self.compare()
        self.both(_stream)
        check_dump(self._run(_dump(self.store)), chained=self.chained)
        self.both(_audited)
        self.both(lambda store: _explained(store, self.known))
        for store in (self.model, self.store):
            found = self._run(verify(store, page=PAGE)).violations
            assert found == (), f"verify reports violations in an intact store: {found}"

    def close(self) -> None:
        """Let go of both."""
        for store in (self.model, self.store):
            self._run(store.close())
        self._runner.close()

    def _run(self, answer: Awaitable[Answer]) -> Answer:
        async def wait() -> Answer:
            return await answer

        # Not Runner.run: it sets a signal handler each time, which costs more than most answers.
        return self._runner.get_loop().run_until_complete(wait())

    def _bits(self, number: int) -> int:
        # Drawn by step, not in sequence: a store may ask more often than the other.
        return Random(self._step).getrandbits(number)


async def _view(
    store: Store, known: Sequence[JobId], touched: Collection[JobId], groups: Sequence[str]
) -> View:
    histories = [await _history(store, job_id) for job_id in sorted(touched)]
    counts = dict(await store.counts())
    jobs, listed = _without_seqs(await store.get(known)), await _listed(store)
    return jobs, counts, listed, histories, await _crowd(store, groups)


async def _crowd(store: Store, groups: Sequence[str]) -> GroupView:
    """Every group, whether it is over, and who belongs to the latest few."""
    found = [replace(group, seq=0) for group in await store.find_groups(limit=MANY)]
    over = await store.groups_finished(groups)
    assert [o for o in over if o is not None] == [
        g.is_over for g in sorted(found, key=lambda g: groups.index(g.id))
    ], "a group is not over as its members say"
    members = [await store.find(Filter(group=group), limit=MANY) for group in groups[-PAGE:]]
    return found, over, [[job.id for job in page] for page in members]


async def _history(store: Store, job_id: JobId) -> History:
    events = [replace(event, id=0) for event in await store.events(job_id)]
    return await store.runs(job_id), events, _without_seqs(await store.chain(job_id))


async def _stream(store: Store) -> list[EventRecord]:
    events: list[EventRecord] = []
    while page := await store.stream(after=events[-1].id if events else 0, limit=PAGE):
        events += page
    # Of one write, a store may tell job by job or kind by kind: only each job's own order is due.
    events.sort(key=lambda event: event.job_id or "")
    return [replace(event, id=0) for event in events]


async def _listed(store: Store) -> list[list[JobId]]:
    pages = [await store.peek(queue, limit=MANY) for queue in QUEUES]
    labelled = Filter(labels=frozenset({"tag:a"}))
    pages.append(await store.find(labelled, limit=MANY))
    pages.append(await store.find(replace(labelled, states=WAITING), limit=MANY))
    pages.append(await store.find(Filter(), limit=PAGE))
    if pages[-1]:
        pages.append(await store.find(Filter(), limit=MANY, before=pages[-1][-1].seq))
    return [[job.id for job in page] for page in pages]


async def _explained(store: Store, known: Sequence[JobId]) -> list[object]:
    """Why each job waits, and how everything stands."""
    situations = [await store.wait_facts(job_id) for job_id in known]
    shown = [each and replace(each, job=replace(each.job, seq=0)) for each in situations]
    return [*shown, await store.overview(span=timedelta(hours=1))]


async def _dump(store: Store) -> Dump:
    jobs = {job.id: job for job in await store.find(Filter(), limit=MANY)}
    runs = {job_id: await store.runs(job_id) for job_id in jobs}
    return Dump(jobs, runs, {job_id: await store.events(job_id) for job_id in jobs})


async def _audited(store: Store) -> tuple[list[JobAudit], list[DanglingRecord]]:
    """What a proof is given."""
    dossiers: list[JobAudit] = []
    while page := await store.audit_jobs(after=dossiers[-1].seq if dossiers else 0, limit=PAGE):
        dossiers += page
    return [_comparable(dossier) for dossier in dossiers], await store.dangling_records(limit=MANY)


def _comparable(dossier: JobAudit) -> JobAudit:
    events = tuple(replace(event, id=0) for event in dossier.events)
    return replace(dossier, seq=0, events=events)


def _without_seqs(jobs: Iterable[Job | None]) -> Seen:
    return [job and replace(job, seq=0) for job in jobs]

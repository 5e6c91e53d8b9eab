"""Random histories: a store and the model live through the same steps and must stay alike.

    TestHistories = history_machine(lambda clock, ids: MyStore(clock, ids)).TestCase

A failure prints the shortest steps that lead to it; they make an ordinary test.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.core.decide import Change, Standing, decide
from holdfast.core.event import Edited, Event, EventRecord, Lost, Misfired, Moved
from holdfast.core.ids import JobId
from holdfast.core.job import Job
from holdfast.core.place import Edit, Place, Where
from holdfast.core.record import Record
from holdfast.core.run import Holder, Lease
from holdfast.core.state import Loss
from holdfast.core.worker import WorkerInfo
from holdfast.errors import TransitionRefused
from holdfast.store.base import Added, Capability, Queue, Store
from holdfast.testing import sizes
from holdfast.testing.drafts import EVENTS, STEPS, Draft, Pick, Step
from holdfast.testing.twins import MANY, MakeStore, Twins


def history_machine(make_store: MakeStore) -> type["History"]:
    """The state machine for stores made by `make_store`, at the size HOLDFAST_SIZE names."""

    class Machine(History):
        def __init__(self) -> None:
            super().__init__(Twins(make_store))

    Machine.TestCase.settings = settings(
        max_examples=sizes.SIZES.history_examples,
        stateful_step_count=sizes.SIZES.history_steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    return Machine


class History(RuleBasedStateMachine):
    """One history. `seen` are jobs and claims as somebody once saw them, by now stale or not."""

    def __init__(self, twins: Twins) -> None:
        super().__init__()
        self.twins = twins
        self.seen: list[Standing] = []
        self._ids = 0
        self._versions: dict[Store, list[int | None]] = {}

    # One rule for all: Hypothesis turns rules off at random, and without claims nothing happens.
    @rule(step=STEPS)
    def live(self, step: Step) -> None:
        """Do one thing to both stores; its name is that of a method below."""
        verb, arguments = step
        getattr(self, verb)(**arguments)

    @invariant()
    def stores_agree(self) -> None:
        self.twins.compare()

    def teardown(self) -> None:
        try:
            if self.twins.agree:
                self.twins.compare_all()
        finally:
            self.twins.close()

    def add(self, batch: Sequence[Draft]) -> None:
        now, known = self.twins.clock.now(), self.twins.known
        jobs = [draft.job(self._new_id(), now, known) for draft in batch]
        added = self.twins.both(lambda store: store.add(jobs), shown=_outcomes)
        known.extend(answer.id for answer in added if answer.created)

    def claim(self, **wanted: Any) -> None:
        claims = self.twins.both(lambda store: store.claim(**wanted))
        self.seen.extend(claims)
        self.twins.touched.update(claim.id for claim in claims)

    def end(self, picks: Sequence[Pick]) -> None:
        self._decide(self.twins.running, picks)

    def decide_on_what_waits(self, picks: Sequence[Pick]) -> None:
        self._decide(self.twins.unstarted, picks)

    def renew(self, backs: Sequence[int], span: timedelta) -> None:
        leases = [_lease(job) for back in backs for job in _pick(self.seen, back)]
        self.twins.both(lambda store: store.renew(leases, span=span))

    def report(self, backs: Sequence[int], texts: Sequence[str]) -> None:
        leases = [_lease(job) for back in backs for job in _pick(self.seen, back)]
        reports = list(zip(leases, texts, strict=False))
        self.twins.both(lambda store: store.report(reports))
        self.twins.touched.update(lease.job_id for lease in leases)

    def enlist(self, worker: WorkerInfo) -> None:
        self.twins.both(lambda store: store.enlist(worker))
        self.twins.both(lambda store: store.workers())

    def beat(self, holder: Holder, span: timedelta) -> None:
        self.twins.both(lambda store: store.beat(holder, span=span))
        self.twins.both(lambda store: store.workers())

    def retire(self, holder: Holder) -> None:
        self.twins.both(lambda store: store.retire(holder))
        self.twins.both(lambda store: store.workers())

    def attach(self, back: int, artifacts: Sequence[str]) -> None:
        for lease in map(_lease, _pick(self.seen, back)):
            self.twins.both(partial(_attach, lease=lease, artifacts=artifacts))
            self.twins.touched.add(lease.job_id)

    def reclaim(self) -> None:
        lapsed = self.twins.both(lambda store: store.lapsed(limit=MANY), shown=_sorted_ids)
        self._apply([(job, Lost(Loss.LEASE_EXPIRED)) for job in lapsed])

    def recover(self, holder: Holder, alone: bool) -> None:
        """What a new boot does: nothing but runs of earlier boots is ever found."""
        instance = None if alone else holder.instance_id
        asking = partial(_held, besides=holder.boot_id, instance_id=instance)
        held = self.twins.both(asking, shown=_ids)
        self._apply([(job, Lost(Loss.STARTUP_RECOVERY, "an earlier boot")) for job in held])
        assert self.twins.both(_broken) == []

    def misfire(self) -> None:
        late = self.twins.both(lambda store: store.overdue(limit=MANY), shown=_sorted_ids)
        self._apply([(job, Misfired()) for job in late])

    def promote(self) -> None:
        self.twins.both(lambda store: store.promote_due(limit=MANY))

    def prune(self, older_than: timedelta) -> None:
        self.twins.both(lambda store: store.prune(older_than=older_than, limit=MANY))
        self.twins.both(lambda store: store.workers())
        self.twins.touched.update(self.twins.known)

    def set_queue(self, queue: Queue) -> None:
        self.twins.both(lambda store: store.set_queue(queue))
        self.twins.both(lambda store: store.queue(queue.name))

    def pause(self, name: str, reason: str | None, span: timedelta | None) -> None:
        self.twins.both(lambda store: store.pause(name, reason=reason, span=span))
        self.twins.both(lambda store: store.queues())
        self.twins.both(_of_no_job)

    def resume(self, name: str) -> None:
        self.twins.both(lambda store: store.resume(name))
        self.twins.both(lambda store: store.queues())
        self.twins.both(_of_no_job)

    def swap(self, key: str, back: int, value: str | None) -> None:
        """By a version that each store gave out itself, lately or long ago, or by none."""

        async def act(store: Store) -> list[Record | None]:
            known = self._versions.setdefault(store, [None, None])
            expected = known[-1 - back % len(known)] or (-1 if value is None else None)
            swapped = await store.swap("note", key, expected=expected, value=value)
            known.extend([swapped.version] if swapped else [])
            return [swapped, await store.record("note", key), *await store.records("note")]

        self.twins.both(act, shown=lambda told: [r and replace(r, version=0) for r in told])

    def move(self, where: Where, fresh: bool, back: int, beside: int) -> None:
        """Beside anybody: a target of another queue or priority, or that is gone, is refused."""
        targets = _pick(self.twins.unstarted, beside)
        needs_one = where not in (Where.FRONT, Where.BACK)
        for job in _pick(self.twins.unstarted if fresh else self.seen, back):
            self.seen.append(job)
            for other in targets:
                self._apply([(job, Moved(Place(where, other.id if needs_one else None)))])

    def edit(self, fresh: bool, back: int, edit: Edit) -> None:
        for job in _pick(self.twins.unstarted if fresh else self.seen, back):
            self.seen.append(job)
            self._apply([(job, Edited(edit))])

    def normalise(self, queue: str) -> None:
        self.twins.both(lambda store: store.normalise(queue))
        self.twins.both(_of_no_job)

    def let_time_pass(self, span: timedelta) -> None:
        self.twins.clock.advance(span)

    def set_the_wall_clock_back(self, span: timedelta) -> None:
        self.twins.clock.set_back(span)

    def reopen(self, boots: bool) -> None:
        if Capability.DURABLE in self.twins.store.capabilities:
            self.twins.reopen(boots=boots)

    def _decide(self, present: Sequence[Standing], picks: Sequence[Pick]) -> None:
        pools = {True: present, False: self.seen}
        chosen = [(job, n) for fresh, back, n in picks for job in _pick(pools[fresh], back)]
        self.seen.extend(job for job, _ in chosen)
        self._apply([(job, event) for job, n in chosen if (event := _event(job, n))])

    def _apply(self, decisions: Sequence[tuple[Standing, Event]]) -> None:
        changes = [change for job, event in decisions if (change := self._change(job, event))]
        applied = self.twins.both(lambda store: store.apply(changes))
        self.twins.touched.update(change.job_id for change in changes)
        for change, was_applied in zip(changes, applied, strict=True):
            if was_applied and change.successor:
                self.twins.known.append(change.successor.id)
                self.twins.chained.add(change.successor.id)

    def _change(self, job: Standing, event: Event) -> Change | None:
        try:
            change = decide(job, event, new_id=self._new_id)
        except TransitionRefused:
            return None
        if change.move.run is None or int(change.job_id[-1], 16) % 2:
            return change
        return replace(change, exit_code=change.token, log_path=f"{change.job_id}.log")

    def _new_id(self) -> JobId:
        self._ids += 1
        return JobId(f"00000000-0000-7000-8000-{self._ids:012x}")


def _pick(pool: Sequence[Standing], back: int) -> Sequence[Standing]:
    return [pool[-1 - back % len(pool)]] if pool else []


def _event(job: Standing, number: int) -> Event | None:
    events = EVENTS.get(job.state, [None])
    return events[number % len(events)]


def _lease(job: Standing) -> Lease:
    return Lease(job.id, job.token)


async def _attach(store: Store, lease: Lease, artifacts: Sequence[str]) -> bool:
    return await store.attach(lease, artifacts)


def _outcomes(added: Sequence[Added]) -> list[tuple[JobId, bool, bool]]:
    return [(answer.id, answer.created, answer.refused is not None) for answer in added]


async def _held(store: Store, besides: str, instance_id: str | None) -> list[Job]:
    return await store.held(besides=besides, instance_id=instance_id, limit=MANY)


async def _of_no_job(store: Store) -> list[EventRecord]:
    return [replace(event, id=0) for event in await store.events(None)]


async def _broken(store: Store) -> list[object]:
    """Whatever recovery would have to repair besides."""
    adrift, unfollowed = await store.adrift(limit=MANY), await store.unfollowed(limit=MANY)
    return [*adrift, *unfollowed, *await store.remove_orphans(limit=MANY)]


def _ids(jobs: Sequence[Standing]) -> list[JobId]:
    return [job.id for job in jobs]


def _sorted_ids(jobs: Sequence[Standing]) -> list[JobId]:
    return sorted(job.id for job in jobs)

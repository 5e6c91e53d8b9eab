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

from outlast.core.decide import Change, JobView, decide
from outlast.core.document import Document
from outlast.core.event import (
    Abandoned,
    Abandonment,
    Edited,
    Event,
    GroupStopped,
    Lost,
    Misfired,
    Moved,
)
from outlast.core.group import GroupMode, NewGroup, OnMemberFailure
from outlast.core.ids import JobId
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.core.reservation import NewReservation, ReservationId
from outlast.core.run import LeaseHolder
from outlast.core.run_log import LogChunk, LogWrite
from outlast.core.schedule import Plan, SlotOutcome
from outlast.core.state import Loss
from outlast.core.worker import WorkerInfo
from outlast.errors import TransitionRefused
from outlast.store.contract import Capability, Store
from outlast.store.contract.queues import Queue
from outlast.store.contract.schedules import SetSchedule
from outlast.testing.clock import START
from outlast.testing.conformance import sizes
from outlast.testing.conformance.histories import steps
from outlast.testing.conformance.histories.comparison import MANY, MakeStore, StoreComparison
from outlast.testing.conformance.histories.strategies import (
    QUEUES,
    STEPS,
    TYPES,
    JobDraft,
    Pick,
    Step,
)

IDLE = WorkerInfo(
    instance_id="",
    boot_id="",
    host="here",
    pid=9,
    queues=QUEUES,
    types=TYPES,
    concurrency=100_000,
)
"""A worker with room for everything."""


def history_machine(make_store: MakeStore, *, every: int = 1) -> type["HistoryMachine"]:
    """The state machine for stores made by `make_store`, at the size OUTLAST_SIZE names.

    All that they hold is compared after `every` so many steps: to read it takes time on a server.
    """

    class Machine(HistoryMachine):
        def __init__(self) -> None:
            super().__init__(StoreComparison(make_store, every=every))

    Machine.TestCase.settings = settings(
        max_examples=sizes.SIZES.history_examples,
        stateful_step_count=sizes.SIZES.history_steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    return Machine


class HistoryMachine(RuleBasedStateMachine):
    """One history. `seen` holds jobs and claims as once read, by now stale or not."""

    def __init__(self, twins: StoreComparison) -> None:
        super().__init__()
        self.twins = twins
        self.seen: list[JobView] = []
        self.reserved: list[ReservationId] = []
        self._ids = 0
        self._versions: dict[Store, list[int | None]] = {}
        self._scheduled: dict[Store, list[int | None]] = {}

    # One rule for all: Hypothesis turns rules off at random, and without claims nothing happens.
    @rule(step=STEPS)
    def live(self, step: Step) -> None:
        """Do one thing to both stores; its name is that of a method below."""
        verb, arguments = step
        getattr(self, verb)(**arguments)

    @invariant()
    def stores_agree(self) -> None:
        self.twins.follow()

    def teardown(self) -> None:
        try:
            if self.twins.agree:
                self.twins.compare_all()
        finally:
            self.twins.close()

    def add(self, batch: Sequence[JobDraft]) -> None:
        now, known = self.twins.clock.now(), self.twins.known
        jobs = [draft.job(self._new_id(), now, known) for draft in batch]
        added = self.twins.both(lambda store: store.add(jobs), shown=steps.outcomes)
        stored = [answer.id for answer in added if answer.created]
        self.twins.touched.update(answer.id for answer in added if answer.replaced)
        known.extend(stored)
        self.twins.chained.difference_update(stored)  # one that was pruned comes by hand this time

    def add_group(
        self,
        batch: Sequence[JobDraft],
        mode: GroupMode,
        on_failure: OnMemberFailure,
        missing: int,
        seals: bool,
    ) -> None:
        """A small group; some lack a member, or have one too many."""
        group_id = self._new_id()
        total = max(1, len(batch) + missing)
        new = NewGroup(id=group_id, total=total, mode=mode, on_failure=on_failure)
        self.twins.both(lambda store: store.add_group(new))
        self.twins.groups.append(group_id)
        for draft in batch:
            self.join(0, draft)
        if seals:
            self.seal_group(0)

    def join(self, back: int, draft: JobDraft) -> None:
        """One more member, or one that comes too late."""
        now, known = self.twins.clock.now(), self.twins.known
        for group_id in steps.pick(self.twins.groups, back):
            job = replace(draft.job(self._new_id(), now, known), group_id=group_id, member=True)
            added = self.twins.both(partial(steps.add_one, job=job), shown=steps.outcomes)
            known.extend(answer.id for answer in added if answer.created)
            self.twins.touched.update(answer.id for answer in added if answer.replaced)

    def seal_group(self, back: int) -> None:
        for group_id in steps.pick(self.twins.groups, back):
            self.twins.both(partial(steps.seal_group, group_id=group_id))

    def stop_group(self, back: int, skip: bool) -> None:
        for group_id in steps.pick(self.twins.groups, back):
            self.twins.both(partial(steps.stop_group, group_id=group_id, skip=skip))

    def sweep(self, limit: int) -> None:
        """What a worker does each second, or a part of it."""
        for group in self.twins.both(lambda store: store.closing_groups(limit=MANY)):
            asking = partial(steps.remaining_members, group_id=group.id, limit=limit)
            left = self.twins.both(asking, shown=steps.job_ids)
            self._apply([(job, GroupStopped(skip=group.closing == "skip")) for job in left])
        self.twins.both(lambda store: store.mark_groups_closed(limit=limit))

    def expire_groups(self, older_than: timedelta) -> None:
        self.twins.both(lambda store: store.expire_groups(older_than=older_than, limit=MANY))

    def claim(self, **wanted: Any) -> None:
        claims = self.twins.both(lambda store: store.claim(**wanted))
        self.seen.extend(claims)
        self.twins.touched.update(claim.id for claim in claims)

    def ask_why_and_claim(self, holder: LeaseHolder, queue: str) -> None:
        """What `explain` calls runnable is what the next claim of an idle worker takes."""
        idle = replace(IDLE, instance_id=holder.instance_id, boot_id=holder.boot_id)
        self.register_worker(idle)
        self.heartbeat(holder, timedelta(hours=1))
        here = [job.id for job in self.twins.unstarted if job.queue == queue]
        runnable = self.twins.both(partial(steps.find_runnable, job_ids=here))
        lease = timedelta(seconds=15)
        claims = self.twins.both(
            lambda store: store.claim(holder, queue=queue, types=TYPES, limit=1, lease=lease)
        )
        assert [claim.id for claim in claims] == runnable, "explain and the claim do not agree"
        self.seen.extend(claims)
        self.twins.touched.update(runnable)

    def end(self, picks: Sequence[Pick]) -> None:
        self._decide(self.twins.running, picks)

    def decide_on_what_waits(self, picks: Sequence[Pick]) -> None:
        self._decide(self.twins.unstarted, picks)

    def renew(self, backs: Sequence[int], span: timedelta) -> None:
        leases = [steps.lease_of(job) for back in backs for job in steps.pick(self.seen, back)]
        self.twins.both(lambda store: store.renew(leases, span=span))

    def record_progress(self, backs: Sequence[int], texts: Sequence[str]) -> None:
        leases = [steps.lease_of(job) for back in backs for job in steps.pick(self.seen, back)]
        reports = list(zip(leases, texts, strict=False))
        self.twins.both(lambda store: store.record_progress(reports))
        self.twins.touched.update(lease.job_id for lease in leases)

    def write_logs(self, backs: Sequence[int], firsts: Sequence[int]) -> None:
        leases = [steps.lease_of(job) for back in backs for job in steps.pick(self.seen, back)]
        writes = [
            (lease, LogWrite((LogChunk(first, 2, f"{first}"),), (first - 2,)))
            for lease, first in zip(leases, firsts, strict=False)
        ]
        self.twins.both(lambda store: store.write_logs(writes))
        self.twins.touched.update(lease.job_id for lease in leases)

    def register_worker(self, worker: WorkerInfo) -> None:
        self.twins.both(lambda store: store.register_worker(worker))
        self.twins.both(lambda store: store.workers())

    def heartbeat(self, holder: LeaseHolder, span: timedelta) -> None:
        self.twins.both(lambda store: store.heartbeat(holder, span=span))
        self.twins.both(lambda store: store.workers())

    def deregister_worker(self, holder: LeaseHolder) -> None:
        self.twins.both(lambda store: store.deregister_worker(holder))
        self.twins.both(lambda store: store.workers())

    def attach(self, back: int, artifacts: Sequence[str]) -> None:
        for lease in map(steps.lease_of, steps.pick(self.seen, back)):
            self.twins.both(partial(steps.attach, lease=lease, artifacts=artifacts))
            self.twins.touched.add(lease.job_id)

    def reclaim(self) -> None:
        lapsed = self.twins.both(
            lambda store: store.expired_leases(limit=MANY), shown=steps.sorted_job_ids
        )
        self._apply([(job, Lost(Loss.LEASE_EXPIRED)) for job in lapsed])

    def recover(self, holder: LeaseHolder, alone: bool) -> None:
        """What a new boot does: nothing but runs of earlier boots is ever found."""
        instance = None if alone else holder.instance_id
        asking = partial(
            steps.running_under_other_boots, besides=holder.boot_id, instance_id=instance
        )
        held = self.twins.both(asking, shown=steps.job_ids)
        self._apply([(job, Lost(Loss.STARTUP_RECOVERY, "an earlier boot")) for job in held])
        assert self.twins.both(steps.find_broken) == []

    def misfire(self) -> None:
        late = self.twins.both(
            lambda store: store.missed_start_deadline(limit=MANY), shown=steps.sorted_job_ids
        )
        self._apply([(job, Misfired()) for job in late])

    def promote(self) -> None:
        self.twins.both(lambda store: store.promote_due(limit=MANY))

    def prune(self, older_than: timedelta) -> None:
        self.twins.both(lambda store: store.prune(older_than=older_than, limit=MANY))
        self.twins.both(lambda store: store.workers())
        self.twins.touched.update(self.twins.known)

    def prune_by_type(self, older_than: timedelta) -> None:
        self.twins.both(partial(steps.prune_by_type, older_than=older_than))
        self.twins.touched.update(self.twins.known)

    def set_queue(self, queue: Queue) -> None:
        self.twins.both(lambda store: store.set_queue(queue))
        self.twins.both(lambda store: store.queue(queue.name))

    def pause(self, name: str, reason: str | None, span: timedelta | None) -> None:
        self.twins.both(lambda store: store.pause(name, reason=reason, span=span))
        self.twins.both(lambda store: store.queues())
        self.twins.both(steps.events_of_no_job)

    def resume(self, name: str) -> None:
        self.twins.both(lambda store: store.resume(name))
        self.twins.both(lambda store: store.queues())
        self.twins.both(steps.events_of_no_job)

    def swap(self, key: str, back: int, value: str | None) -> None:
        """By a version that each store gave out itself, lately or long ago, or by none."""

        async def act(store: Store) -> list[Document | None]:
            known = self._versions.setdefault(store, [None, None])
            expected = known[-1 - back % len(known)] or (-1 if value is None else None)
            swapped = await store.swap("note", key, expected=expected, value=value)
            known.extend([swapped.version] if swapped else [])
            return [swapped, await store.document("note", key), *await store.documents("note")]

        self.twins.both(act, shown=lambda told: [r and replace(r, version=0) for r in told])

    def set_schedule(self, name: str, back: int, plan: Plan | None, slot: int) -> None:
        """By a version that each store gave out itself, lately or long ago, or by none."""
        at = START + slot * timedelta(minutes=1)
        value = None
        if plan is not None:
            named = replace(plan, name=name)
            value = SetSchedule(plan=named, next_slot=at, next_trigger_at=at)
        asking = partial(
            steps.set_schedule, known=self._scheduled, back=back, name=name, value=value
        )
        self.twins.both(asking, shown=steps.without_versions)

    def fire(self, ahead: timedelta, outcome: SlotOutcome, draft: JobDraft) -> None:
        """Each due schedule, with a job or without; and once more, which is stale."""
        job = draft.job(self._new_id(), self.twins.clock.now(), self.twins.known)
        job = replace(job, retry_of=None, slot=None, window=None, replaces=False)
        self.twins.both(partial(steps.fire, ahead=ahead, outcome=outcome, job=job))
        if self.twins.both(lambda store: store.get([job.id]), shown=len)[0]:
            self.twins.known.extend({job.id} - set(self.twins.known))
        self.twins.both(steps.list_schedules, shown=steps.without_versions)

    def move(self, where: Anchor, fresh: bool, back: int, beside: int) -> None:
        """Move beside any job: a missing target, or one in another order, is refused."""
        targets = steps.pick(self.twins.unstarted, beside)
        needs_one = where not in (Anchor.FRONT, Anchor.BACK)
        for job in steps.pick(self.twins.unstarted if fresh else self.seen, back):
            self.seen.append(job)
            for other in targets:
                self._apply([(job, Moved(MoveTo(where, other.id if needs_one else None)))])

    def edit(self, fresh: bool, back: int, edit: JobEdit) -> None:
        for job in steps.pick(self.twins.unstarted if fresh else self.seen, back):
            self.seen.append(job)
            self._apply([(job, Edited(edit))])

    def renumber(self, queue: str) -> None:
        self.twins.both(lambda store: store.renumber(queue))
        self.twins.both(steps.events_of_no_job)

    def reserve(self, draft: JobDraft, span: timedelta) -> None:
        job = draft.job(self._new_id(), self.twins.clock.now(), self.twins.known)
        job = replace(job, window=None, replaces=False)
        number = ReservationId(self._new_id())
        new = NewReservation(id=number, caller="caller.1", request="req-7", span=span)
        reserved = self.twins.both(
            lambda store: store.reserve(new, job), shown=steps.without_refusal
        )
        if reserved.created:
            self.twins.known.append(job.id)
            self.reserved.append(number)

    def extend_reservation(self, back: int, span: timedelta) -> None:
        for number in self.reserved[-1 - back :][:1]:
            self.twins.both(partial(steps.extend_reservation, number=number, span=span))

    def abandon(self, reason: Abandonment) -> None:
        """Also of callers who are not silent: their jobs stay."""
        self.twins.both(
            lambda store: store.expired_reservations(limit=MANY), shown=steps.sorted_reservation_ids
        )
        held = self.twins.both(lambda store: store.reservations(active_only=True, limit=MANY))
        jobs = self.twins.both(lambda store: store.get([each.job_id for each in held]), shown=len)
        self._apply([(job, Abandoned(reason)) for job in jobs if job])

    def let_time_pass(self, span: timedelta) -> None:
        self.twins.clock.advance(span)

    def set_the_wall_clock_back(self, span: timedelta) -> None:
        self.twins.clock.set_back(span)

    def reopen(self, boots: bool) -> None:
        if Capability.DURABLE in self.twins.store.capabilities:
            self.twins.reopen(boots=boots)

    def _decide(self, present: Sequence[JobView], picks: Sequence[Pick]) -> None:
        pools = {True: present, False: self.seen}
        chosen = [(job, n) for fresh, back, n in picks for job in steps.pick(pools[fresh], back)]
        self.seen.extend(job for job, _ in chosen)
        self._apply([(job, event) for job, n in chosen if (event := steps.choose_event(job, n))])

    def _apply(self, decisions: Sequence[tuple[JobView, Event]]) -> None:
        changes = [change for job, event in decisions if (change := self._change(job, event))]
        applied = self.twins.both(lambda store: store.apply(changes))
        self.twins.touched.update(change.job_id for change in changes)
        for change, was_applied in zip(changes, applied, strict=True):
            if was_applied and change.successor:
                self.twins.known.append(change.successor.id)
                self.twins.chained.add(change.successor.id)

    def _change(self, job: JobView, event: Event) -> Change | None:
        try:
            change = decide(job, event, new_id=self._new_id)
        except TransitionRefused:
            return None
        if int(change.job_id[-1], 16) % 3 == 0:
            change = change.with_log(LogWrite((LogChunk(20, 1, "end"),), (3,)))
        if change.move.run is None or int(change.job_id[-1], 16) % 2:
            return change
        return replace(change, exit_code=change.token, log_path=f"{change.job_id}.log")

    def _new_id(self) -> JobId:
        self._ids += 1
        return JobId(f"00000000-0000-7000-8000-{self._ids:012x}")

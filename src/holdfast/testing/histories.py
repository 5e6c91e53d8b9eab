"""Random histories: a store and the model live through the same steps and must stay alike.

    TestHistories = history_machine(lambda clock, ids: MyStore(clock, ids)).TestCase

A failure prints the shortest steps that lead to it; they make an ordinary test.
"""

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.core.decide import Change, Standing, decide
from holdfast.core.event import Event, Lost, Misfired
from holdfast.core.ids import JobId
from holdfast.core.job import Job
from holdfast.core.run import Holder, Lease
from holdfast.core.state import Loss
from holdfast.errors import TransitionRefused
from holdfast.store.base import Added, Capability, Queue
from holdfast.testing import drafts, sizes
from holdfast.testing.drafts import Draft
from holdfast.testing.twins import MANY, MakeStore, Twins

Pick = tuple[bool, int, int]


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

    @rule(step=STEPS)
    def live(self, step: Step) -> None:
        """One step. A single rule, because Hypothesis turns rules off at random in each history,
        and a history without claims tells nothing."""
        verb, arguments = step
        getattr(self, verb)(**arguments)

    def add(self, batch: list[Draft]) -> None:
        now, known = self.twins.clock.now(), self.twins.known
        jobs = [draft.job(self._new_id(), now, known) for draft in batch]
        added = self.twins.both(lambda store: store.add(jobs), shown=_outcomes)
        known.extend(answer.id for answer in added if answer.created)

    def claim(
        self,
        holder: Holder,
        queue: str,
        types: Sequence[str],
        limit: int,
        prefetch: int,
        lease: timedelta,
    ) -> None:
        claims = self.twins.both(
            lambda store: store.claim(
                holder, queue=queue, types=types, limit=limit, prefetch=prefetch, lease=lease
            )
        )
        self.seen.extend(claims)
        self.twins.touched.update(claim.id for claim in claims)

    def end(self, picks: list[Pick]) -> None:
        self._decide(self.twins.running or self.seen, picks)

    def decide_on_what_waits(self, picks: list[Pick]) -> None:
        self._decide(self.twins.unstarted or self.seen, picks)

    def renew(self, backs: list[int], span: timedelta) -> None:
        leases = [self._lease(back) for back in backs]
        self.twins.both(lambda store: store.renew(leases, span=span))

    def attach(self, back: int, artifacts: list[str]) -> None:
        lease = self._lease(back)
        self.twins.both(lambda store: store.attach(lease, artifacts))
        self.twins.touched.add(lease.job_id)

    def move_the_clock(self, span: timedelta, back: bool) -> None:
        if back:
            self.twins.clock.set_back(span)
        else:
            self.twins.clock.advance(span)

    def keep_up(self, task: str) -> None:
        getattr(self, f"_{task}")()

    def operate(self, task: str, queue: Queue, older_than: timedelta) -> None:
        if task == "set_queue":
            self.twins.both(lambda store: store.set_queue(queue))
            self.twins.both(lambda store: store.queue(queue.name))
        elif task == "prune":
            self.twins.both(lambda store: store.prune(older_than=older_than, limit=MANY))
            self.twins.touched.update(self.twins.known)
        elif Capability.DURABLE in self.twins.store.capabilities:
            self.twins.reopen(boots=older_than is drafts.TICK)

    @invariant()
    def stores_agree(self) -> None:
        self.twins.compare()

    def teardown(self) -> None:
        try:
            if self.twins.agree:
                self.twins.compare_all()
        finally:
            self.twins.close()

    def _reclaim(self) -> None:
        lapsed = self.twins.both(lambda store: store.lapsed(limit=MANY), shown=_sorted_ids)
        self._apply([(job, Lost(Loss.LEASE_EXPIRED)) for job in lapsed])

    def _misfire(self) -> None:
        late = self.twins.both(lambda store: store.overdue(limit=MANY), shown=_sorted_ids)
        self._apply([(job, Misfired()) for job in late])

    def _promote(self) -> None:
        self.twins.both(lambda store: store.promote_due(limit=MANY))

    def _decide(self, present: Sequence[Job], picks: Sequence[Pick]) -> None:
        decisions = []
        for is_fresh, back, choice in picks:
            standing = _pick(present if is_fresh or not self.seen else self.seen, back)
            events = drafts.EVENTS.get(standing.state, [None])
            decisions.append((standing, events[choice % len(events)]))
        self.seen.extend(standing for standing, _ in decisions)
        self._apply([(standing, event) for standing, event in decisions if event])

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
            return decide(job, event, new_id=self._new_id)
        except TransitionRefused:
            return None

    def _lease(self, back: int) -> Lease:
        standing = self.seen[-1 - back % len(self.seen)]
        return Lease(standing.id, standing.token)

    def _new_id(self) -> JobId:
        self._ids += 1
        return JobId(f"00000000-0000-7000-8000-{self._ids:012x}")


def _outcomes(added: Sequence[Added]) -> list[tuple[JobId, bool, bool]]:
    return [(answer.id, answer.created, answer.refused is not None) for answer in added]


def _sorted_ids(jobs: Sequence[Standing]) -> list[JobId]:
    return sorted(job.id for job in jobs)

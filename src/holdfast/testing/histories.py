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
from holdfast.core.run import Holder, Lease
from holdfast.core.state import Loss
from holdfast.errors import TransitionRefused
from holdfast.store.base import Added, Capability, Queue
from holdfast.testing import drafts, sizes
from holdfast.testing.drafts import Draft
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
    """One history. `standings` are jobs and claims as somebody once saw them, stale or not."""

    def __init__(self, twins: Twins) -> None:
        super().__init__()
        self.twins = twins
        self.standings: list[Standing] = []
        self._ids = 0

    @rule(batch=st.lists(drafts.DRAFTS, min_size=1, max_size=4))
    def add(self, batch: list[Draft]) -> None:
        now, known = self.twins.clock.now(), self.twins.known
        jobs = [draft.job(self._new_id(), now, known) for draft in batch]
        added = self.twins.both(lambda store: store.add(jobs), shown=_outcomes)
        known.extend(answer.id for answer in added if answer.created)

    @rule(
        holder=drafts.HOLDERS,
        queue=st.sampled_from(drafts.QUEUES),
        types=st.sampled_from([drafts.TYPES, drafts.TYPES, drafts.TYPES[:1]]),
        limit=st.integers(0, 4),
        prefetch=st.sampled_from([0, 0, 1, 3]),
        lease=drafts.LEASES,
    )
    def claim(
        self,
        holder: Holder,
        queue: str,
        types: Sequence[str],
        limit: int,
        prefetch: int,
        lease: timedelta,
    ) -> None:
        if limit + prefetch:
            claims = self.twins.both(
                lambda store: store.claim(
                    holder, queue=queue, types=types, limit=limit, prefetch=prefetch, lease=lease
                )
            )
            self.standings.extend(claims)
            self.twins.touched.update(claim.id for claim in claims)

    @precondition(lambda self: self.standings)
    @rule(ends=st.lists(st.tuples(drafts.STEPS_BACK, drafts.RUN_EVENTS), min_size=1, max_size=3))
    def end(self, ends: list[tuple[int, Event]]) -> None:
        self._apply([(self._seen(back), event) for back, event in ends])

    @precondition(lambda self: self.standings)
    @rule(back=drafts.STEPS_BACK, event=drafts.JOB_EVENTS)
    def decide_on_what_was_seen(self, back: int, event: Event) -> None:
        self._apply([(self._seen(back), event)])

    @precondition(lambda self: self.twins.known)
    @rule(back=drafts.STEPS_BACK, event=drafts.JOB_EVENTS | drafts.RUN_EVENTS)
    def decide_now(self, back: int, event: Event) -> None:
        known = self.twins.known
        job = self.twins.now(known[-1 - back % len(known)])
        if job is not None:
            self.standings.append(job)
            self._apply([(job, event)])

    @precondition(lambda self: self.standings)
    @rule(backs=st.lists(drafts.STEPS_BACK, min_size=1, max_size=4), span=drafts.LEASES)
    def renew(self, backs: list[int], span: timedelta) -> None:
        leases = [self._lease(back) for back in backs]
        self.twins.both(lambda store: store.renew(leases, span=span))

    @precondition(lambda self: self.standings)
    @rule(back=drafts.STEPS_BACK, artifacts=drafts.ARTIFACTS)
    def attach(self, back: int, artifacts: list[str]) -> None:
        lease = self._lease(back)
        self.twins.both(lambda store: store.attach(lease, artifacts))
        self.twins.touched.add(lease.job_id)

    @rule()
    def reclaim(self) -> None:
        lapsed = self.twins.both(lambda store: store.lapsed(limit=MANY), shown=_sorted_ids)
        self._apply([(job, Lost(Loss.LEASE_EXPIRED)) for job in lapsed])

    @rule()
    def misfire(self) -> None:
        late = self.twins.both(lambda store: store.overdue(limit=MANY), shown=_sorted_ids)
        self._apply([(job, Misfired()) for job in late])

    @rule()
    def promote(self) -> None:
        self.twins.both(lambda store: store.promote_due(limit=MANY))

    @rule(older_than=drafts.SPANS)
    def prune(self, older_than: timedelta) -> None:
        self.twins.both(lambda store: store.prune(older_than=older_than, limit=MANY))
        self.twins.touched.update(self.twins.known)

    @rule(queue=drafts.SETTINGS)
    def set_queue(self, queue: Queue) -> None:
        self.twins.both(lambda store: store.set_queue(queue))
        self.twins.both(lambda store: store.queue(queue.name))

    @rule(span=drafts.SPANS)
    def let_time_pass(self, span: timedelta) -> None:
        self.twins.clock.advance(span)

    @rule(span=drafts.SPANS)
    def set_the_wall_clock_back(self, span: timedelta) -> None:
        self.twins.clock.set_back(span)

    @precondition(lambda self: Capability.DURABLE in self.twins.store.capabilities)
    @rule(boot=st.booleans())
    def reopen(self, boot: bool) -> None:
        self.twins.both(lambda store: store.close())
        if boot:
            self.twins.clock.reboot()
        self.twins.both(lambda store: store.open())

    @invariant()
    def stores_agree(self) -> None:
        self.twins.compare()

    def teardown(self) -> None:
        try:
            if self.twins.agree:
                self.twins.compare_all()
        finally:
            self.twins.close()

    def _apply(self, decisions: Sequence[tuple[Standing, Event]]) -> None:
        changes = [change for job, event in decisions if (change := self._decide(job, event))]
        applied = self.twins.both(lambda store: store.apply(changes))
        self.twins.touched.update(change.job_id for change in changes)
        for change, was_applied in zip(changes, applied, strict=True):
            if was_applied and change.successor:
                self.twins.known.append(change.successor.id)
                self.twins.chained.add(change.successor.id)

    def _decide(self, job: Standing, event: Event) -> Change | None:
        try:
            return decide(job, event, new_id=self._new_id)
        except TransitionRefused:
            return None

    def _seen(self, back: int) -> Standing:
        return self.standings[-1 - back % len(self.standings)]

    def _lease(self, back: int) -> Lease:
        standing = self._seen(back)
        return Lease(standing.id, standing.token)

    def _new_id(self) -> JobId:
        self._ids += 1
        return JobId(f"00000000-0000-7000-8000-{self._ids:012x}")


def _outcomes(added: Sequence[Added]) -> list[tuple[JobId, bool, bool]]:
    return [(answer.id, answer.created, answer.refused is not None) for answer in added]


def _sorted_ids(jobs: Sequence[Standing]) -> list[JobId]:
    return sorted(job.id for job in jobs)

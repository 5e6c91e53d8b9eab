"""What random histories are made of: jobs, events and spans, mostly plain and often odd.

The odd ones are frequent on purpose, and there are few of each: what matters is that they meet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from outlast.core.delivery import Delivery
from outlast.core.event import (
    Abandonment,
    CancelRequested,
    Event,
    Failed,
    FellDue,
    GivenUp,
    Lost,
    Misfired,
    Released,
    Skipped,
    Snoozed,
    Stopped,
    Succeeded,
    Unfit,
)
from outlast.core.group import GroupMode, OnMemberFailure
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, NewJob, Slot
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor, JobEdit
from outlast.core.refusals import Refusals
from outlast.core.run import LeaseHolder
from outlast.core.schedule import JobBlueprint, Plan, SlotOutcome, TimeRule
from outlast.core.state import Loss, State
from outlast.core.worker import WorkerInfo
from outlast.store.contract.queues import Queue
from outlast.testing.clock import START

Choice = TypeVar("Choice")

QUEUES: Final = ("default", "lane")
TYPES: Final = ("left", "right")
ZERO = timedelta(0)
TICK = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LONG: Final = f'"{"ö" * 1100}"'
"""JSON, params as well as an error, that some stores keep apart from its job."""

METADATA: Final = ('{"tags":["a","b"]}', '{"headers":{"h":"1"},"tags":["a"],"meta":{"n":1,"o":{}}}')
"""Stored texts; the label `tag:a` belongs to both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDraft:
    """A job to be added, before it is known when, and beside which others.

    `repeats` and `retries` count back through the jobs known by then; None means neither.
    """

    type: str
    params: str
    queue: str
    name: str
    delivery: Delivery
    priority: int
    max_attempts: int | None
    due: tuple[timedelta | None, timedelta | None]  # delay, at from now
    start_within: timedelta | None
    slot: int | None
    key: DedupeKey | None
    active_key: str | None
    metadata: str | None
    repeats: int | None
    retries: int | None

    def job(self, new_id: JobId, now: datetime, known: Sequence[JobId]) -> NewJob:
        """The job it is, added now."""
        delay, at = self.due
        return NewJob(
            id=_back(known, self.repeats) or new_id,
            type=self.type,
            params=self.params,
            name=self.name,
            queue=self.queue,
            delivery=self.delivery,
            priority=self.priority,
            max_attempts=self.max_attempts,
            delay=delay,
            at=None if at is None else now + at,
            start_within=self.start_within,
            slot=None if self.slot is None else _slot(self.slot),
            key=self.key,
            active_key=self.active_key,
            metadata=self.metadata,
            retry_of=_back(known, self.retries),
        )


def _slot(minute: int) -> Slot:
    return Slot(series="series", at=START + minute * MINUTE)


def _back(known: Sequence[JobId], steps: int | None) -> JobId | None:
    return None if steps is None or not known else known[-1 - steps % len(known)]


def _mostly(weight: int, usual: Choice, *odd: Choice) -> st.SearchStrategy[Choice]:
    return st.sampled_from([usual] * weight + list(odd))


DRAFTS = st.builds(
    JobDraft,
    type=_mostly(3, *TYPES),
    params=_mostly(3, "{}", LONG),
    queue=_mostly(2, *QUEUES),
    name=st.sampled_from(["one", "two"] * 10 + ["two words"]),
    delivery=st.sampled_from([*[Delivery.LEASE, Delivery.LINKED] * 2, Delivery.ONCE]),
    priority=_mostly(20, 0, -1, 5, 5, 40_000),
    max_attempts=st.sampled_from([5, 2, 1, None]),
    due=_mostly(
        16,
        (None, None),
        (ZERO, None),
        (SECOND, None),
        (HOUR, None),
        (None, -HOUR),
        (None, ZERO),
        (None, MINUTE),
    ),
    start_within=_mostly(9, None, ZERO, SECOND, HOUR),
    slot=_mostly(12, None, -1, 0, 1),
    key=_mostly(12, None, DedupeKey(key="k"), DedupeKey(key="k", bucket="b"), DedupeKey(key="l")),
    active_key=_mostly(4, None, "x", "x", "y"),
    metadata=_mostly(4, None, *METADATA, "{}"),
    repeats=_mostly(20, None, 0, 1),
    retries=_mostly(12, None, 0, 1, 2, 3),
)

PLANS: Final = tuple(
    Plan(
        name="s",
        rule=TimeRule(every=MINUTE),
        making=JobBlueprint(
            type=TYPES[0],
            name="series",
            delivery=delivery,
            queue=QUEUES[0],
            priority=0,
            max_attempts=5,
        ),
        coalesce=True,
        misfire_grace=HOUR,
        enabled=enabled,
    )
    for delivery, enabled in ((Delivery.ONCE, True), (Delivery.LEASE, True), (Delivery.ONCE, False))
)
"""Schedules whose slots are those of the drafts, or their own."""

_REFUSED: Final = Refusals(count=3, since=START, workers=("worker-1", "worker-2"))

EVENTS: Final[Mapping[State, Sequence[Event | None]]] = MappingProxyType(
    {
        State.RUNNING: (
            Failed("it broke"),
            Failed(LONG, delay=SECOND),
            Lost(Loss.OWNER_DEAD),
            Lost(Loss.LEASE_EXPIRED),
            Released("drain"),
            Snoozed(ZERO),
            Snoozed(HOUR, "later"),
            Unfit("no field", "worker-1", HOUR),
            Unfit("no field", "worker-2", HOUR, _REFUSED, age=SECOND),
            Unfit(LONG, "worker-1", ZERO),
            CancelRequested("enough"),
            CancelRequested("enough"),
            CancelRequested(),
            Succeeded(LONG),
            Failed("it broke", permanent=True),
            Lost(Loss.TIMEOUT, "too long"),
            Lost(Loss.STARTUP_RECOVERY, "left behind"),
            Skipped("empty"),
            Stopped("told"),
        ),
        State.SCHEDULED: (None, CancelRequested(), FellDue()),
        State.QUEUED: (None, None, CancelRequested("enough"), Misfired()),
        State.RETRY_WAIT: (None, CancelRequested(), FellDue(), GivenUp("hopeless")),
        State.FAILED: (GivenUp("hopeless"),),
        State.BLOCKED: (None, None, CancelRequested()),  # only its group unblocks it
    }
)
"""What may be decided of a job seen in that state; None is only a look at it."""

Pick = tuple[bool, int, int]
"""Whether to pick among what is there now or was seen earlier, how far back, and which event."""

Step = tuple[str, dict[str, Any]]
"""A verb and its arguments."""


def _step(verb: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(verb), st.fixed_dictionaries(arguments))


_BACK = st.integers(0, 7)
_PICKS = st.lists(
    st.tuples(_mostly(2, True, False), _BACK, st.integers(0, 18)), min_size=1, max_size=5
)
_SPANS = st.sampled_from([TICK, SECOND, SECOND, 15 * SECOND, MINUTE, HOUR])
_LEASES = st.sampled_from([ZERO, SECOND, 15 * SECOND])
_WHO: Final = (
    LeaseHolder(instance_id="worker-1", boot_id="boot-1"),
    LeaseHolder(instance_id="worker-1", boot_id="boot-2"),
    LeaseHolder(instance_id="worker-2", boot_id="boot-3"),
)
_HOLDERS = st.sampled_from(_WHO)
_WORKERS = st.builds(
    lambda holder, pid: WorkerInfo(
        instance_id=holder.instance_id,
        boot_id=holder.boot_id,
        host="here",
        pid=pid,
        queues=QUEUES,
        types=TYPES,
        concurrency=2,
        app="app",
        schedules=("s",),
    ),
    _HOLDERS,
    st.sampled_from([7, 8]),
)
_SETTINGS = st.builds(
    Queue,
    name=st.sampled_from(QUEUES),
    ordering=st.sampled_from([Ordering.POSITION, Ordering.SCHEDULED]),
    gap=st.sampled_from([100, 10, 1]),
    concurrency=st.sampled_from([None, None, 1, 2]),
)
_MOVE = _step(
    "move",
    where=st.sampled_from(Anchor),
    fresh=_mostly(4, True, False),
    back=_BACK,
    beside=_BACK,
)
_EDIT = _step(
    "edit",
    fresh=_mostly(4, True, False),
    back=_BACK,
    edit=st.sampled_from(
        [
            JobEdit(params='{"edited":true}'),
            JobEdit(params=LONG),
            JobEdit(params="{"),
            JobEdit(priority=5),
            JobEdit(priority=0),
            JobEdit(priority=40_000),
            JobEdit(delay=ZERO),
            JobEdit(delay=HOUR, priority=-1),
            JobEdit(delay=timedelta.max),
            JobEdit(at=START),
            JobEdit(at=START + HOUR, params="[]"),
        ]
    ),
)
_ADD = _step("add", batch=st.lists(DRAFTS, min_size=2, max_size=6))
_CLAIM = _step(
    "claim",
    holder=_HOLDERS,
    queue=st.sampled_from(QUEUES),
    types=_mostly(5, TYPES, TYPES[:1]),
    limit=st.sampled_from([1, 2, 4, 8]),
    prefetch=st.sampled_from([0, 1, 3]),
    lease=_LEASES,
)

_WEIGHTED: Final[Sequence[tuple[int, st.SearchStrategy[Step]]]] = (
    (4, _ADD),
    (6, _CLAIM),
    (2, _step("ask_why_and_claim", holder=_HOLDERS, queue=st.sampled_from(QUEUES))),
    (6, _step("end", picks=_PICKS)),
    (1, _step("decide_on_what_waits", picks=_PICKS)),
    (2, _step("let_time_pass", span=_SPANS)),
    (1, _step("renew", backs=st.lists(_BACK, min_size=1, max_size=3), span=_LEASES)),
    (2, _step("attach", back=st.integers(0, 15), artifacts=st.just(["a.txt", "b.txt"]))),
    (
        1,
        _step(
            "record_progress",
            backs=st.lists(_BACK, min_size=1, max_size=3),
            texts=st.lists(st.sampled_from(["1", '{"done":2}', "{"]), min_size=3, max_size=3),
        ),
    ),
    (1, _step("register_worker", worker=_WORKERS)),
    (1, _step("heartbeat", holder=_HOLDERS, span=_LEASES)),
    (1, _step("deregister_worker", holder=_HOLDERS)),
    (
        2,
        _step(
            "add_group",
            batch=st.lists(DRAFTS, min_size=1, max_size=4),
            mode=_mostly(2, GroupMode.SEQUENTIAL, GroupMode.PARALLEL),
            on_failure=st.sampled_from(OnMemberFailure),
            missing=_mostly(8, 0, 1, -1),
            seals=_mostly(4, True, False),
        ),
    ),
    (1, _step("join", back=_BACK, draft=DRAFTS)),
    (1, _step("seal_group", back=_BACK)),
    (1, _step("stop_group", back=_BACK, skip=st.booleans())),
    (1, _step("sweep", limit=st.sampled_from([1, 3, 100]))),
    (1, _step("expire_groups", older_than=st.sampled_from([TICK, MINUTE, HOUR]))),
    (1, _step("reclaim")),
    (1, _step("recover", holder=_HOLDERS, alone=st.booleans())),
    (1, _step("misfire")),
    (1, _step("promote")),
    (1, _step("prune", older_than=st.sampled_from([TICK, SECOND, HOUR]))),
    (2, _step("swap", key=st.sampled_from("ab"), back=_BACK, value=_mostly(4, "1", "2", None))),
    (1, _step("set_queue", queue=_SETTINGS)),
    (
        3,
        _step(
            "set_schedule",
            name=st.sampled_from("st"),
            back=_BACK,
            plan=_mostly(5, *PLANS, None),
            slot=st.sampled_from([-2, -1, 0, 1, 2]),
        ),
    ),
    (
        4,
        _step(
            "fire",
            ahead=st.sampled_from([ZERO, MINUTE]),
            outcome=st.sampled_from(SlotOutcome),
            draft=DRAFTS,
        ),
    ),
    (
        1,
        _step(
            "pause",
            name=st.sampled_from(QUEUES),
            reason=st.sampled_from([None, "deploy"]),
            span=st.sampled_from([TICK, SECOND, SECOND, MINUTE, None]),
        ),
    ),
    (1, _step("resume", name=st.sampled_from(QUEUES))),
    (4, _MOVE),
    (2, _EDIT),
    (1, _step("renumber", queue=st.sampled_from(QUEUES))),
    (2, _step("reserve", draft=DRAFTS, span=_SPANS)),
    (1, _step("extend_reservation", back=_BACK, span=_SPANS)),
    (1, _step("abandon", reason=st.sampled_from(list(Abandonment)))),
    (1, _step("set_the_wall_clock_back", span=_SPANS)),
    (1, _step("reopen", boots=st.booleans())),
)

# Not one_of, which takes each kind once however often it is named.
STEPS: st.SearchStrategy[Step] = st.sampled_from(
    [kind for weight, kind in _WEIGHTED for _ in range(weight)]
).flatmap(lambda kind: kind)

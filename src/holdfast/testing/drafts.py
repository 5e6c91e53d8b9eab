"""What random histories are made of: jobs, events and spans, mostly plain and sometimes odd."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from hypothesis import strategies as st

from holdfast.core.delivery import Delivery
from holdfast.core.event import (
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
)
from holdfast.core.ids import JobId
from holdfast.core.job import Key, NewJob, Slot
from holdfast.core.order import Ordering
from holdfast.core.run import Holder
from holdfast.core.state import Loss
from holdfast.store.base import Queue
from holdfast.testing.clock import START

Choice = TypeVar("Choice")

QUEUES = ("default", "lane")
TYPES = ("left", "right")
ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A job to be added, before it is known when, and beside which others.

    `repeats` and `retries` count back through the jobs known by then; None means neither.
    """

    type: str
    queue: str
    name: str
    params: str
    delivery: Delivery
    priority: int
    max_attempts: int | None
    delay: timedelta | None
    at: timedelta | None
    start_within: timedelta | None
    slot: int | None
    key: Key | None
    active_key: str | None
    repeats: int | None
    retries: int | None

    def job(self, new_id: JobId, now: datetime, known: Sequence[JobId]) -> NewJob:
        """The job it is, added now."""
        return NewJob(
            id=_back(known, self.repeats) or new_id,
            type=self.type,
            params=self.params,
            name=self.name,
            queue=self.queue,
            delivery=self.delivery,
            priority=self.priority,
            max_attempts=self.max_attempts,
            delay=self.delay,
            at=None if self.at is None else now + self.at,
            start_within=self.start_within,
            slot=None if self.slot is None else _slot(self.slot),
            key=self.key,
            active_key=self.active_key,
            retry_of=_back(known, self.retries),
        )


def _slot(minute: int) -> Slot:
    return Slot(series="series", at=START + minute * MINUTE)


def _back(known: Sequence[JobId], steps: int | None) -> JobId | None:
    return None if steps is None or not known else known[-1 - steps % len(known)]


def _mostly(usual: Choice, *odd: Choice, weight: int = 4) -> st.SearchStrategy[Choice]:
    return st.sampled_from([usual] * weight * len(odd) + list(odd))


STEPS_BACK = st.integers(0, 11)
"""How far back in what was seen: the last one is 0."""

DRAFTS = st.builds(
    Draft,
    type=st.sampled_from(TYPES),
    queue=st.sampled_from(QUEUES),
    name=st.sampled_from(("one", "two")) | _mostly("three", "two words", weight=9),
    params=_mostly("{}", '{"n":1}'),
    delivery=st.sampled_from([Delivery.LEASE, Delivery.LEASE, Delivery.CHAIN, Delivery.ONCE]),
    priority=_mostly(0, -1, 5, 40_000),
    max_attempts=st.sampled_from([5, 2, 1, None]),
    delay=_mostly(None, ZERO, SECOND, HOUR),
    at=_mostly(None, -HOUR, ZERO, MINUTE),
    start_within=_mostly(None, ZERO, SECOND, HOUR),
    slot=_mostly(None, 0, 1, 2),
    key=_mostly(None, Key(key="k"), Key(key="k", bucket="b"), Key(key="l")),
    active_key=_mostly(None, "x", "y"),
    repeats=st.none() | _mostly(None, 0, 1, 2, 5, weight=3),
    retries=st.none() | _mostly(None, 0, 1, 2, 3, weight=2),
)

RUN_EVENTS: st.SearchStrategy[Event] = st.sampled_from(
    [
        Succeeded(),
        Succeeded('"done"'),
        Failed("it broke"),
        Failed("it broke", delay=SECOND),
        Failed("it broke", delay=HOUR),
        Failed("it broke", permanent=True),
        Lost(Loss.OWNER_DEAD),
        Lost(Loss.LEASE_EXPIRED),
        Lost(Loss.TIMEOUT, "too long"),
        Released("drain"),
        Snoozed(ZERO),
        Snoozed(SECOND, "later"),
        Skipped("empty"),
        Stopped("told"),
        CancelRequested("enough"),
    ]
)
JOB_EVENTS: st.SearchStrategy[Event] = st.sampled_from(
    [CancelRequested(), CancelRequested("enough"), FellDue(), Misfired(), GivenUp("hopeless")]
)
SPANS = st.sampled_from([timedelta(microseconds=1), SECOND, 15 * SECOND, MINUTE, HOUR])
LEASES = st.sampled_from([ZERO, SECOND, 15 * SECOND])
ARTIFACTS = st.lists(st.sampled_from(["a.txt", "b.txt"]), min_size=1, max_size=2)
HOLDERS = st.sampled_from(
    [
        Holder(instance_id="worker-1", boot_id="boot-1"),
        Holder(instance_id="worker-1", boot_id="boot-2"),
        Holder(instance_id="worker-2", boot_id="boot-3"),
    ]
)
SETTINGS = st.builds(
    Queue,
    name=st.sampled_from(QUEUES),
    ordering=st.sampled_from(Ordering),
    gap=st.sampled_from([100, 10]),
)

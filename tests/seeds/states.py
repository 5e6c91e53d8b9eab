"""Every state a job can be in, everything that can happen to it, and all that may follow."""

from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Final

from outlast.core.decide import Change, Guard, Transition, decide
from outlast.core.delivery import Delivery
from outlast.core.event import (
    ZERO,
    Abandoned,
    Abandonment,
    CancelRequested,
    DetachedJobFound,
    Edited,
    Event,
    Failed,
    FellDue,
    GivenUp,
    Lost,
    Misfired,
    Moved,
    Released,
    Skipped,
    Snoozed,
    Stopped,
    Succeeded,
    SuccessorMissing,
    Unblocked,
    Unfit,
)
from outlast.core.ids import JobId
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.core.state import Loss, RunStatus, State
from outlast.errors import TransitionRefused
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    SUCCEEDED,
    ended,
    job_of,
    put,
    settle,
    started,
)

EVENTS: Final[list[Event]] = [
    Succeeded(),
    Skipped(),
    Stopped(),
    Failed("broke"),
    Failed("broke", permanent=True),
    *(Lost(reason) for reason in Loss),
    Released("drain"),
    Snoozed(ZERO),
    Unfit("no field", "worker-1", HOUR),
    Unfit("no field", "worker-1", ZERO),
    CancelRequested(),
    FellDue(),
    Unblocked(),
    Misfired(),
    GivenUp("hopeless"),
    DetachedJobFound(None),
    *(DetachedJobFound(status) for status in RunStatus if status is not RunStatus.RUNNING),
    DetachedJobFound(RunStatus.FAILED, "permanent"),
    SuccessorMissing("startup_recovery"),
    Edited(JobEdit(priority=1)),
    Edited(JobEdit(delay=HOUR)),
    Moved(MoveTo(Anchor.FRONT)),
    *(Abandoned(reason) for reason in Abandonment),
]
DELIVERIES: Final = (Delivery.LEASE, Delivery.LINKED, Delivery.ONCE)


def ways(*deliveries: Delivery) -> Iterator[tuple[State, Transition]]:
    """Whatever `decide` can answer, from any state, to any event."""
    for state, event, delivery, most in product(State, EVENTS, deliveries, (1, 5)):
        job = SimpleNamespace(
            id=JobId("a"), state=state, delivery=delivery, token=1, failures=0, losses=0,
            max_attempts=most,
        )  # fmt: skip
        try:
            yield state, decide(job, event, new_id=lambda: JobId("b")).move
        except TransitionRefused:
            continue


async def one_of_each(store: SqliteStore) -> dict[State, str]:
    """A job in every state that a job can be in without a cluster."""
    found = {
        State.SUCCEEDED: await ended(store, SUCCEEDED),
        State.FAILED: await ended(store, FAILED, delivery=Delivery.ONCE),
        State.DEAD_LETTER: await ended(store, Failed("no", permanent=True)),
        State.SKIPPED: await ended(store, Skipped()),
        State.RETRY_WAIT: await ended(store, Failed("later", delay=HOUR)),
        State.RUNNING: (await started(store)).id,
        State.SCHEDULED: await put(store, delay=HOUR),
        State.QUEUED: await put(store),
        State.CANCELLED: await put(store),
        State.BLOCKED: await put(store),
    }
    await settle(store, await job_of(store, found[State.CANCELLED]), CancelRequested())
    block = Transition(guard=Guard.STATE, to=State.BLOCKED)
    assert await store.apply([Change(found[State.BLOCKED], 0, block, was=State.QUEUED)]) == [True]
    return found

"""Scenarios of the order: moves, edits and renumbering, killed half-way."""

from collections.abc import Awaitable, Callable
from typing import Any

from outlast.core.event import Edited, Event, Moved
from outlast.core.ids import JobId
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor, JobEdit, MoveTo
from outlast.store.contract.queues import Queue
from support.crash.scenarios import _blocked, _retrying
from support.crash.world import SECOND, Prepare, Scenario, World, deciding


def _line(ordering: Ordering, gap: int = 100) -> Prepare:
    """Six jobs in the default queue, one of them due later."""

    async def prepare(w: World) -> list[JobId]:
        await w.store.set_queue(Queue(name="default", ordering=ordering, gap=gap))
        return [await w.add(delay=n * SECOND if n == 4 else None) for n in range(6)]

    return prepare


def _moving(where: Anchor, ordering: Ordering, gap: int = 100) -> Scenario:
    """Bring the fifth beside the second, or to an end."""

    async def act(w: World, jobs: list[JobId]) -> None:
        target = None if where in (Anchor.FRONT, Anchor.BACK) else jobs[1]
        await _settle(w, jobs[4], Moved(MoveTo(where, target)))

    return Scenario(_line(ordering, gap), act)


def _editing(edit: JobEdit) -> Scenario:
    async def act(w: World, jobs: list[JobId]) -> None:
        await _settle(w, jobs[2], Edited(edit))

    return Scenario(_line(Ordering.POSITION), act)


async def _settle(w: World, job_id: JobId, event: Event) -> None:
    assert await w.settle(await w.get(job_id), event)


async def _uneven(w: World, ordering: Ordering) -> None:
    jobs = await _line(ordering)(w)
    for job_id, where in ((jobs[3], Anchor.BEFORE), (jobs[5], Anchor.AFTER)):
        await _settle(w, job_id, Moved(MoveTo(where, jobs[1])))


def _renumbering(ordering: Ordering) -> Scenario:
    async def act(w: World, _: Any) -> None:
        assert await w.store.renumber("default")

    return Scenario(lambda w: _uneven(w, ordering), act)


async def _later(w: World) -> JobId:
    return await w.add(delay=SECOND)


async def _queued(w: World) -> JobId:
    return await w.add()


WAITING: dict[str, Callable[[World], Awaitable[JobId]]] = {
    "blocked": _blocked,
    "scheduled": _later,
    "queued": _queued,
    "retry_wait": _retrying,
}
"""A job in each state in which one may be moved and edited."""

CHANGES: dict[str, Event] = {
    "edit": Edited(JobEdit(priority=3)),
    "move": Moved(MoveTo(Anchor.BACK)),
}

PLACES = {
    **{f"move_{where}": _moving(where, Ordering.POSITION) for where in Anchor},
    "move_tight": _moving(Anchor.AFTER, Ordering.POSITION, gap=1),
    "move_unplaced": _moving(Anchor.AFTER, Ordering.SCHEDULED),
    "swap_unplaced": _moving(Anchor.SWAP, Ordering.SCHEDULED),
    "edit_everything": _editing(JobEdit(params="[1]", priority=7, delay=SECOND)),
    "renumber": _renumbering(Ordering.POSITION),
    "renumber_placed": _renumbering(Ordering.SCHEDULED),
}
"""To be played beside `SCENARIOS`."""

STATES = {
    **{
        f"{what}_{state}": deciding(prepare, event)
        for state, prepare in WAITING.items()
        for what, event in CHANGES.items()
    },
    "put_off": deciding(_queued, Edited(JobEdit(delay=SECOND))),
}
"""The same act from every state, for tests of states."""

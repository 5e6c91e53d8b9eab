"""The verbs of queues."""

from dataclasses import replace
from datetime import timedelta

from outlast.core.event import EventKind
from outlast.core.queue import Pause
from outlast.store.contract.notifications import Notification
from outlast.store.contract.queues import Queue
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.repositories import jobs as job_repository
from outlast.store.keyvalue.repositories import queues
from outlast.store.keyvalue.unit_of_work import UnitOfWork

ALL = 1_000_000


async def set_queue(desk: StoreContext, queue: Queue) -> None:
    async def work(unit: UnitOfWork) -> None:
        kept = await queues.load(unit, queue.name)
        now_set = replace(queue, pause=kept.queue.pause)
        queues.save(unit, replace(kept, queue=now_set, is_listed=True))

    await desk.run_unit(work)
    desk.notify(Notification(queues=frozenset({queue.name})))


async def queue(desk: StoreContext, name: str) -> Queue:
    async def work(unit: UnitOfWork) -> Queue:
        return (await queues.load(unit, name)).shown(desk.now())

    return await desk.run_unit(work)


async def listed(desk: StoreContext) -> list[Queue]:
    found = await desk.engine.range(KeyRange(key_layout.QUEUE), limit=ALL)
    kept = [queues.from_value(entry.value) for entry in found]
    shown = [each.shown(desk.now()) for each in kept if each.is_listed]
    return sorted(shown, key=lambda each: each.name)


async def pause(desk: StoreContext, name: str, reason: str | None, span: timedelta | None) -> None:
    async def work(unit: UnitOfWork) -> None:
        kept, now = await queues.load(unit, name), desk.now()
        until = None if span is None else now + span
        paused = replace(kept.queue, pause=Pause(at=now, reason=reason, until=until))
        queues.save(unit, replace(kept, queue=paused, is_listed=True))
        detail = None if until is None else until.isoformat()
        await job_repository.append_event(
            unit, EventKind.PAUSED, at=now, reason=reason, detail=detail, queue=name
        )

    await desk.run_unit(work)


async def resume(desk: StoreContext, name: str) -> bool:
    async def work(unit: UnitOfWork) -> bool:
        kept, now = await queues.load(unit, name), desk.now()
        if kept.shown(now).pause is None:
            return False
        queues.save(unit, replace(kept, queue=replace(kept.queue, pause=None)))
        await job_repository.append_event(unit, EventKind.RESUMED, at=now, queue=name)
        return True

    resumed = await desk.run_unit(work)
    if resumed:
        desk.notify(Notification(queues=frozenset({name})))
    return resumed

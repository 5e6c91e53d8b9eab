"""Fires due slots: each slot is claimed once, by the first process that writes it."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import compress, pairwise, takewhile
from typing import Any, Final

from outlast.clock import Clock, SystemClock
from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import Lost
from outlast.core.ids import JobId
from outlast.core.job import Job, Slot
from outlast.core.limits import MAX_REASON, truncate
from outlast.core.schedule import (
    CLAIMED,
    LATE,
    MOST_DUE,
    Firing,
    Schedule,
    SlotDecision,
    SlotOutcome,
    decide_slots,
    instance_keys,
    planned_at,
)
from outlast.core.state import Loss
from outlast.errors import InvalidSchedule
from outlast.scheduler.cron import due_slots, next_slot
from outlast.scheduler.slot_job_factory import SlotJobFactories, SlotJobFactory
from outlast.store.contract import Store
from outlast.store.contract.schedules import Due, FireResult
from outlast.telemetry.events import emit, has_audience

log = logging.getLogger("outlast.scheduler")

SCHEDULES_PER_ROUND: Final = 1000
"""Due schedules that one step reads at most."""

SLOTS_PER_WRITE: Final = 500
"""Slots in one write at most, so that other writers do not wait for long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerResult:
    """The slot outcomes of one step, and the time of the next trigger after it.

    `now` is the store's time when that was read; `read_at` is the monotonic time before the read.
    """

    outcomes: Mapping[SlotOutcome, int]
    now: datetime
    read_at: int
    next_trigger_at: datetime | None


class Trigger:
    """Fires due slots. Each step may be killed at any point and run by several processes."""

    def __init__(
        self, store: Store, new_id: Callable[[], JobId], clock: Clock | None = None
    ) -> None:
        """Prepare the trigger; `clock` measures how long ago the store was read."""
        self._store = store
        self._new_id = new_id
        self._monotonic = (clock or SystemClock()).monotonic
        self._ready: dict[str, tuple[Schedule, Firing]] = {}
        self._prepared_for: datetime | None = None

    async def run_once(self) -> TriggerResult:
        """Fire every due slot, those of one schedule in order.

        The schedules are read again after a round, so that the next trigger includes those fired.
        """
        outcomes = await self._fire_ready()
        read_at, due = await self._read_due()
        if due.schedules:
            round_ = TriggerRound(self._store, self._new_id, due.now)
            outcomes += await round_.fire(due.schedules)
            read_at, due = await self._read_due()
        soonest = due.schedules[0].next_trigger_at if due.schedules else due.next_trigger_at
        return TriggerResult(
            outcomes=outcomes, now=due.now, read_at=read_at, next_trigger_at=soonest
        )

    async def _read_due(self) -> tuple[int, Due]:
        read_at = self._monotonic()
        return read_at, await self._store.due_schedules(limit=SCHEDULES_PER_ROUND)

    async def prepare(self, moment: datetime, ahead: timedelta) -> None:
        """Prepare the firings due within `ahead`, so that many at one moment are on time.

        Runs once for each `moment`, the next trigger. Schedules with a template are not prepared,
        since the template is read when the slot is due.
        """
        if moment == self._prepared_for:
            return
        self._prepared_for = moment
        soon = await self._store.due_schedules(ahead=ahead, limit=SCHEDULES_PER_ROUND)
        present = {schedule.id: schedule for schedule in soon.schedules}
        known = {
            name: ready for name, ready in self._ready.items() if ready[0] == present.get(name)
        }
        for schedule in soon.schedules:
            planned = schedule.next_trigger_at
            if schedule.id in known or schedule.plan.template is not None or planned is None:
                continue
            round_ = TriggerRound(self._store, self._new_id, planned)
            [firing, *others] = await round_.firings(schedule, frozenset())
            if not others:
                known[schedule.id] = schedule, firing
            await asyncio.sleep(0)  # let due work run first
        self._ready = known

    async def _fire_ready(self) -> Counter[SlotOutcome]:
        """Fire the prepared slots that are due; late or overlapping ones are left to the round."""
        outcomes: Counter[SlotOutcome] = Counter()
        if not self._ready:
            return outcomes
        now = await self._store.now()
        due = [each for each in self._ready.values() if now - LATE <= each[1].planned <= now]
        self._ready = {n: each for n, each in self._ready.items() if each[1].planned > now}
        if not due:
            return outcomes
        running = await _running_once(self._store, [schedule for schedule, _ in due])
        firable = [each for each in due if _name(each[0]) not in running]
        firable.sort(key=lambda each: each[1].planned)
        for start in range(0, len(firable), SLOTS_PER_WRITE):
            together = firable[start : start + SLOTS_PER_WRITE]
            fired = await self._store.fire([firing for _, firing in together])
            for (schedule, firing), answer in zip(together, fired, strict=True):
                if answer is FireResult.WRITTEN:
                    outcomes[firing.outcome] += 1
                log_slot(schedule, firing, answer, now)
        return outcomes


def _name(schedule: Schedule) -> str:
    return schedule.plan.making.name


async def _running_once(store: Store, schedules: Sequence[Schedule]) -> frozenset[str]:
    """Return the names of the schedules' `once` jobs that are running."""
    blueprints = [schedule.plan.making for schedule in schedules]
    names = {each.name for each in blueprints if each.delivery is Delivery.ONCE}
    return await store.running_names(names) if names else frozenset()


class TriggerRound:
    """The due schedules of one moment, fired together."""

    def __init__(self, store: Store, new_id: Callable[[], JobId], now: datetime) -> None:
        self._store = store
        self._new_id = new_id
        self._now = now
        self._following: dict[tuple[str, datetime], datetime | None] = {}
        self._factories = SlotJobFactories(store)
        self._schedules: dict[str, Schedule] = {}
        self._waiting: dict[str, deque[Firing]] = {}
        self.outcomes: Counter[SlotOutcome] = Counter()

    async def fire(self, schedules: Sequence[Schedule]) -> Counter[SlotOutcome]:
        """Fire the due slots of these schedules; return the number per outcome."""
        running = await self._running(schedules)
        for schedule in schedules:
            self._schedules[schedule.id] = schedule
            self._waiting[schedule.id] = deque(await self.firings(schedule, running))
        while batch := self._next_batch():
            self._read(batch, await self._store.fire(batch))
        return self.outcomes

    async def _running(self, schedules: Sequence[Schedule]) -> frozenset[str]:
        """Return the names of running `once` jobs, after closing those with an expired lease."""
        running = await _running_once(self._store, schedules)
        if not running:
            return running
        expired = [
            job
            for job in await self._store.expired_leases(limit=SCHEDULES_PER_ROUND)
            if job.name in running
        ]
        await self._close(expired)
        return await self._store.running_names(running) if expired else running

    async def _close(self, expired: Sequence[Job]) -> None:
        lost = Lost(Loss.LEASE_EXPIRED)
        closed = await self._store.apply(
            [decide(each, lost, new_id=self._new_id) for each in expired]
        )
        for job in compress(expired, closed):  # another process logs the others
            fields = {"job": job.id, "token": job.token, "reason": "lease_expired"}
            emit(log, logging.WARNING, "job_lost", {**fields, "holder": job.holder})

    async def firings(self, schedule: Schedule, running: frozenset[str]) -> list[Firing]:
        """Return the firings of the due slots of one schedule."""
        decisions = self._decisions(schedule)
        ends = [
            *(decision.at for decision in decisions[1:]),
            self._next_slot(schedule, decisions[-1].at),
        ]
        pairs = zip(decisions, ends, strict=True)
        firings = [_firing(schedule, decision, following) for decision, following in pairs]
        if len(firings) >= MOST_DUE:
            firings[0] = replace(firings[0], reason=f"skipped: slots before {ends[0]}")
        wanting = [firing for firing in firings if firing.outcome in CLAIMED]
        if not wanting:
            return firings
        try:
            factory = await self._factories.factory_for(schedule)
        except InvalidSchedule as error:
            log.error("schedule %s cannot build its job: %s", schedule.name, error)  # noqa: TRY400
            return [
                _failed_to_build(each, str(error)) if each in wanting else each for each in firings
            ]
        if factory.blueprint.name in running:
            return [_overlap(each) if each in wanting else each for each in firings]
        return [self._with_job(each, schedule, factory) for each in firings]

    def _decisions(self, schedule: Schedule) -> list[SlotDecision]:
        assert schedule.next_slot is not None
        following = self._next_slot(schedule, schedule.next_slot)
        if following is None or following > self._now:  # the usual case
            return decide_slots(schedule, [schedule.next_slot], self._now)
        due = due_slots(schedule.plan.rule, schedule.next_slot, self._now)
        is_ready = partial(self._is_ready, schedule)
        return decide_slots(schedule, list(takewhile(is_ready, due)), self._now)

    def _is_ready(self, schedule: Schedule, at: datetime) -> bool:
        return planned_at(schedule.id, schedule.plan.jitter, at) <= self._now

    def _next_slot(self, schedule: Schedule, at: datetime) -> datetime | None:
        key = schedule.id, at
        if key not in self._following:
            self._following[key] = next_slot(schedule.plan.rule, at)
        return self._following[key]

    def _with_job(self, firing: Firing, schedule: Schedule, factory: SlotJobFactory) -> Firing:
        if firing.outcome not in CLAIMED:
            return firing
        within = firing.planned - firing.slot.at + schedule.plan.misfire_grace
        keys = instance_keys(schedule)
        job = factory.job(
            self._new_id(), firing.slot.at, start_within=within, key=keys[0] if keys else None
        )
        return replace(firing, job=job)

    def _next_batch(self) -> list[Firing]:
        batch: list[Firing] = []
        for waiting in self._waiting.values():
            batch += list(waiting)[: SLOTS_PER_WRITE - len(batch)]
            if len(batch) == SLOTS_PER_WRITE:
                break
        return batch

    def _read(self, batch: Sequence[Firing], fired: Sequence[FireResult]) -> None:
        """Handle the results; a firing to be changed blocks the later ones of its schedule."""
        blocked: set[str] = set()
        for firing, answer in zip(batch, fired, strict=True):
            if firing.schedule_id in blocked:
                if answer is FireResult.WRITTEN:  # another process fired the slots before it
                    self._record(firing, answer)
                continue
            waiting = self._waiting[firing.schedule_id]
            if answer is FireResult.STALE:  # another process fired it, or the schedule was edited
                blocked.add(firing.schedule_id)
                waiting.clear()
                continue
            waiting.popleft()
            if answer is FireResult.BUSY or answer is FireResult.REFUSED:
                blocked.add(firing.schedule_id)
                waiting.appendleft(self._changed(firing, answer))
                continue
            self._record(firing, answer)
        self._waiting = {name: left for name, left in self._waiting.items() if left}

    def _changed(self, firing: Firing, answer: FireResult) -> Firing:
        if answer is FireResult.REFUSED:
            return _failed_to_build(firing, "the store refused its job")
        assert firing.job is not None
        keys = instance_keys(self._schedules[firing.schedule_id])
        following = dict(pairwise(keys)).get(firing.job.active_key or "")
        if following is None:
            return _overlap(firing)
        return replace(firing, job=replace(firing.job, active_key=following))

    def _record(self, firing: Firing, answer: FireResult) -> None:
        if answer is FireResult.WRITTEN:
            self.outcomes[firing.outcome] += 1
        log_slot(self._schedules[firing.schedule_id], firing, answer, self._now)


def log_slot(schedule: Schedule, firing: Firing, answer: FireResult, now: datetime) -> None:
    """Log a slot that was fired, or that another process had claimed."""
    if answer is FireResult.TAKEN:
        fields = {"schedule": schedule.name, "slot": firing.slot.at.isoformat()}
        emit(log, logging.INFO, "slot_taken", fields)
    if answer is FireResult.WRITTEN:
        _log_written(schedule, firing, now)


def _log_written(schedule: Schedule, firing: Firing, now: datetime) -> None:
    level = logging.WARNING if firing.outcome is SlotOutcome.MISSED else logging.INFO
    if not has_audience(log, level):
        return
    fields: dict[str, Any] = {
        "schedule": schedule.name,
        "slot": firing.slot.at.isoformat(),
        "outcome": str(firing.outcome),
        "lateness_seconds": round((now - firing.planned).total_seconds(), 6),
        **({"job": firing.job.id} if firing.job else {}),
        **({"reason": firing.reason} if firing.reason else {}),
    }
    emit(log, level, "slot", fields)


def _firing(schedule: Schedule, decision: SlotDecision, following: datetime | None) -> Firing:
    plan = schedule.plan
    at = None if following is None else planned_at(schedule.id, plan.jitter, following)
    return Firing(
        schedule_id=schedule.id,
        version=schedule.version,
        slot=Slot(series=schedule.series, at=decision.at),
        outcome=decision.outcome,
        planned=decision.planned,
        next_slot=following,
        next_trigger_at=at,
    )


def _overlap(firing: Firing) -> Firing:
    return replace(firing, outcome=SlotOutcome.OVERLAP, job=None)


def _failed_to_build(firing: Firing, why: str) -> Firing:
    return replace(firing, outcome=SlotOutcome.MISSED, job=None, reason=truncate(why, MAX_REASON))

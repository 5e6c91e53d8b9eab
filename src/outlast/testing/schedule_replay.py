"""Replay of schedules: slots that came due while the test's clock moved, each at its own time."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from outlast.app import Outlast
from outlast.core.ids import JobId
from outlast.core.schedule import Schedule
from outlast.errors import CallerError
from outlast.scheduler.cron import slots
from outlast.scheduler.trigger import SCHEDULES_PER_ROUND, Trigger
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock

log = logging.getLogger("outlast.scheduler")

MAX_SLOTS: Final = 1_000
"""Slots that one drain replays at most; each costs a round of the trigger and of the workers."""


async def declare(app: Outlast) -> None:
    """Write the declared schedules to the store as a worker does: an invalid one is logged."""
    try:
        await app.sync_schedules()
    except CallerError as error:
        log.error("declared schedules are invalid: %s", error)  # noqa: TRY400 - complete message


class ScheduleReplay:
    """Fires due slots with the production trigger, as if a worker had run all the time.

    The clock is set back to each slot in turn and is restored at the end, so no slot is late.
    """

    def __init__(self, store: Store, clock: FakeClock, new_id: Callable[[], JobId]) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id

    async def run(self, on_fired: Callable[[], Awaitable[bool]]) -> None:
        """Fire the slots due by now; call `on_fired` at the time of each until it returns False.

        Raises AssertionError if too many slots came due.
        """
        now = self._clock.now()
        _require_few(await self._due(), now)
        goes_on = True
        try:
            while goes_on and (due := await self._due()):
                assert due[0].next_trigger_at is not None  # it is due
                self._clock.set_wall(due[0].next_trigger_at)
                await Trigger(self._store, self._new_id).run_once()
                goes_on = await on_fired()
                self._clock.set_wall(now)
        finally:
            self._clock.set_wall(now)

    async def _due(self) -> Sequence[Schedule]:
        return (await self._store.due_schedules(limit=SCHEDULES_PER_ROUND)).schedules


def _require_few(due: Sequence[Schedule], now: datetime) -> None:
    counts = {schedule.name: _count(schedule, now) for schedule in due}
    if sum(counts.values()) > MAX_SLOTS:
        most = max(counts, key=lambda name: counts[name])
        raise AssertionError(
            f"more than {MAX_SLOTS:,} slots came due, most of schedule {most}; advance in smaller "
            "steps and drain after each, or leave schedules out: drain(schedules=False)"
        )


def _count(schedule: Schedule, now: datetime) -> int:
    """Return how many slots of a schedule are due, counted up to one more than the limit."""
    assert schedule.next_slot is not None  # it is due
    following = slots(schedule.plan.rule, schedule.next_slot, until=now, limit=MAX_SLOTS)
    return 1 + len(list(following))

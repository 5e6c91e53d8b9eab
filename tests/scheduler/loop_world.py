"""A trigger loop in virtual time: a wait moves the clock, so hours of slots take no time."""

from collections.abc import Callable
from datetime import timedelta

from outlast import Outlast
from outlast.core.ids import Ids
from outlast.core.schedule import SlotOutcome
from outlast.scheduler.loop import TriggerLoop
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock

SECOND = timedelta(seconds=1)


class TimeIsOver(Exception):
    """Ends a loop that would run until it is cancelled."""


class VirtualWait:
    """Waits by moving the clock until `end`; `late` seconds are added to the waits of that number.

    `before` is called before each wait.
    """

    def __init__(
        self,
        clock: FakeClock,
        span: timedelta,
        *,
        late: dict[int, float] | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._end = clock.now() + span
        self._late = late or {}
        self._before = before
        self.pauses: list[float] = []

    async def __call__(self, changed: object, seconds: float) -> None:
        self._before()
        self.pauses.append(seconds)
        self._clock.advance(timedelta(seconds=seconds + self._late.get(len(self.pauses), 0.0)))
        if self._clock.now() >= self._end:
            raise TimeIsOver


def loop_of(
    store: Store,
    ids: Ids,
    clock: FakeClock,
    wait: VirtualWait,
    *,
    poll: float = 0.5,
    **over: object,
) -> TriggerLoop:
    given: dict[str, object] = {"clock": clock, "random": lambda: 1.0, "wait": wait, **over}
    return TriggerLoop(store, ids.job, timedelta(seconds=poll), **given)  # type: ignore[arg-type]


async def run_for(loop: TriggerLoop) -> None:
    try:
        await loop.run()
    except TimeIsOver:
        return


async def lateness(app: Outlast, name: str = "s") -> list[tuple[SlotOutcome, float]]:
    """Return the outcome of each slot and the seconds it came late, the first slot first."""
    rows = await app.schedules.history(name, limit=1000)
    return [(row.outcome, (row.actual - row.planned) / SECOND) for row in rows[::-1]]

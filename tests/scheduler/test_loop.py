"""How the trigger loop sleeps: until the next slot, and when it is woken."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from loop_world import SECOND, VirtualWait, loop_of

from outlast import Outlast
from outlast.core.ids import Ids
from outlast.scheduler.loop import (
    ERROR_PAUSE_S,
    MAX_SLEEP_POLLS,
    MAX_SLEEP_S,
    MIN_PREPARE_TIME_S,
    NO_PROGRESS_PAUSE_S,
    PREPARE_AHEAD,
    WAKE_MARGIN_S,
    TriggerLoop,
    wait_for_event,
)
from outlast.scheduler.trigger import TriggerResult
from outlast.store.contract import Store
from outlast.store.postgres.store import PostgresStore
from outlast.store.sqlite.store import SqliteStore
from outlast.telemetry.outage_log import OutageLog
from outlast.testing.clock import START, FakeClock
from outlast.testing.model.store import ModelStore
from support.postgres.clock import DatabaseClock

PATIENCE_S = 120


class Foreseen:
    """A trigger whose next moment is that many seconds away; preparing it takes some."""

    def __init__(
        self, clock: FakeClock, left: float | None, *, takes: float = 0.0, wrote: int = 0
    ) -> None:
        self._clock = clock
        self._left = left
        self._takes = takes
        self._wrote = wrote
        self.prepared = 0

    async def run_once(self) -> TriggerResult:
        at = None if self._left is None else START + timedelta(seconds=self._left)
        outcomes = Counter({"ran": self._wrote} if self._wrote else {})
        return TriggerResult(
            outcomes=outcomes,  # type: ignore[arg-type]
            now=START,
            read_at=self._clock.monotonic(),
            next_trigger_at=at,
        )

    async def prepare(self, moment: object, ahead: object) -> None:
        self.prepared += 1
        self._clock.advance(timedelta(seconds=self._takes))


@pytest.fixture
def loop(clock: FakeClock, ids: Ids) -> TriggerLoop:
    return loop_of(ModelStore(clock, ids), ids, clock, VirtualWait(clock, SECOND))


async def slept(loop: TriggerLoop, trigger: Foreseen) -> float:
    loop._trigger = trigger  # type: ignore[assignment]
    loop._use_lock = False
    return await loop._guarded_step(OutageLog(logging.getLogger("outlast.scheduler"), "test"))


@pytest.mark.parametrize("left", [None, 3600.0])
async def test_rests_for_long_when_nothing_is_near(
    loop: TriggerLoop, clock: FakeClock, left: float | None
) -> None:
    assert await slept(loop, Foreseen(clock, left)) == MAX_SLEEP_S


@pytest.mark.parametrize(
    ("poll", "longest"), [(0.001, MAX_SLEEP_POLLS * 0.001), (5.0, 5.0), (30.0, 30.0)]
)
async def test_rests_no_longer_than_the_poll_interval_allows(
    clock: FakeClock, ids: Ids, poll: float, longest: float
) -> None:
    wait = VirtualWait(clock, SECOND)
    loop = loop_of(ModelStore(clock, ids), ids, clock, wait, poll=poll)

    assert await slept(loop, Foreseen(clock, None)) == pytest.approx(longest)


async def test_wakes_in_time_to_make_ready_what_is_due(loop: TriggerLoop, clock: FakeClock) -> None:
    near = PREPARE_AHEAD.total_seconds()

    pause = await slept(loop, Foreseen(clock, near + 3))

    assert pause == pytest.approx(3 + WAKE_MARGIN_S)
    foreseen = Foreseen(clock, near + 3 - pause)
    assert await slept(loop, foreseen) == pytest.approx(near - WAKE_MARGIN_S, abs=0.01)
    assert foreseen.prepared == 1


async def test_does_not_sleep_for_the_time_that_making_ready_took(
    loop: TriggerLoop, clock: FakeClock
) -> None:
    foreseen = Foreseen(clock, 4.0, takes=1.0)

    assert await slept(loop, foreseen) == pytest.approx(3.0, abs=0.01)
    assert foreseen.prepared == 1


async def test_makes_nothing_ready_at_the_last_moment(loop: TriggerLoop, clock: FakeClock) -> None:
    foreseen = Foreseen(clock, MIN_PREPARE_TIME_S / 2)

    assert await slept(loop, foreseen) <= MIN_PREPARE_TIME_S
    assert foreseen.prepared == 0


async def test_goes_on_at_once_while_slots_are_due_but_not_in_a_busy_loop(
    loop: TriggerLoop, clock: FakeClock
) -> None:
    assert await slept(loop, Foreseen(clock, -1.0, wrote=1)) == 0.0
    assert await slept(loop, Foreseen(clock, -1.0, wrote=0)) == NO_PROGRESS_PAUSE_S


async def test_pauses_after_an_error(loop: TriggerLoop, clock: FakeClock) -> None:
    foreseen = Foreseen(clock, 1.0)
    foreseen.run_once = None  # type: ignore[assignment,method-assign]

    assert await slept(loop, foreseen) == ERROR_PAUSE_S


class LostLock:
    is_lost = False
    releases = 0

    async def release(self) -> None:
        self.releases += 1


async def test_a_lost_lock_is_released_and_acquired_again(
    loop: TriggerLoop, clock: FakeClock
) -> None:
    await loop._store.open()
    loop._lock = lock = LostLock()
    assert await loop._is_leader()

    lock.is_lost = True

    assert await loop._is_leader()
    assert (lock.releases, loop._lock is lock) == (1, False)


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(
    request: pytest.FixtureRequest, clock: FakeClock, ids: Ids, tmp_path: Path
) -> AsyncIterator[tuple[Store, Store]]:
    """Two stores of one database, as two processes have them."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""

    def opened() -> Store:
        if request.param == "postgres":
            return PostgresStore(url, clock=DatabaseClock(clock), ids=ids)
        return SqliteStore(tmp_path / "jobs.db", clock=clock, ids=ids)

    one, other = opened(), opened()
    await one.open()
    await other.open()
    yield one, other
    await one.close()
    await other.close()


async def test_a_schedule_saved_by_another_process_wakes_the_loop(
    pair: tuple[Store, Store], clock: FakeClock, ids: Ids
) -> None:
    """The poll interval is an hour, so that only a notification can wake it."""
    here, elsewhere = pair
    async with Outlast(elsewhere) as app, asyncio.timeout(PATIENCE_S):
        app.job(name="report")(_report)
        pauses: asyncio.Queue[float] = asyncio.Queue()
        loop = loop_of(here, ids, clock, _recording(pauses), poll=3600.0)  # type: ignore[arg-type]
        running = asyncio.create_task(loop.run())
        assert await pauses.get() == 3600.0

        # Saved until it arrives: the listener may not be connected when the loop first sleeps.
        pause, number = 3600.0, 0
        while pause == 3600.0:
            number += 1
            await app.schedules.save(
                f"s{number}", None, "report", every="2s", coalesce=True, misfire_grace="5m"
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    pause = await pauses.get()

        assert pause <= 2.01
        running.cancel()
        await asyncio.wait([running])


def _recording(
    pauses: "asyncio.Queue[float]",
) -> Callable[[asyncio.Event, float], object]:
    async def wait(changed: asyncio.Event, seconds: float) -> None:
        pauses.put_nowait(seconds)
        await wait_for_event(changed, seconds)

    return wait


def _report() -> None: ...

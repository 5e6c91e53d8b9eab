"""A worker without work leaves its store alone."""

import asyncio
from collections import Counter

import pytest
from worker_helpers import PATIENCE, SOON, until

from outlast import Outlast, State
from outlast.store.contract import Capability
from outlast.store.open import open_store
from outlast.worker.dispatcher import EMPTY_POLLS_BEFORE_BACKOFF
from outlast.worker.maintenance.loop import Maintenance

QUIET = {"subscribe", "open", "close", "capabilities", "exists", "path"}
"""What asks nothing of the database."""


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store):
        self._store = store
        self.asked = Counter()

    def __getattr__(self, name):
        verb = getattr(self._store, name)
        if name in QUIET:
            return verb

        def counted(*args, **kwargs):
            self.asked[name] += 1
            return verb(*args, **kwargs)

        return counted


@pytest.fixture
def counting(path):
    return Counting(open_store(f"sqlite:///{path}"))


async def test_idle_worker_asks_its_store_at_most_twice_a_second(counting):
    """With the default settings, also if a job is due in an hour."""
    app, loop = Outlast(counting), asyncio.get_running_loop()

    @app.job
    async def noop() -> None: ...

    async with app, app.worker():
        await noop.options(delay="1h").enqueue()
        await (await noop.enqueue()).wait(SOON)
        resting = counting.asked["claim"] + EMPTY_POLLS_BEFORE_BACKOFF
        await until(lambda: counting.asked["claim"] >= resting, within=60)
        counting.asked.clear()
        began = loop.time()
        await until(lambda: counting.asked["claim"] >= 3 and counting.asked["maintenance_due"] >= 4)
        seconds, asked = loop.time() - began, counting.asked.copy()

    # Each may be asked once more than its share: those seconds begin and end anywhere.
    assert asked.total() - len(asked) <= 2 * seconds, asked


async def test_look_that_finds_nothing_is_the_only_question_of_a_tick(counting):
    await counting.open()

    tidied = await Maintenance(counting, lambda: "unused").run_once()

    assert Capability.MAINTENANCE_CHECK in counting.capabilities
    assert (tidied.reclaimed, dict(counting.asked)) == (0, {"maintenance_due": 1})
    await counting.close()


async def test_worker_that_rests_is_woken_at_once(counting):
    """It looks less often when there is nothing: not for those who tell it of work."""
    app = Outlast(counting, poll="1h")

    @app.job
    async def noop() -> int:
        return 1

    async with app, app.worker() as worker:

        def rests() -> bool:
            worker._engine._dispatcher.wake()
            return counting.asked["claim"] > EMPTY_POLLS_BEFORE_BACKOFF

        await until(rests)
        result = await (await noop.enqueue()).result(SOON)

    assert result == 1


async def test_who_waits_for_all_work_need_not_wait_for_the_next_poll(path):
    """However rare polls are: the last end may still be on its way when nothing is left to take."""
    app = Outlast(f"sqlite:///{path}", poll="1h")

    @app.job
    def note(number: int) -> None: ...

    async with app, app.worker() as worker:
        for _ in range(20):
            await app.enqueue_many(note.bind(number) for number in range(3))
            async with asyncio.timeout(PATIENCE):
                await worker.drained()
            assert {state for _, state in await app.store.counts()} == {State.SUCCEEDED}

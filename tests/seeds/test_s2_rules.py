"""S2's settings: how often the companion looks, how much it takes, and when it tries again."""

import asyncio
import selectors
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from companion.companion import Companion, Rules
from outlast.core.run import Claim, LeaseHolder
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.model.store import ModelStore
from outlast.testing.stores import ids_for_test
from outlast.worker.engine import WorkerEngine
from outlast.worker.lease_table import InMemoryLeaseTable

from .app_helpers import drain, live
from .companions import MONDAY, QUICK
from .timeouts import SOON

HOLDER = LeaseHolder(instance_id="worker-1", boot_id="boot-1")


class NoWaiting(asyncio.SelectorEventLoop):
    """An event loop in which nothing is waited for: its clock jumps to the next timer."""

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self.jumped = 0.0

    def time(self) -> float:
        return super().time() + self.jumped


class _Jumping(selectors.DefaultSelector):  # type: ignore[misc,valid-type]  # whichever it is here
    def __init__(self, loop: NoWaiting) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.jumped += timeout or 0.0
        return super().select(0)  # type: ignore[no-any-return]  # as its base


class Watched(ModelStore):
    """A store in memory that notes when it is asked for work."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock, ids_for_test(clock))
        self.looks: list[float] = []
        self.enough = asyncio.Event()

    async def claim(self, *args: Any, **kwargs: Any) -> list[Claim]:
        self.looks.append(asyncio.get_running_loop().time())
        if len(self.looks) == 10:
            self.enough.set()
        return await super().claim(*args, **kwargs)


def engine_of(companion: Companion) -> WorkerEngine:
    return companion.app._new_engine(
        InMemoryLeaseTable(),
        queues=None,
        types=None,
        concurrency=None,
        app_address="companion.service:app",
    )


async def look_ten_times(folder: Path, rules: Rules, clock: FakeClock) -> list[float]:
    """The seconds between ten looks of a worker that has nothing to do."""
    store = Watched(clock)
    companion = Companion(folder, store, rules=rules)
    await store.open()
    engine = engine_of(companion)
    engine.start(HOLDER)
    await store.enough.wait()
    await engine.stop(timedelta(0))
    engine.close()
    return [round(b - a, 1) for a, b in zip(store.looks, store.looks[1:], strict=False)][:9]


@pytest.mark.req("S2-6.d")
@pytest.mark.parametrize(("rules", "seconds"), [(Rules(), 30), (Rules(poll_seconds=45), 45)])
def test_it_looks_every_thirty_seconds_unless_set(
    tmp_path: Path, clock: FakeClock, rules: Rules, seconds: float
) -> None:
    with asyncio.Runner(loop_factory=NoWaiting) as runner:
        between = runner.run(look_ten_times(tmp_path, rules, clock))

    assert between == [seconds] * 9


@pytest.mark.req("S2-6.d")
async def test_between_two_looks_it_is_woken(tmp_path: Path) -> None:
    companion = Companion(tmp_path, rules=Rules(poll_seconds=600))
    async with companion.app, companion.app.worker() as worker:
        await worker.drained()
        handle = await companion.schedule_sync("ada")
        job = await handle.wait(SOON)  # shorter than a poll

    assert companion.app.settings.poll == timedelta(seconds=600)
    assert job.state == "succeeded"


@pytest.mark.req("S2-6.e")
@pytest.mark.parametrize(
    ("rules", "taken"), [(Rules(), [25, 5, 0]), (Rules(batch=12), [12, 12, 6])]
)
async def test_of_thirty_that_are_due_one_look_takes_a_batch(
    tmp_path: Path, store: SqliteStore, rules: Rules, taken: list[int]
) -> None:
    companion = Companion(tmp_path, store, rules=rules)
    for number in range(30):
        await companion.schedule_summary(f"u{number}", MONDAY)
    engine = engine_of(companion)
    engine.prepare(HOLDER)

    looks = [await engine.run_once() for _ in range(3)]

    await engine.stop(timedelta(0))
    engine.close()
    assert looks == taken


@pytest.mark.req("S2-6.e")
async def test_however_many_are_completed_the_first_look_takes_what_is_due(
    tmp_path: Path, store: SqliteStore, clock: FakeClock
) -> None:
    companion = Companion(tmp_path, store)
    for number in range(100):
        await companion.schedule_summary(f"u{number}", MONDAY, at=START)
    companion.world.memory.user = lambda user_id: None  # type: ignore[method-assign]  # nobody is known
    companion.world.memory.summary_sent_at = lambda *_: START  # type: ignore[method-assign]  # all were told
    await drain(companion.app)
    clock.advance("1h")
    due = await companion.schedule_summary("ada", MONDAY)
    engine = engine_of(companion)
    engine.prepare(HOLDER)

    first = await engine.run_once()

    await engine.stop(timedelta(0))
    engine.close()
    counts = await store.counts()
    assert first == 1
    assert (await due.read()).state == "succeeded"
    assert sum(counts.values()) == 101


@pytest.mark.req("S2-4.d")
@pytest.mark.parametrize(("rules", "seconds"), [(Rules(), 60), (Rules(base_delay_seconds=10), 10)])
async def test_the_first_delay_is_sixty_seconds_unless_set(
    tmp_path: Path, store: SqliteStore, clock: FakeClock, rules: Rules, seconds: int
) -> None:
    companion = Companion(tmp_path, store, rules=rules)
    handle = await companion.schedule_sync("zoe")
    delays = []

    for _ in range(4):
        await drain(companion.app)
        delays.append((await handle.read()).available_at - clock.now())
        clock.advance(delays[-1])
    await drain(companion.app)

    assert [delay.total_seconds() for delay in delays] == [seconds * 2**n for n in range(4)]
    job = await handle.read()
    assert (job.state, job.failures) == ("dead_letter", 5)


async def test_the_dead_letter_of_a_companion_is_kept(tmp_path: Path) -> None:
    companion = Companion(tmp_path, rules=QUICK)
    async with companion.app, companion.app.worker():
        handle = await companion.schedule_sync("zoe")
        await handle.wait(SOON)
    elsewhere = live(tmp_path / "jobs.db")

    async with elsewhere:
        gone = await elsewhere.store.prune(older_than=timedelta(0), limit=100)
        kept = await elsewhere.get(handle.id)
        runs = await elsewhere.runs(handle.id)

    assert (gone, kept.state) == (0, "dead_letter")
    assert len(runs) == 5
    assert all("user zoe is not in the directory" in (run.error or "") for run in runs)

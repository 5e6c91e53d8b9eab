"""S1 4.3: what a start, and every tick after it, makes of a reservation that was left."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from typing import Any, cast

import pytest

from chaos.ledger import Ledger
from chaos.worker_app import register as register_all
from chaos.worker_tree import WorkerTree, until, worker_trees
from outlast import JobNotSucceeded, Outlast, Queue, Settings, State
from outlast.core.event import CancelRequested, Failed
from outlast.core.ids import JobId
from outlast.core.job import Job
from outlast.core.reservation import Reservation
from outlast.core.run import LeaseHolder
from outlast.core.state import RunStatus
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SECOND,
    claim_order,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    take_many,
)
from outlast.testing.conformance.reservations import make_reservation, reserve
from outlast.worker.maintenance import reservation_monitor
from outlast.worker.maintenance.loop import Maintenance
from outlast.worker.maintenance.recovery import Recovery, RecoveryResult
from outlast.worker.maintenance.reservation_monitor import ReservationMonitor

from .app_helpers import drain
from .child_process import Child
from .database_file import Sql
from .direct import QUEUE, call, executed, register, s1, work
from .timeouts import PATIENCE, SOON

SPAN = timedelta(minutes=5)
NEXT_BOOT = LeaseHolder(instance_id="worker-1", boot_id="the-next-boot")
Grow = Callable[..., WorkerTree]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Grow]:
    with worker_trees(tmp_path) as grow:
        yield grow


async def start(store: SqliteStore) -> RecoveryResult:
    """What the next boot does before it takes anything."""
    return await Recovery(store, NEXT_BOOT, scope="instance", new_id=new_id).run_once()


async def left_by_the_living(store: SqliteStore, **over: Any) -> Reservation:
    """A reservation whose caller is there, and says nothing."""
    assert await store.acquire_lock("caller.alive") is not None
    new = make_reservation(caller="caller.alive", span=SPAN)
    reserved = await store.reserve(new, make_job(max_attempts=1, **over))
    assert reserved.reservation is not None
    return reserved.reservation


async def status(store: SqliteStore, held: Reservation) -> tuple[str, str | None]:
    found = await store.reservation(held.id)
    assert found is not None
    return str(found.status), found.reason


@pytest.mark.req("S1-4.1.e")
async def test_after_a_clean_stop_there_is_nothing_to_recover(
    path: Path, ledger: Path, sql: Sql
) -> None:
    async with await s1(path) as app:
        story = register(app, ledger)
        async with app.worker():
            await (await story.run_now("direct")).result(SOON)

    store = SqliteStore(path)
    await store.open()
    done = await start(store)
    await store.close()
    assert (done.actions, done.inspected) == (0, 0)
    assert sql.rows(QUEUE) == [("released", None)]
    assert sql.value("SELECT count(*) FROM outlast_open_runs") == 0


@pytest.mark.req("S1-4.3.a")
async def test_start_inspects_what_is_active_and_nothing_else(store: SqliteStore) -> None:
    released = await reserve(store)
    await settle(store, await job_of(store, released.job_id), CancelRequested())
    left = await left_by_the_living(store, queue="lane")

    done = await start(store)

    assert (done.inspected, done.actions) == (1, 0)
    assert await status(store, released) == ("released", None)
    assert await status(store, left) == ("active", None)


@pytest.mark.req("S1-4.3.b", "S1-4.3.e", "S1-4.5.e")
async def test_expired_one_is_set_to_expired_and_the_next_tick_dispatches_the_head(
    app: Outlast, store: SqliteStore, clock: FakeClock
) -> None:
    held = await left_by_the_living(store)

    @app.job
    def story() -> None: ...

    head = await story.enqueue()
    clock.advance(SPAN)

    before = await take_many(store, types=["story"])
    done = await start(store)
    await drain(app)

    assert (before, done.expired, done.actions) == ([], 1, 1)
    assert await status(store, held) == ("expired", "caller_silent")
    assert (await job_of(store, held.job_id)).state is State.CANCELLED
    assert (await head.read()).state is State.SUCCEEDED


@pytest.mark.req("S1-4.3.c", "S1-4.3.d", "S1-4.3.f")
async def test_not_expired_is_obeyed_and_logged_and_blocks_no_longer_than_it_said(
    store: SqliteStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    held = await left_by_the_living(store, type="unknown")
    head = await put(store)
    clock.advance(SECOND)
    tidy = Maintenance(store, new_id)

    done = await start(store)
    clock.advance(SPAN - SECOND - timedelta(microseconds=1))
    in_time = (await tidy.run_once()).reservations, await take_many(store)
    clock.advance(timedelta(microseconds=1))
    assert clock.now() == held.expires_at
    after = await tidy.run_once()

    assert (done.inspected, done.expired, in_time) == (1, 0, (0, []))
    assert after.reservations == 1
    assert await claim_order(store) == [head]
    reported = [r.getMessage() for r in caplog.records if "reservation inspected" in r.getMessage()]
    assert [f"reservation_id={held.id}" in line for line in reported] == [True, True]
    assert ["verdict=obeyed" in reported[0], "verdict=caller_silent" in reported[1]] == [True, True]


async def test_job_handed_back_outlives_its_reservation(
    store: SqliteStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller has had its answer: only the queue is let go, not the job."""
    await store.set_queue(Queue(name="default", concurrency=1))
    new = make_reservation(caller="caller.gone", span=SPAN)
    reserved = await store.reserve(new, make_job(max_attempts=3))
    [claim] = await take_many(store)
    await settle(store, claim, Failed("broke", HOUR))
    head = await put(store)
    clock.advance(SPAN)

    after = await Maintenance(store, new_id).run_once()

    assert after.reservations == 1
    assert "verdict=handed_back" in caplog.text
    assert reserved.reservation is not None
    assert await status(store, reserved.reservation) == ("expired", "handed_back")
    assert (await job_of(store, claim.id)).state is State.RETRY_WAIT
    assert [taken.id for taken in await take_many(store)] == [head]


async def test_lapsed_one_older_than_many_others_is_found(
    store: SqliteStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reservation_monitor, "MAX_BATCH", 2)
    oldest = await left_by_the_living(store)
    clock.advance(SPAN)
    for n in range(2):
        new = make_reservation(caller="caller.alive", span=SPAN)
        await store.reserve(new, make_job(queue=f"lane-{n}"))

    await Maintenance(store, new_id).run_once()

    assert await status(store, oldest) == ("expired", "caller_silent")


async def test_job_that_ends_between_two_reads_is_no_alarm(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    held = await left_by_the_living(store)

    class EndsMeanwhile:
        async def get(self, ids: list[JobId]) -> list[Job | None]:
            await settle(store, await job_of(store, held.job_id), CancelRequested())
            return await store.get(ids)

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    done = await ReservationMonitor(cast("Any", EndsMeanwhile()), new_id).run_once()

    assert (done.inspected, done.freed, done.expired) == (1, 0, 0)
    assert "reservation inspected" not in caplog.text
    assert await status(store, held) == ("released", None)


@pytest.mark.req("S1-4.3.c", "S1-4.3.d")
async def test_dead_owner_s_reservation_is_not_waited_for(
    store: SqliteStore, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    held, head = await reserve(store), await put(store)
    clock.advance(SECOND)  # its 5 minutes are far from over

    done = await start(store)

    assert (done.inspected, done.expired) == (1, 1)
    assert await status(store, held) == ("expired", "owner_dead")
    assert await claim_order(store) == [head]
    [line] = [r.getMessage() for r in caplog.records if "reservation inspected" in r.getMessage()]
    assert f"reservation_id={held.id}" in line
    assert "verdict=owner_dead" in line


@pytest.mark.req("S1-4.3.c")
async def test_living_owner_is_never_cut_off_while_it_renews(
    store: SqliteStore, clock: FakeClock
) -> None:
    held, tidy = await left_by_the_living(store), Maintenance(store, new_id)

    for _ in range(20):
        clock.advance(SPAN - SECOND)
        assert await store.extend_reservation(held.id, span=SPAN)
        assert (await tidy.run_once()).reservations == 0
        assert (await start(store)).actions == 0

    assert await status(store, held) == ("active", None)


@pytest.mark.req("S1-4.3.c")
async def test_running_direct_job_is_left_to_its_lease(
    store: SqliteStore, clock: FakeClock
) -> None:
    await s1_queue(store)
    held = await reserve(store)
    [claim] = await take_many(store, holder="worker-2", lease=HOUR)
    clock.advance(SPAN)  # nobody has renewed anything, but the run's lease is not over

    in_time = await Maintenance(store, new_id).run_once()
    clock.advance(HOUR)
    after = await Maintenance(store, new_id).run_once()

    assert (in_time.reservations, in_time.reclaimed, after.reclaimed) == (0, 0, 1)
    assert await status(store, held) == ("expired", "lease_expired")
    assert (await job_of(store, claim.id)).state is State.DEAD_LETTER


async def s1_queue(store: SqliteStore) -> None:
    await store.set_queue(Queue(name="default", concurrency=1))


@pytest.mark.req("S1-4.3.g")
def test_default_expiry_is_within_the_advised_bounds() -> None:
    assert 300 <= Settings().reservation.total_seconds() <= 600


@pytest.mark.req("S1-4.3.h", "S1-4.3.i")
async def test_caller_killed_before_the_start_may_call_again_and_it_runs_once(
    path: Path, ledger: Path, sql: Sql
) -> None:
    async with await s1(path) as app:
        story = register(app, ledger)
        with Child(call, path, ledger, "direct") as caller:
            await _held(app)
            caller.kill()
        async with app.worker():
            handle = await story.options(wait=SOON).run_now("direct")  # waits for the recovery
            assert await handle.result(SOON) == "direct"

    assert sql.rows(QUEUE) == [("expired", "owner_dead"), ("released", None)]
    assert len(sql.rows("SELECT DISTINCT id FROM outlast_reservations")) == 2
    assert executed(ledger) == ["direct"]


@pytest.mark.req("S1-4.3.i", "S1-4.3.e")
async def test_worker_killed_after_the_start_fails_the_attempt_and_the_caller_can_look(
    path: Path, ledger: Path, sql: Sql
) -> None:
    async with await s1(path) as app:
        story = register(app, ledger)
        with Child(work, path, ledger, True) as worker:
            assert worker.hear() == "ready"
            handle = await story.options(wait=SOON).run_now("direct")
            behind = await story.enqueue("behind")
            until(lambda: executed(ledger) == ["direct"], what="its execution")
            worker.kill()
        sql.expire_leases()
        async with app.worker():
            with pytest.raises(JobNotSucceeded) as reported:
                await handle.result(SOON)
            await behind.wait(SOON)
        again = await app.runs(handle.id)

    assert (reported.value.state, [run.status for run in again]) == (
        "dead_letter",
        [RunStatus.LOST],
    )
    assert sql.rows(QUEUE) == [("expired", "lease_expired")]
    assert executed(ledger) == ["direct", "behind"], "no automatic retry, and the queue goes on"


@pytest.mark.slow
@pytest.mark.req("S1-4.3.i", "S1-4.3.d")
@pytest.mark.parametrize("what", ["tree", "child"])
async def test_supervised_worker_killed_in_a_direct_run_frees_its_queue(
    grow: Grow, tmp_path: Path, sql: Sql, what: str
) -> None:
    book = Ledger(tmp_path)
    first = grow("--instance-id", "it").ready()
    app = register_all(Outlast(f"sqlite:///{book.path}"), book.notes)
    async with app:
        await app.queues.save("default", concurrency=1)
        handle = await app.registry.get("waits").run_now(gate="never")
        until(lambda: book.notes.of(handle.id), what="its run")
        _kill(first, what)
        if what == "tree":
            grow("--instance-id", "it").ready()
        job = await handle.wait(SOON)
        after = await app.registry.get("brief").enqueue(n=1, seconds=0)
        await after.wait(SOON)

    reason = "startup_recovery" if what == "tree" else "owner_dead"
    assert (job.state, job.reason) == (State.DEAD_LETTER, reason)
    assert sql.rows(QUEUE) == [("expired", reason)]


@pytest.mark.slow
@pytest.mark.req("S1-4.3.d", "S1-4.3.b")
async def test_supervised_worker_expires_what_a_killed_caller_left(
    grow: Grow, path: Path, ledger: Path, sql: Sql
) -> None:
    async with await s1(path) as app:
        with Child(call, path, ledger, "direct") as caller:
            held = await _held(app)
            caller.kill()
        tree = grow().ready()
        until(lambda: sql.rows(QUEUE) == [("expired", "owner_dead")], what="its end")

    assert tree.lines("reservation inspected", f"reservation_id={held.id}", "verdict=owner_dead")
    assert tree.lines("recovery finished", "inspected=1", "expired=1")
    assert locks(path) == [], "not even that of the dead is left"


async def test_callers_leave_no_lock_files(path: Path, ledger: Path) -> None:
    async with await s1(path) as app:
        register(app, ledger)
        async with app.worker():
            await (await app.registry.get("story").run_now("direct")).wait(SOON)
            assert len(locks(path)) == 1

    assert locks(path) == []


def locks(path: Path) -> list[str]:
    """The files of callers' locks beside that database."""
    return [file.name for file in path.parent.glob("jobs.db-locks/caller.*")]


def _kill(tree: WorkerTree, what: str) -> None:
    if what == "tree":
        tree.kill()
        return
    for pid in tree.children():
        os.kill(pid, SIGKILL)


async def _held(app: Outlast) -> Reservation:
    """The reservation of another process, once it is there."""
    async with asyncio.timeout(PATIENCE):
        while not (held := await app.store.reservations(active_only=True, limit=MANY)):  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.01)
    return held[0]


@pytest.fixture(autouse=True)
def loud(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="outlast.worker")

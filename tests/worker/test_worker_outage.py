"""The store goes away and comes back: workers wait, and finish what they have begun."""

import asyncio
import subprocess
from contextlib import suppress

import pytest
from worker_helpers import SOON, all_slots_work, locked, query, quick, shaky, statuses, until

from outlast import Backoff, Run, RunStatus, State
from outlast.errors import StoreBusy, StoreFull
from outlast.worker import finisher


@pytest.fixture
async def app(path):
    async with quick(path, busy=0.05) as app:
        yield app


async def test_ends_that_cannot_be_written_are_kept_and_written_later(app, path):
    started, release = asyncio.Event(), asyncio.Event()

    @app.job(retry=Backoff(3, base="1ms"))
    async def work(n: int) -> int:
        started.set()
        await release.wait()
        return n

    handles = await app.enqueue_many(work.bind(n) for n in range(2))
    async with app.worker(concurrency=2) as worker:
        await started.wait()
        with locked(path):
            release.set()
            await until(lambda: len(worker.unwritten) == 2)
            during = [(await handle.read()).state for handle in handles]
            unwritten = set(worker.unwritten)
        results = [await handle.result(SOON) for handle in handles]
        await worker.drained()

        assert worker.unwritten == []
        assert worker.refused == 0
    assert during == [State.RUNNING] * 2
    assert unwritten == {handle.id for handle in handles}
    assert results == [0, 1]
    assert [await statuses(app, handle) for handle in handles] == [[("succeeded", None)]] * 2


async def test_a_worker_that_cannot_claim_takes_up_the_work_afterwards(path):
    app, store = shaky(path, busy=0.05)

    @app.job
    async def work(n: int) -> int:
        return n

    async with app, app.worker() as worker:
        await worker.drained()
        with locked(path):
            with pytest.raises(StoreBusy, match="locked"):
                await work.enqueue(1)
            await until(lambda: store.errors["claim"] >= 2)
        handles = await app.enqueue_many(work.bind(n) for n in range(10))

        assert [await handle.result(SOON) for handle in handles] == list(range(10))
        assert await all_slots_work(app)


async def test_an_outage_longer_than_the_lease_loses_nothing(path):
    """Whichever is first afterwards, the renewal or the reclaim, the job ends exactly once."""
    async with quick(path, busy=0.05, renew="30ms") as app:
        starts, release = set(), asyncio.Event()

        @app.job(retry=Backoff(100, base="1ms"))
        async def work(run: Run, n: int) -> int:
            starts.add(n)
            await release.wait()
            return n

        handles = await app.enqueue_many(work.bind(n) for n in range(4))
        async with app.worker(concurrency=2) as one, app.worker(concurrency=2) as two:
            await until(lambda: len(starts) == 4)
            with locked(path) as other:
                release.set()
                await until(lambda: len(one.unwritten + two.unwritten) == 4)
                other.execute("UPDATE outlast_open_runs SET lease_until = 0")
                other.execute("COMMIT")
            results = [await handle.result(SOON) for handle in handles]
            await one.drained()
            await two.drained()
            refused = one.refused + two.refused

            assert one.unwritten + two.unwritten == []
        runs = [run for handle in handles for run in await statuses(app, handle)]
        assert len(runs) - len(handles) >= refused
    assert results == [0, 1, 2, 3]
    assert query(path, "SELECT count(*) FROM outlast_ends") == [(4,)]


async def test_work_goes_on_soon_after_the_stores_return_however_long_it_was_away(
    path, monkeypatch
):
    app, store = shaky(path)
    going, pauses, pause_after = False, [], finisher.pause_after

    def no_pause_after(failed: int) -> float:
        pauses.append(pause_after(failed))
        return 0.0

    monkeypatch.setattr(finisher, "pause_after", no_pause_after)

    @app.job
    async def work() -> int:
        nonlocal going
        if not going:
            going, store.broken = True, {"claim", "apply", "renew", "expired_leases"}
        return 1

    async with app, app.worker():
        handle = await work.enqueue()
        await until(lambda: store.failed["apply"] >= 100)
        store.broken = set()
        job = await handle.wait(SOON)

    assert job.state is State.SUCCEEDED
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[5], pauses[-1]) == (0.2, 1.0, 1.0)


async def test_a_run_whose_transaction_cannot_begin_is_released_and_spends_no_attempt(app, path):
    started, go = asyncio.Event(), asyncio.Event()

    @app.job(retry=Backoff(3, base="1ms"))
    async def work(run: Run) -> int:
        started.set()
        await go.wait()
        async with run.transaction():
            pass
        return run.attempt

    handle = await work.enqueue()
    async with app.worker() as worker:
        await started.wait()
        with locked(path):
            go.set()
            await until(lambda: worker.unwritten == [handle.id])
        result = await handle.result(SOON)

    runs = await app.runs(handle.id)
    assert result == 1, "its attempt"
    assert [run.status for run in runs] == [RunStatus.RELEASED, RunStatus.SUCCEEDED]


class Pages:
    """SQLite's own page limit on the writing connection: what a full disk looks like to it."""

    def __init__(self, folder):
        self.path = folder / "jobs.db"

    def fill(self, app):
        writing = app._store._open[0]._connection
        [pages] = writing.execute("PRAGMA page_count").fetchone()
        writing.execute(f"PRAGMA max_page_count = {pages}")

    def free(self, app):
        app._store._open[0]._connection.execute("PRAGMA max_page_count = 1000000")


class Ballast(Pages):
    """A file system of its own of one and a half megabytes, and a file that takes what is left."""

    def fill(self, app):
        with suppress(OSError), (self.path.parent / "ballast").open("wb") as ballast:
            while True:
                ballast.write(b"\0" * 1024)
                ballast.flush()

    def free(self, app):
        (self.path.parent / "ballast").unlink()


@pytest.fixture(params=[Pages, Ballast])
def disk(request, tmp_path):
    """A disk that can be full; where mounting is not allowed, the page limit stands in for it."""
    command = ["mount", "-t", "tmpfs", "-o", "size=1500k", "none", str(tmp_path)]
    small = (
        request.param is Ballast
        and not subprocess.run(command, check=False, capture_output=True).returncode
    )
    yield Ballast(tmp_path) if small else Pages(tmp_path)
    if small:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)  # noqa: S607


async def test_a_full_disk_holds_ends_back_until_there_is_room(disk):
    release = asyncio.Event()
    async with quick(disk.path, busy=0.05) as app:

        @app.job
        async def work(size: int) -> str:
            await release.wait()
            return "x" * size

        handle = await work.enqueue(200_000)
        async with app.worker() as worker:
            await until(lambda: app_has_open_run(disk.path))
            disk.fill(app)
            release.set()
            await until(lambda: worker.unwritten == [handle.id])
            with pytest.raises(StoreFull, match="nothing was written"):
                await app.enqueue_many([work.bind(10**n) for n in range(5)] * 400)
            stored = query(disk.path, "SELECT count(*) FROM outlast_jobs")
            disk.free(app)
            result = await handle.result(SOON)
            await worker.drained()

            assert worker.unwritten == []
            assert await all_slots_work(app)
    assert (len(result), stored) == (200_000, [(1,)])
    assert query(disk.path, "PRAGMA integrity_check") == [("ok",)]


def app_has_open_run(path):
    return query(path, "SELECT count(*) FROM outlast_open_runs") == [(1,)]

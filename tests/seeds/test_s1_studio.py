"""S1 in its own words and with its own settings: what `story_studio` shows of our records."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from chaos.worker_tree import PROGRAM, WorkerTree, until, worker_trees
from outlast import State
from outlast.core.ids import JobId
from outlast.core.run import Claim, LeaseHolder
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    SUCCEEDED,
    job_of,
    new_id,
    settle,
    take,
    take_many,
)
from outlast.worker.maintenance.history_inspector import HistoryInspector, HistoryRepairs
from story_studio import queries, words
from story_studio.studio import MAX_RETRIES, QUEUE, Studio
from story_studio.words import JobRow, JobRunRow, JobStatus
from support.crash.sqlite_recovery import close_unfollowed

from .app_helpers import drain
from .database_file import copy_of, names_in, opened

EXAMPLES = Path(words.__file__).parents[1]
FOUND_IN = os.pathsep.join([str(Path(outlast.__file__).parents[1]), str(EXAMPLES)])
TYPES = ("story", "research")
NEXT_BOOT = LeaseHolder(instance_id="worker-1", boot_id="the-next-boot")
GUARD = """
import os, sys

ASKS = {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"}

def guard(event, given):
    is_far = event in ASKS and not isinstance(given[1], (str, bytes, type(None)))
    if is_far or event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        with open(os.environ["ASKED"], "a") as told:
            told.write(f"{event} {given}\\n")

sys.addaudithook(guard)
"""
"""What every process of a test imports first: it tells of each that turns to the network."""


@pytest.fixture
async def studio(tmp_path: Path, store: SqliteStore) -> AsyncIterator[Studio]:
    """A studio whose jobs are in the test's own store."""
    studio = Studio(tmp_path)
    with studio.app.with_store(store):
        await studio.prepare()
        yield studio


@pytest.fixture
def grow(tmp_path: Path) -> Iterator[Callable[..., WorkerTree]]:
    """Starts `outlast worker` in the folder of the test, as the README says."""
    start = f"import os; os.chdir({str(tmp_path)!r}); {PROGRAM}"
    single = ("--topology", "single", "--scope", QUEUE)
    with worker_trees(tmp_path) as plant:
        yield lambda *options: plant(
            *single,
            *options,
            app="story_studio.studio:app",
            program=start,
            env={"PYTHONPATH": FOUND_IN},
        )


async def row_of(studio: Studio, job_id: str) -> JobRow:
    return words.job_row(await studio.app.get(job_id))


async def run_of(studio: Studio, job_id: str) -> JobRunRow:
    """The one run that a job of S1 can have."""
    [run] = await studio.app.runs(job_id)
    return words.run_row(run)


async def dispatch(store: SqliteStore, holder: str = "worker-1") -> Claim:
    return await take(store, queue=QUEUE, types=TYPES, holder=holder)


@pytest.mark.req("S1-2.1.g")
async def test_whatever_becomes_of_jobs_they_are_queued_running_or_cancelled(
    studio: Studio, store: SqliteStore
) -> None:
    done, broken, skipped = [
        (await studio.research.enqueue(topic)).id for topic in ("tides", "dragons", "tides")
    ]
    later = (await studio.story.options(delay="1h").enqueue("Later")).id
    unwanted = (await studio.story.enqueue("Unwanted")).id
    before = [row["status"] for row in await queries.jobs(studio)]

    running = await dispatch(store)
    during = await row_of(studio, running.id)
    await settle(store, running, SUCCEEDED)
    studio.notes("tides").parent.mkdir()
    studio.notes("tides").touch()
    await studio.app.cancel(unwanted)
    await drain(studio.app, queues=[QUEUE])

    after = {row["job_id"]: row["status"] for row in await queries.jobs(studio)}
    ours = {(await studio.app.get(job_id)).state for job_id in after}
    assert before == ["QUEUED"] * 5
    assert (running.id, during.status) == (done, "RUNNING")
    chain = [job.id for job in await store.chain(broken)]
    assert after == dict.fromkeys([done, skipped, *chain], "RUNNING") | {
        later: "QUEUED",
        unwanted: "CANCELLED",
    }
    assert ours == {
        State.SUCCEEDED,
        State.FAILED,
        State.DEAD_LETTER,
        State.SKIPPED,
        State.SCHEDULED,
        State.CANCELLED,
    }
    assert set(JobStatus) == {"QUEUED", "RUNNING", "CANCELLED"}


@pytest.mark.req("S1-2.1.r")
async def test_completion_sets_finished_at_and_nothing_else_of_the_job(
    studio: Studio, store: SqliteStore, clock: FakeClock
) -> None:
    await studio.story.enqueue("The Keeper's Lamp")
    claim = await dispatch(store)
    before = await row_of(studio, claim.id)
    clock.advance("3s")

    await settle(store, claim, SUCCEEDED)

    after, run = await row_of(studio, claim.id), await run_of(studio, claim.id)
    assert (before.status, before.finished_at) == ("RUNNING", None)
    assert after == replace(before, finished_at=clock.now())
    assert (run.status, run.finished_at) == ("COMPLETED", clock.now())


@pytest.mark.req("S1-2.1.r")
async def test_a_story_that_was_written_is_completed_in_its_run_alone(studio: Studio) -> None:
    handle = await studio.story.enqueue("The Keeper's Lamp")

    await drain(studio.app, queues=[QUEUE])

    job, run = await row_of(studio, handle.id), await run_of(studio, handle.id)
    assert (job.status, job.finished_at is None) == ("RUNNING", False)
    assert (run.status, run.exit_code, len(run.artifacts)) == ("COMPLETED", 0, 1)
    assert run.finished_at == job.finished_at


@pytest.mark.req("S1-2.2.m")
async def test_a_run_that_has_begun_has_no_status_yet(
    studio: Studio, store: SqliteStore, clock: FakeClock
) -> None:
    handle = await studio.story.enqueue("The Keeper's Lamp", pages=2)
    clock.advance("3s")

    await dispatch(store)

    run = await run_of(studio, handle.id)
    assert (run.status, run.finished_at, run.error, run.exit_code) == (None, None, None, None)
    assert run.started_at == clock.now()
    assert run.params_snapshot == {"title": "The Keeper's Lamp", "pages": 2}


@pytest.mark.slow
@pytest.mark.req("S1-4.2.e")
async def test_a_story_whose_worker_was_killed_is_failed_by_crash_recovery_and_retried(
    tmp_path: Path, grow: Callable[..., WorkerTree]
) -> None:
    studio = Studio(tmp_path)
    notes = studio.notes("herons")
    notes.parent.mkdir()
    os.mkfifo(notes)  # whoever reads these notes waits until somebody writes them
    async with studio.app:
        await studio.prepare()
        handle = await studio.story.enqueue("The Patient One", topic="herons")
        worker = grow()
        pen = until(lambda: pen_at(notes), what="a writer at the notes")
        before = await run_of(studio, handle.id)

        worker.kill()
        os.close(pen)
        notes.unlink()
        notes.write_text("A heron waits.\n")
        code = grow("--burst").wait()

        [first, second] = (await studio.app.lineage(handle.id)).jobs
        crashed, retried = await run_of(studio, first.id), await run_of(studio, second.id)
    assert (code, before.status) == (0, None)
    assert (crashed.status, crashed.error) == ("FAILED", "Scheduler crash recovery")
    assert (crashed.run_id, crashed.exit_code) == (before.run_id, None)
    assert words.job_row(first).finished_at == crashed.finished_at
    assert words.job_row(second).retry_of == handle.id
    assert (retried.status, retried.error) == ("COMPLETED", None)
    assert names_in(tmp_path / "stories") == [f"{second.id}.txt"]


def pen_at(fifo: Path) -> int | None:
    """The other end of what somebody reads; while it is open they wait for more."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # nobody reads it yet
        return None


@pytest.mark.req("S1-4.4.e")
async def test_a_chain_that_has_used_its_retries_has_failed_permanently(studio: Studio) -> None:
    handle = await studio.story.enqueue("The Unknown Dragon", topic="dragons")
    await studio.research.enqueue("tides")

    await drain(studio.app, queues=[QUEUE])

    lineage = await studio.app.lineage(handle.id)
    marks = [words.job_row(job).permanently_failed for job in lineage.jobs]
    found = await queries.permanently_failed(studio)
    assert marks == [False] * MAX_RETRIES + [True]
    assert [row["job_id"] for row in found] == [lineage.tip.id]
    assert {(await run_of(studio, job.id)).status for job in lineage.jobs} == {"FAILED"}


@pytest.mark.req("S1-4.4.e")
async def test_a_start_marks_what_failed_for_good_before_a_crash(
    studio: Studio, store: SqliteStore
) -> None:
    handle = await studio.story.enqueue("The Unknown Dragon", topic="dragons")
    for _ in range(MAX_RETRIES):
        await settle(store, await dispatch(store), FAILED)
    last = await dispatch(store)
    await close_unfollowed(store, last)  # as where the verdict would be another write
    before = await queries.permanently_failed(studio)

    done = await HistoryInspector(store, new_id).inspect_if_due()  # by the worker's maintenance

    found = await queries.permanently_failed(studio)
    assert (before, done) == ([], HistoryRepairs(given_up=1))
    assert [row["job_id"] for row in found] == [last.id]
    assert len(await store.chain(handle.id)) == 1 + MAX_RETRIES


@pytest.mark.req("S1-6.1.y")
async def test_the_words_have_a_worker_id_that_may_be_null(
    studio: Studio, store: SqliteStore
) -> None:
    [field] = [field for field in fields(JobRow) if field.name == "worker_id"]
    handle = await studio.story.enqueue("The Keeper's Lamp")

    before = await row_of(studio, handle.id)
    claim = await dispatch(store, "studio-7")
    during = await row_of(studio, handle.id)
    await settle(store, claim, SUCCEEDED)
    after = await row_of(studio, handle.id)

    assert field.type == str | None
    assert [row.worker_id for row in (before, during, after)] == [None, "studio-7", "studio-7"]


@pytest.mark.req("S1-6.1.y")
async def test_no_worker_id_changes_what_is_dispatched_to_whom(
    studio: Studio, store: SqliteStore, tmp_path: Path
) -> None:
    """The last in the queue is a retry of what worker-1 failed; the others are nobody's."""
    for number in range(4):
        await studio.story.enqueue(f"Story {number}")
    await settle(store, await dispatch(store, "worker-1"), FAILED)
    expected = [row["job_id"] for row in await queries.order(studio)]

    taken = {}
    for name in ("worker-1", "worker-2", "studio-7"):
        copy = await opened(copy_of(store.path, tmp_path / f"{name}.db"))
        taken[name] = [await take_and_end(copy, name) for _ in expected]
        await copy.close()

    assert len(expected) == 4
    assert taken == dict.fromkeys(taken, expected)


async def take_and_end(store: SqliteStore, holder: str) -> str:
    claim = await dispatch(store, holder)
    assert (await job_of(store, claim.id)).holder == holder
    await settle(store, claim, SUCCEEDED)
    return claim.id


@pytest.fixture
def guarded(tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], list[str]]]:
    """Runs Python, and tells how it went and which of its processes asked the network."""
    asked, site = tmp_path / "asked", tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(GUARD)
    asked.touch()
    path = os.pathsep.join([str(site), FOUND_IN])

    def run(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "ASKED": str(asked)},
            capture_output=True,
            text=True,
            timeout=250,
            check=False,
        )
        return done, asked.read_text().splitlines()

    return run


@pytest.mark.req("S1-6.2.x")
def test_one_file_is_enough_and_no_service_of_any_network_is_asked(
    guarded: Callable[..., Any], tmp_path: Path
) -> None:
    done, asked = guarded("-m", "story_studio.run", "here")

    assert (done.returncode, asked) == (0, [])
    assert names_in(tmp_path / "here") == [
        "logs",
        "notes",
        "stories",
        "studio.db",
        "studio.db-locks",
        "studio.log",
    ]


@pytest.mark.req("S1-6.2.x")
def test_the_guard_would_tell(guarded: Callable[..., Any]) -> None:
    code = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {json.dumps(code)}])"

    done, asked = guarded("-c", nested)

    assert (done.returncode, len(asked)) == (0, 1)


@pytest.mark.req("S1-2.4.c")
async def test_a_job_of_the_studio_that_always_fails_ends_with_the_fourth(
    studio: Studio, store: SqliteStore
) -> None:
    handle = await studio.story.enqueue("The Unknown Dragon")

    for _ in range(6):
        for claim in await take_many(store, queue=QUEUE, types=TYPES):
            await settle(store, claim, FAILED)

    chain = await store.chain(JobId(handle.id))
    assert [job.state for job in chain] == [State.FAILED] * MAX_RETRIES + [State.DEAD_LETTER]
    assert len(chain) == 4


@pytest.mark.req("S1-6.1.x")
async def test_the_studio_never_has_two_open_runs(studio: Studio, store: SqliteStore) -> None:
    for topic in ("tides", "herons", "lamps", "boats", "maps"):
        await studio.research.enqueue(topic)
    taken = []

    for holder in ("worker-1", "worker-2") * 5:
        claims = await take_many(store, queue=QUEUE, types=TYPES, holder=holder)
        assert len(claims) == 1
        assert await take_many(store, queue=QUEUE, types=TYPES, holder="worker-3") == []
        taken += [claim.id for claim in claims]
        await settle(store, claims[0], SUCCEEDED)
        if len(taken) == 5:
            break

    assert len(set(taken)) == 5


@pytest.mark.req("S1-4.3.g")
def test_the_studio_s_reservations_last_five_to_ten_minutes(studio: Studio) -> None:
    assert timedelta(minutes=5) <= studio.app.settings.reservation <= timedelta(minutes=10)

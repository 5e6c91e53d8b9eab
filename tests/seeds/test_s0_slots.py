"""S0: at most one execution claim for each slot, whoever asks and however many at once."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier

import pytest

from outlast import DuplicateJob, Outlast

from .app_helpers import live
from .child_process import race
from .database_file import Sql, opened
from .store_programs import claim_slots, run_slots

SLOT = datetime(2026, 1, 5, 9, tzinfo=UTC)
THREADS = 8
PROCESSES = 50
SLOTS = 20


@pytest.mark.req("S0-3.b")
def test_of_many_threads_one_claims_a_slot_and_the_others_hear_who_has_it(
    path: Path, sql: Sql
) -> None:
    together = Barrier(THREADS)

    async def trigger(app: Outlast) -> str:
        @app.job(delivery="once")
        def rss_ingestion() -> None: ...

        async with app:
            together.wait()
            try:
                job = await rss_ingestion.options(slot=SLOT, on_conflict="reject").enqueue()
            except DuplicateJob as taken:
                return f"already claimed: {taken.existing}"
        return job.id

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda _: asyncio.run(trigger(live(path))), range(THREADS)))

    [winner] = [answer for answer in answers if not answer.startswith("already")]
    assert answers.count(f"already claimed: {winner}") == THREADS - 1
    assert sql.rows("SELECT id FROM outlast_jobs") == [(winner,)]
    assert sql.rows("SELECT series, job_id FROM outlast_slots") == [("rss_ingestion", winner)]


@pytest.mark.slow
@pytest.mark.req("S0-6.h")
async def test_fifty_processes_race_over_twenty_slots_and_each_slot_runs_once(
    path: Path, sql: Sql
) -> None:
    store = await opened(path)

    reported = race(claim_slots, PROCESSES, path, SLOTS)
    left = await run_slots(store, "the last one")
    await store.close()

    executed = [job_id for done in [*reported, left] for job_id in done]
    slots = dict(sql.rows("SELECT job_id, slot_at FROM outlast_slots"))
    assert len(executed) == SLOTS
    assert len({slots[job_id] for job_id in executed}) == SLOTS
    assert sql.value("SELECT count(*) FROM outlast_runs") == SLOTS
    assert sql.value("SELECT count(*) FROM outlast_jobs") == SLOTS

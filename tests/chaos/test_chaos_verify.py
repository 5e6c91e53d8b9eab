"""A store that is worked on, killed under and pruned is proved sound at every moment."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from outlast.core.audit.violation import Violation
from outlast.store.sqlite.store import SqliteStore
from outlast.testing.conformance import sizes
from outlast.verify import Report, verify

from .kill_storm import storm
from .ledger import Ledger
from .worker_tree import until

pytestmark = pytest.mark.slow

SMALL = 5
"""A page, so that a proof takes many and much happens between them."""

KILLS = 3
PROOFS = 4
"""From one kill to the next, at least."""


async def _prove_until(over: Event, path: Path, reports: list[Report]) -> None:
    store = SqliteStore(path)
    await store.open()
    try:
        while not over.is_set():
            reports.append(await verify(store, page=SMALL))
            await store.prune(older_than=timedelta(seconds=1), limit=10)
        reports.append(await verify(store))
    finally:
        await store.close()


@pytest.mark.timeout(300)
def test_in_a_storm_of_kills_every_proof_finds_nothing(tmp_path):
    Ledger(tmp_path).make_effects()
    over, reports = Event(), []

    def wait_for_proofs(_: str) -> None:
        wanted = len(reports) + PROOFS
        until(lambda: len(reports) >= wanted or proving.done(), what="proofs")

    with ThreadPoolExecutor(1) as apart:
        proving = apart.submit(asyncio.run, _prove_until(over, tmp_path / "jobs.db", reports))
        try:
            storm(tmp_path, jobs=sizes.SIZES.chaos_jobs // 8, kills=KILLS, tell=wait_for_proofs)
        finally:
            over.set()
        proving.result()

    found: list[Violation] = [each for report in reports for each in report.violations]
    assert found == []
    assert len(reports) > KILLS * PROOFS
    assert sum(report.events for report in reports) > 0
    assert max(report.jobs for report in reports) > SMALL

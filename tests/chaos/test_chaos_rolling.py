"""A rolling deploy: workers of the old and the new code serve one queue, and nothing is lost."""

import asyncio
from collections import Counter
from pathlib import Path
from signal import SIGTERM

import pytest

from outlast import Handle, Job, State
from outlast.core.run import RunRecord
from outlast.verify import verify

from .rolling_app import versions
from .worker_tree import until

pytestmark = pytest.mark.slow

EACH = 5


async def enqueue(url: str) -> list[str]:
    """Jobs of both deliveries, with the new param and without it."""
    _, app = versions(url)
    send, story = app.registry.get("send"), app.registry.get("story")
    handles: list[Handle[str]] = []
    async with app:
        for n in range(EACH):
            handles += [await kind.enqueue(n=n, day="monday") for kind in (send, story)]
            handles += [await kind.enqueue(n=n) for kind in (send, story)]
    return [handle.id for handle in handles]


async def chains(url: str, ids: list[str]) -> list[list[tuple[Job, list[RunRecord]]]]:
    """The chain of each job, with the runs of each of its jobs."""
    app, _ = versions(url)
    async with app:
        store = app.store
        found = [await store.chain(job_id) for job_id in ids]
        return [[(job, await store.runs(job.id)) for job in chain] for chain in found]


async def violations(url: str) -> object:
    app, _ = versions(url)
    async with app:
        return (await verify(app.store)).violations


@pytest.mark.timeout(300)
def test_a_rolling_deploy_that_adds_a_param_loses_no_job(grow, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = "chaos.rolling_app"
    old = grow("--instance-id", "old", app=f"{app}:old").ready()
    ids = asyncio.run(enqueue(url))

    def refused() -> list[object]:
        found = asyncio.run(chains(url, ids))
        return [
            chain
            for chain in found
            if any(runs and runs[0].reason == "unfit_params" for _, runs in chain)
        ]

    until(lambda: len(refused()) == 2 * EACH, what="a refusal of each job with the new param")
    grow("--instance-id", "new", app=f"{app}:new").ready()
    old.signal(SIGTERM)
    assert old.wait() == 0
    until(
        lambda: all(chain[-1][0].is_final for chain in asyncio.run(chains(url, ids))),
        what="the end of every job",
    )

    ended = asyncio.run(chains(url, ids))
    assert {chain[-1][0].state for chain in ended} == {State.SUCCEEDED}
    jobs = [job for chain in ended for job, _ in chain]
    runs = [run for chain in ended for _, runs in chain for run in runs]
    assert {job.failures for job in jobs} == {0}
    assert all(len(own) == 1 for chain in ended for job, own in chain if job.delivery == "linked")
    assert {run.holder for run in runs if run.reason == "unfit_params"} == {"old"}
    results = Counter(run.result for run in runs if run.status == "succeeded")
    assert sum(results.values()) == 4 * EACH
    assert all(results[f'"new {n} monday"'] == 2 for n in range(EACH))
    assert asyncio.run(violations(url)) == ()

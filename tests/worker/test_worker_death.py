"""Workers that die or freeze for real, in processes of their own."""

import pytest
from worker_helpers import (
    SOON,
    Child,
    effects,
    expire_leases,
    kinds,
    make_effects,
    query,
    statuses,
    until,
)

from outlast import Backoff, Run, State

LEASE = {"lease": "10m", "renew": "50ms"}
"""The other process loses no job before it is killed; then the test ends its leases."""


@pytest.mark.slow
async def test_the_jobs_of_a_killed_worker_go_on_as_their_delivery_says(app, slot, path):
    taken = []

    async def takes_over(run: Run) -> str:
        taken.append((run.type, run.token, run.attempt))
        return "taken over"

    leased = app.job(name="leased", retry=Backoff(3))(takes_over)
    chained = app.job(name="chained", delivery="linked", retry=Backoff(3))(takes_over)
    once = app.job(name="once", delivery="once")(takes_over)
    handles = [await each.options(slot=slot).enqueue() for each in (leased, chained, once)]
    async with await Child.start(path, "holding", concurrency=3, **LEASE) as child:
        for _ in handles:
            await child.says("holding")
        async with app.worker():
            await child.kill()
            expire_leases(path)
            ends = [await handle.wait(SOON) for handle in handles]

    assert [job.state for job in ends] == [State.SUCCEEDED, State.SUCCEEDED, State.FAILED]
    assert sorted(taken) == [("chained", 1, 2), ("leased", 2, 2)]
    assert await statuses(app, handles[0]) == [("lost", "lease_expired"), ("succeeded", None)]
    assert await statuses(app, handles[1]) == [("lost", "lease_expired")]
    assert await statuses(app, handles[2]) == [("lost", "lease_expired")]
    assert (ends[1].retry_of, ends[2].reason) == (handles[1].id, "lease_expired")


@pytest.mark.slow
async def test_a_thawed_worker_cannot_overwrite_its_successor(app, path):
    @app.job(retry=Backoff(3))
    async def leased(run: Run) -> str:
        return f"from token {run.token}"

    handle = await leased.enqueue()
    async with await Child.start(path, "frozen", **LEASE) as child:
        await child.says("holding")
        await child.freeze(path)
        expire_leases(path)
        async with app.worker():
            result = await handle.result(SOON)
            before = await handle.read()
            child.tell("go on")
            child.thaw()
            refused = await child.says("refused")
            after = await handle.read()

    assert (result, refused) == ("from token 2", "refused 1")
    assert before == after
    assert await handle.result() == "from token 2"
    assert "late_write_refused" in await kinds(app, handle)


@pytest.mark.slow
async def test_a_handler_that_blocks_its_event_loop_keeps_its_lease(app, path):
    """The other process renews from its thread while its loop stands still."""
    ends = set()

    @app.job(retry=Backoff(3))
    async def leased(run: Run, blocks: bool) -> int:
        return -run.token

    def is_renewed() -> bool:
        ends.update(query(path, "SELECT lease_until FROM outlast_open_runs"))
        return len(ends) > 5

    handle = await leased.enqueue(True)
    async with await Child.start(path, "blocking", renew="50ms") as child:
        await child.says("holding")
        async with app.worker():
            await until(is_renewed)
            child.tell("go on")
            result = await handle.result(SOON)

            assert await (await leased.enqueue(False)).result(SOON) in {1, -1}
    assert result == 1
    assert await statuses(app, handle) == [("succeeded", None)]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["effect_inside", "effect_after"])
async def test_an_effect_is_there_exactly_once_wherever_its_worker_is_killed(app, path, where):
    @app.job(retry=Backoff(3, base="1ms"))
    async def effect(run: Run) -> None:
        async with run.transaction() as conn:
            conn.execute("INSERT INTO effects VALUES ('parent', ?)", (run.token,))

    handle = await effect.enqueue()
    make_effects(path)
    async with await Child.start(path, where, **LEASE) as child:
        await child.says("holding")
        await child.kill()
        nothing = effects(path)
        expire_leases(path)
        async with app.worker():
            job = await handle.wait(SOON)

    assert nothing == []
    assert query(path, "SELECT what, token FROM effects") == [("parent", 2)]
    assert (job.state, job.failures) == (State.SUCCEEDED, 1)
    assert query(path, "PRAGMA integrity_check") == [("ok",)]

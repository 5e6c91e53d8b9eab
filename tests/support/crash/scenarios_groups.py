"""One small world and one act for every writing verb of groups, to be killed half-way."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from outlast.core.decide import decide
from outlast.core.event import Failed, GroupStopped, Skipped, Succeeded
from outlast.core.group import GroupMode, NewGroup, OnMemberFailure
from outlast.core.ids import JobId
from outlast.core.job import Job, NewJob
from outlast.core.run import Claim
from outlast.store.contract.jobs import Filter
from support.crash.world import LINKED, SECOND, Scenario, World, nothing

ZERO = timedelta(0)
SEQUENTIAL = {"mode": GroupMode.SEQUENTIAL}
STOP = {"on_failure": OnMemberFailure.STOP}


async def _filling(w: World, **over: Any) -> str:
    """A group whose three members are stored, but which is not sealed."""
    group_id = w.new_id()
    await w.store.add_group(NewGroup(**{"id": group_id, "total": 3, **over}))
    await w.store.add(_members(w, group_id))
    return group_id


def _members(w: World, group_id: JobId) -> list[NewJob]:
    jobs = [w.job(**LINKED), w.job(active_key="key"), w.job()]
    return [replace(job, group_id=group_id, member=True) for job in jobs]


async def _started(w: World, **over: Any) -> list[Claim]:
    """What runs of a sealed group."""
    await w.store.seal_group(await _filling(w, **over))
    return await w.claim()


async def _sequential(w: World) -> str:
    return await _filling(w, **SEQUENTIAL)


async def _first_of_three(w: World) -> list[Claim]:
    return await _started(w, **SEQUENTIAL, **STOP)


async def _all_three(w: World) -> list[Claim]:
    return await _started(w, **STOP)


async def _stopped(w: World) -> list[Job]:
    """One member runs, two wait; the group is stopped and not yet closed."""
    group_id = await _filling(w)
    await w.store.seal_group(group_id)
    await w.claim(limit=1)
    await w.store.stop_group(group_id, reason="enough")
    return await w.store.remaining_members(group_id, limit=10)


async def _emptied(w: World) -> None:
    """Two groups that close: one never had a member, those of the other have ended."""
    await w.store.add_group(NewGroup(id=w.new_id(), total=1))
    for job in await _stopped(w):
        await w.settle(job, GroupStopped())
        if job.token:
            await w.settle(job, Failed("told to stop"))
    w.clock.advance(SECOND)
    await w.store.expire_groups(older_than=ZERO, limit=10)


async def _old(w: World) -> None:
    """A group that has ended, and one that never began, both swept."""
    await _emptied(w)
    await w.store.mark_groups_closed(limit=10)
    w.clock.advance(SECOND)


async def _add_group(w: World, _: None) -> None:
    await w.store.add_group(NewGroup(id=w.new_id(), total=3, name="nightly"))


async def _empty(w: World) -> JobId:
    group_id = w.new_id()
    await w.store.add_group(NewGroup(id=group_id, total=3))
    return group_id


async def _add_members(w: World, group_id: JobId) -> None:
    plain = [w.job(group_id=group_id, member=True) for _ in range(2)]
    await w.store.add([*_members(w, group_id), *plain])


async def _add_member_too_late(w: World, group_id: JobId) -> None:
    await w.store.add([w.job(), w.job(group_id=group_id, member=True), w.job()])


async def _sealed(w: World) -> str:
    group_id = await _filling(w)
    await w.store.seal_group(group_id)
    return group_id


async def _seal(w: World, group_id: str) -> None:
    await w.store.seal_group(group_id)


async def _stop(w: World, group_id: str) -> None:
    await w.store.stop_group(group_id, reason="enough")


async def _expire(w: World, _: str) -> None:
    w.clock.advance(SECOND)
    await w.store.expire_groups(older_than=ZERO, limit=10)


async def _succeed(w: World, claims: list[Claim]) -> None:
    await w.store.apply([decide(c, Succeeded("1"), new_id=w.new_id) for c in claims])


async def _skip(w: World, claims: list[Claim]) -> None:
    await w.store.apply([decide(c, Skipped(), new_id=w.new_id) for c in claims])


async def _fail(w: World, claims: list[Claim]) -> None:
    broke = Failed("broke", permanent=True)
    await w.store.apply([decide(c, broke, new_id=w.new_id) for c in claims])


async def _chain(w: World, claims: list[Claim]) -> None:
    await w.settle(claims[0], Failed("broke"))


async def _sweep_members(w: World, left: list[Job]) -> None:
    await w.store.apply([decide(job, GroupStopped(), new_id=w.new_id) for job in left])


async def _sweep_groups(w: World, _: None) -> None:
    await w.store.mark_groups_closed(limit=10)


async def _prune(w: World, _: None) -> None:
    await w.store.prune(older_than=ZERO, limit=10)


async def _read(w: World, group_id: str) -> None:
    """No write at all."""
    await w.store.group(group_id)
    await w.store.find_groups(limit=10)
    await w.store.groups_finished([group_id])
    await w.store.closing_groups(limit=10)
    await w.store.remaining_members(group_id, limit=10)
    for job in await w.store.find(Filter(group=group_id), limit=10):
        await w.store.wait_facts(job.id)
    await w.store.mark_groups_closed(limit=10)
    await w.store.expire_groups(older_than=SECOND, limit=10)


GROUP_SCENARIOS: dict[str, Scenario] = {
    "group_add": Scenario(nothing, _add_group),
    "group_members": Scenario(_empty, _add_members),
    "group_member_too_late": Scenario(_sealed, _add_member_too_late),
    "group_seal": Scenario(_filling, _seal),
    "group_seal_sequential": Scenario(_sequential, _seal),
    "group_stop": Scenario(_sealed, _stop),
    "group_stop_filling": Scenario(_filling, _stop),
    "group_expire": Scenario(_filling, _expire),
    "group_next_after_success": Scenario(_first_of_three, _succeed),
    "group_next_after_skip": Scenario(_first_of_three, _skip),
    "group_next_link": Scenario(_first_of_three, _chain),
    "group_close": Scenario(_first_of_three, _fail),
    "group_close_by_several": Scenario(_all_three, _fail),
    "group_members_succeed": Scenario(_all_three, _succeed),
    "group_sweep_members": Scenario(_stopped, _sweep_members),
    "group_sweep": Scenario(_emptied, _sweep_groups),
    "group_prune": Scenario(_old, _prune),
    "group_read": Scenario(_sealed, _read),
    "group_read_filling": Scenario(_filling, _read),
}

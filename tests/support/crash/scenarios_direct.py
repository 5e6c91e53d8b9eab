"""One small world and one act for every writing verb of direct runs, to be killed half-way."""

from datetime import timedelta
from typing import Any

from outlast.core.event import Abandoned, Abandonment, Lost, Succeeded
from outlast.core.job import Job
from outlast.core.ordering import Ordering
from outlast.core.reservation import NewReservation, Reservation, ReservationId
from outlast.core.run import Claim
from outlast.core.state import Loss
from outlast.store.contract.queues import Queue
from support.crash.world import LEASE, SECOND, Scenario, World, register_in

DIRECT: dict[str, Scenario] = {}
"""To be played as part of `SCENARIOS`."""

scenario = register_in(DIRECT)


async def reserving(w: World, **over: Any) -> Reservation:
    """A direct job before the others that wait, and the queue held for it."""
    number = ReservationId(w.new_id())
    new = NewReservation(id=number, caller="caller.1", request="req-7", span=LEASE)
    reserved = await w.store.reserve(new, w.job(**{"max_attempts": 1, **over}))
    assert reserved.reservation is not None
    return reserved.reservation


async def _one_waits(w: World) -> None:
    await w.store.set_queue(Queue(name="default", ordering=Ordering.POSITION, concurrency=1))
    await w.add()


async def _reserved(w: World) -> Reservation:
    await _one_waits(w)
    return await reserving(w)


async def _reserved_without_limit(w: World) -> Reservation:
    await w.add()
    return await reserving(w)


async def _direct_runs(w: World) -> Claim:
    await _reserved(w)
    [claim] = await w.claim()
    return claim


@scenario(_one_waits)
async def reserve(w: World, _: None) -> None:
    await reserving(w)


@scenario(_reserved)
async def reserve_in_vain(w: World, _: Reservation) -> None:
    await reserving(w)


@scenario(_reserved)
async def keep(w: World, held: Reservation) -> None:
    assert await w.store.extend_reservation(held.id, span=2 * LEASE)


@scenario(_reserved)
async def claim_direct(w: World, held: Reservation) -> None:
    assert [claim.id for claim in await w.claim()] == [held.job_id]


@scenario(_reserved_without_limit)
async def claim_direct_without_limit(w: World, held: Reservation) -> None:
    assert [claim.id for claim in await w.claim()] == [held.job_id]


@scenario(_direct_runs)
async def renew_direct(w: World, claim: Claim) -> None:
    w.clock.advance(SECOND)
    await w.store.renew([claim.lease], span=LEASE)


@scenario(_direct_runs)
async def succeed_direct(w: World, claim: Claim) -> None:
    assert await w.settle(claim, Succeeded("1"))


@scenario(_direct_runs)
async def lose_direct(w: World, claim: Claim) -> None:
    assert await w.settle(claim, Lost(Loss.OWNER_DEAD))


async def _silent(w: World) -> Job:
    held = await _reserved(w)
    w.clock.advance(LEASE)
    return await w.get(held.job_id)


@scenario(_silent)
async def abandon_silent(w: World, job: Job) -> None:
    assert await w.settle(job, Abandoned(Abandonment.CALLER_SILENT))


@scenario(_silent)
async def abandon_dead(w: World, job: Job) -> None:
    assert await w.settle(job, Abandoned(Abandonment.OWNER_DEAD))


async def _direct_ended(w: World) -> None:
    await w.settle(await _direct_runs(w), Succeeded("1"))
    w.clock.advance(SECOND)


@scenario(_direct_ended)
async def prune_direct(w: World, _: None) -> None:
    await w.store.prune(older_than=timedelta(0), limit=10)

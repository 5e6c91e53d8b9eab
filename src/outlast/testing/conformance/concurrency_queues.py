"""Capability SHARED: processes race for queues. Takes a fixture `url`."""

from functools import partial

from outlast.core.event import CancelRequested
from outlast.core.job import NewJob
from outlast.core.reservation import ReservationId
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.contract.reservations import Reserved
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    MANY,
    SUCCEEDED,
    job_of,
    make_job,
    new_id,
    settle,
    take_many,
)
from outlast.testing.conformance.race_runner import Act, opened, race
from outlast.testing.conformance.reservations import make_reservation

CALLERS = 20
"""Not a matter of sizes: that many are promised."""


async def work_through(store: Store, *, holder: str, queue: str) -> int:
    """Claim and end until nothing is left to take; the most open runs ever seen in that queue.

    They are counted at one moment: a list of jobs may hold one that has ended meanwhile, and
    the one that took its place.
    """
    most = 0
    while claims := await take_many(store, limit=3, holder=holder, queue=queue):
        most = max(most, (await store.counts()).get((queue, State.RUNNING), 0))
        for claim in claims:
            await settle(store, claim, SUCCEEDED)
    return most


async def reserve_one(store: Store, *, number: str, job: NewJob) -> Reserved:
    return await store.reserve(make_reservation(id=ReservationId(number)), job)


async def claim_once(store: Store, *, holder: str, queue: str) -> int:
    return len(await take_many(store, holder=holder, queue=queue))


async def test_limit_is_never_exceeded_by_processes_that_claim_at_once(url: str) -> None:
    size = sizes.SIZES
    names = [f"round-{n}" for n in range(size.race_rounds)]
    async with opened(url) as store:
        for name in names:
            await store.set_queue(Queue(name=name, concurrency=2))
            await store.add([make_job(queue=name) for _ in range(10)])

    runners: list[list[Act[int]]] = [
        [partial(claim_once, holder=f"worker-{n}", queue=name) for name in names]
        for n in range(size.race_processes)
    ]
    taken = await race(url, runners)

    assert [sum(counts) for counts in zip(*taken, strict=True)] == [2] * len(names)


async def test_limit_holds_while_processes_work_through_a_queue(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        await store.set_queue(Queue(name="lane", concurrency=2))
        await store.add([make_job(queue="lane") for _ in range(size.race_jobs // 2)])

    runners: list[list[Act[int]]] = [
        [partial(work_through, holder=f"worker-{n}", queue="lane")]
        for n in range(size.race_processes)
    ]
    seen = await race(url, runners)

    assert max(most for [most] in seen) in {1, 2}


async def test_one_queue_is_held_once_by_processes_that_ask_at_once(url: str) -> None:
    rounds = [f"round-{n}" for n in range(3)]
    runners: list[list[Act[Reserved]]] = [
        [partial(reserve_one, number=new_id(), job=make_job(queue=name)) for name in rounds]
        for _ in range(CALLERS)
    ]

    told = await race(url, runners)

    async with opened(url) as store:
        active = await store.reservations(active_only=True, limit=MANY)
        stored = await store.find(Filter(), limit=MANY)
        for name, answers in zip(rounds, zip(*told, strict=True), strict=True):
            [winner] = [answer.reservation for answer in answers if answer.created]
            assert [each for each in active if each.queue == name] == [winner]
            assert {answer.reservation for answer in answers} == {winner}, "all hear of it"
            assert [job.id for job in stored if job.queue == name] == [winner and winner.job_id]
            assert winner is not None
            await settle(store, await job_of(store, winner.job_id), CancelRequested())
        assert await store.reservations(active_only=True, limit=MANY) == []

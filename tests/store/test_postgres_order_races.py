"""Several stores on one PostgreSQL place, move, seal and hold at once, as if one by one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain

import pytest

from outlast.core.decide import decide
from outlast.core.event import Moved
from outlast.core.group import GroupMode, NewGroup
from outlast.core.ordering import Ordering
from outlast.core.position import Anchor, MoveTo
from outlast.core.reservation import NewReservation, ReservationId
from outlast.core.state import State
from outlast.store.contract.jobs import Filter
from outlast.store.contract.queues import Queue
from outlast.store.postgres.store import PostgresStore
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    SUCCEEDED,
    job_of,
    make_job,
    new_id,
    put,
    settle,
    take_many,
)

STORES = 4


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """Each with connections of its own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(_opened(postgres_url)) for _ in range(STORES)]


async def _line(store: PostgresStore, number: int) -> list[str]:
    await store.set_queue(Queue(name="default", ordering=Ordering.POSITION))
    return [await put(store) for _ in range(number)]


async def test_jobs_added_at_once_get_positions_of_their_own(stores: list[PostgresStore]) -> None:
    await _line(stores[0], 0)

    await asyncio.gather(
        *(store.add([make_job() for _ in range(5)]) for store in stores for _ in range(3))
    )

    jobs = await stores[0].peek("default", limit=MANY)
    assert [job.position for job in jobs] == [100 * (n + 1) for n in range(STORES * 15)]


@pytest.mark.parametrize("where", [Anchor.FRONT, Anchor.BEFORE, Anchor.SWAP])
async def test_moves_at_once_are_all_made_and_leave_an_order(
    stores: list[PostgresStore], where: Anchor
) -> None:
    target, *others = await _line(stores[0], 13)
    to = MoveTo(where, None if where is Anchor.FRONT else target)

    async def move(store: PostgresStore, job_id: str) -> bool:
        job = await job_of(store, job_id)
        return (await store.apply([decide(job, Moved(to), new_id=new_id)]))[0]

    pairs = zip(stores * 3, others, strict=True)
    moved = await asyncio.gather(*(move(store, job_id) for store, job_id in pairs))

    jobs = await stores[0].peek("default", limit=MANY)
    assert all(moved)
    assert sorted(job.id for job in jobs) == sorted([target, *others])
    assert len({job.position for job in jobs}) == len(jobs)
    if where is Anchor.BEFORE:
        assert jobs[-1].id == target


async def test_jobs_are_claimed_while_others_move_and_none_is_lost(
    stores: list[PostgresStore],
) -> None:
    jobs = await _line(stores[0], 40)
    mover, renumberer, *takers = stores

    async def shuffle() -> None:
        for job in await mover.peek("default", limit=MANY):
            await mover.apply([decide(job, Moved(MoveTo(Anchor.FRONT)), new_id=new_id)])
            await renumberer.renumber("default")

    async def work(store: PostgresStore) -> list[str]:
        taken: list[str] = []
        while claims := await take_many(store, limit=2):
            taken += [claim.id for claim in claims]
            for claim in claims:
                assert await settle(store, claim, SUCCEEDED)
        return taken

    _, *reported = await asyncio.gather(shuffle(), *(work(store) for store in takers))

    left = [job.id for job in await mover.peek("default", limit=MANY)]
    assert sorted([*chain(*reported), *left]) == sorted(jobs)


@pytest.mark.parametrize("mode", GroupMode)
async def test_group_is_sealed_only_with_all_its_members(
    stores: list[PostgresStore], mode: GroupMode
) -> None:
    group_id = new_id()
    total = STORES * 5
    await stores[0].add_group(NewGroup(id=group_id, total=total, mode=mode))
    members = [make_job(group_id=group_id, member=True) for _ in range(total)]
    added = 0

    async def fill(store: PostgresStore, mine: slice) -> None:
        nonlocal added
        for job in members[mine]:
            [answer] = await store.add([job])
            assert answer.created
            added += 1

    async def seal() -> int:
        while not await stores[0].seal_group(group_id):
            pass  # the question itself lets the others go on
        return len(await stores[0].find(Filter(group=group_id), limit=MANY))

    parts = [slice(n * 5, n * 5 + 5) for n in range(STORES)]
    filling = (fill(store, part) for store, part in zip(stores, parts, strict=True))
    found, *_ = await asyncio.gather(seal(), *filling)

    blocked = Filter(group=group_id, states=frozenset({State.BLOCKED}))
    still = len(await stores[0].find(blocked, limit=MANY))
    assert (found, added) == (total, total)
    assert still == (0 if mode is GroupMode.PARALLEL else total - 1)


async def test_queue_is_held_once_by_whoever_asks_at_once(stores: list[PostgresStore]) -> None:
    async def reserve(store: PostgresStore) -> bool:
        new = NewReservation(id=ReservationId(new_id()), caller="me", request="it", span=HOUR)
        return (await store.reserve(new, make_job(queue="held"))).created

    reported = await asyncio.gather(*(reserve(store) for store in stores * 3))

    assert sum(reported) == 1
    assert len(await stores[0].find(Filter(queue="held"), limit=MANY)) == 1

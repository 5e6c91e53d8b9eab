"""A named lock has one holder at a time, also within a process."""

import asyncio

import pytest

from outlast.errors import InvalidArgument
from outlast.store.contract import Store

NAMES = ["host-1", "a", "x" * 128, ".", "..", "-", "story:eu", "a.lock", "A_b.C:d-e"]


@pytest.mark.parametrize("name", NAMES)
async def test_lock_has_one_holder_and_is_free_when_released(store: Store, name: str) -> None:
    held = await store.acquire_lock(name)
    refused = await store.acquire_lock(name)
    assert held is not None
    await held.release()
    again = await store.acquire_lock(name)

    assert refused is None
    assert again is not None
    await again.release()


async def test_locks_of_other_names_are_other_locks(store: Store) -> None:
    held = [await store.acquire_lock(name) for name in NAMES]

    assert None not in held
    assert [await store.acquire_lock(name) for name in NAMES] == [None] * len(NAMES)


async def test_releasing_twice_frees_nobody_else(store: Store) -> None:
    first = await store.acquire_lock("host-1")
    assert first is not None
    await first.release()
    second = await store.acquire_lock("host-1")

    await first.release()

    assert second is not None
    assert await store.acquire_lock("host-1") is None


async def test_of_many_at_once_one_gets_it(store: Store) -> None:
    held = await asyncio.gather(*(store.acquire_lock("host-1") for _ in range(20)))

    assert len([each for each in held if each is not None]) == 1


async def test_shared_lock_has_many_holders_and_excludes_whoever_wants_it_alone(
    store: Store,
) -> None:
    one, two = (
        await store.acquire_lock("tree.1", shared=True),
        await store.acquire_lock("tree.1", shared=True),
    )
    assert one is not None
    assert two is not None

    alone = await store.acquire_lock("tree.1")
    await one.release()
    while_shared = await store.acquire_lock("tree.1")
    vacant = await store.free_locks(["tree.1"])
    await two.release()
    free = await store.free_locks(["tree.1"])
    now_alone = await store.acquire_lock("tree.1")

    assert alone is None
    assert while_shared is None
    assert vacant == frozenset()
    assert free == {"tree.1"}
    assert now_alone is not None
    assert await store.acquire_lock("tree.1", shared=True) is None


async def test_vacant_is_what_nobody_holds(store: Store) -> None:
    held = await store.acquire_lock("host-1")
    assert held is not None

    before = await store.free_locks(["host-1", "host-2"])
    taken = await store.acquire_lock("host-2")
    await held.release()

    assert before == {"host-2"}
    assert taken is not None, "looking keeps nothing"
    assert not taken.is_lost
    assert await store.free_locks(["host-1", "host-2"]) == {"host-1"}
    assert await store.free_locks([]) == set()


async def test_closed_store_holds_nothing(store: Store) -> None:
    held = await store.acquire_lock("host-1")

    await store.close()
    await store.open()

    again = await store.acquire_lock("host-1")
    assert held is not None
    assert again is not None
    await held.release()
    assert await store.acquire_lock("host-1") is None, "the old hold says nothing any more"


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a b", "x" * 129, "\0", "ä", "a\n"])
async def test_what_is_no_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidArgument, match="lock name"):
        await store.acquire_lock(name)

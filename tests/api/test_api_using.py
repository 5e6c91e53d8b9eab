"""An app lent to another store: everything follows, nothing stays behind."""

from types import ModuleType

import pytest

from outlast import JobNotFound, Outlast
from outlast.errors import StoreClosed
from outlast.testing.model.store import ModelStore


@pytest.fixture
def guest(clock, ids):
    return ModelStore(clock, ids)


@pytest.fixture
def send(app):
    @app.job
    async def send(number: int) -> int:
        return 2 * number

    return send


async def test_jobs_go_to_the_other_store_and_then_to_the_old_one_again(app, send, store, guest):
    before = await send.enqueue(1)
    with app.with_store(guest):
        inside = await send.enqueue(2)
        (bound,) = await app.enqueue_many([send.bind(3)])
        with pytest.raises(JobNotFound):
            await app.get(before.id)
    after = await send.enqueue(4)

    assert [job is not None for job in await guest.get([inside.id, bound.id])] == [True, True]
    assert await guest.get([before.id, after.id]) == [None, None]
    assert await store.get([inside.id, bound.id]) == [None, None]
    assert (await app.get(before.id)).id == before.id


async def test_workers_made_in_the_block_serve_the_other_store(app, send, store, guest):
    outside = await send.enqueue(1)
    with app.with_store(guest):
        inside = await send.enqueue(2)
        async with app.worker() as worker:
            await worker.drained()
            assert await inside.result("2m") == 4

    assert (await outside.read()).token == 0


async def test_an_error_in_the_block_gives_the_old_store_back(app, send, store, guest):
    with pytest.raises(KeyError), app.with_store(guest):
        raise KeyError

    handle = await send.enqueue(1)
    assert await store.get([handle.id]) != [None]
    assert app.store is store


async def test_ids_of_the_block_are_its_own(app, send, guest, clock, ids):
    mine, ids_before = iter(range(10)), app._ids
    ids.job = lambda: f"job-{next(mine)}"
    with app.with_store(guest, ids=ids):
        assert [(await send.enqueue(1)).id for _ in range(2)] == ["job-0", "job-1"]

    assert app._ids is ids_before
    assert not (await send.enqueue(1)).id.startswith("job-")


async def test_closing_inside_the_block_closes_the_other_store_alone(app, send, store, guest):
    await send.enqueue(1)
    with app.with_store(guest):
        async with app:
            await send.enqueue(2)
        with pytest.raises(StoreClosed):
            await send.enqueue(3)
        with pytest.raises(StoreClosed):
            await guest.counts()

    assert (await send.enqueue(4)).created


async def test_an_app_closed_before_is_closed_after(store, guest):
    app = Outlast(store)
    send = app.job(name="send")(lambda: None)
    await app.close()
    with app.with_store(guest):
        await send.enqueue()

    with pytest.raises(StoreClosed):
        await send.enqueue()


async def test_blocks_may_be_nested(app, send, guest, clock, ids):
    inner = ModelStore(clock, ids)
    with app.with_store(guest):
        with app.with_store(inner):
            deep = await send.enqueue(1)
        middle = await send.enqueue(2)

    assert await inner.get([deep.id, middle.id]) == [await inner_job(inner, deep.id), None]
    assert (await guest.get([deep.id, middle.id]))[0] is None


async def test_no_part_of_the_app_keeps_the_old_store(app, send, store, guest):
    await (await send.enqueue(1)).cancel()
    assert reaches(app, store)
    with app.with_store(guest):
        assert reaches(app, guest)
        assert not reaches(app, store)

    assert not reaches(app, guest)


async def inner_job(store, job_id):
    return (await store.get([job_id]))[0]


def reaches(start: object, target: object) -> bool:
    """Whether following attributes and containers from `start` leads to `target`."""
    seen: set[int] = set()
    todo = [start]
    while todo:
        thing = todo.pop()
        if thing is target:
            return True
        if id(thing) in seen or isinstance(thing, (type, ModuleType, str, int)):
            continue
        seen.add(id(thing))
        todo.extend(parts(thing))
    return False


def parts(thing: object) -> list[object]:
    if isinstance(thing, dict):
        return [*thing.values()]
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [*thing]
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    inside = [getattr(thing, name, None) for name in slots if isinstance(name, str)]
    return [*getattr(thing, "__dict__", {}).values(), *inside, getattr(thing, "__self__", None)]

"""Params, results and errors of any size come back whole, wherever they are kept.

Some stores keep a text above 2 KiB apart from its job: the sizes lie on both sides.
"""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from outlast.core.decide import decide
from outlast.core.delivery import Delivery
from outlast.core.event import Edited, Failed, Succeeded
from outlast.core.limits import MAX_ERROR, MAX_PAYLOAD
from outlast.core.position import JobEdit
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LAPSED,
    SECOND,
    ended,
    job_of,
    make_job,
    new_id,
    put,
    put_group,
    settle,
    started,
    take,
)
from outlast.testing.conformance.transfer_rows import (
    FILLING,
    OPENED,
    another,
    copied,
    everything,
)
from outlast.verify import verify

KIB: Final = 1024
LINKED: Final = {"delivery": Delivery.LINKED}
sizes = pytest.mark.parametrize("size", [1, 2 * KIB, 2 * KIB + 1, MAX_PAYLOAD])


def params_of(size: int) -> str:
    """JSON of that many bytes, not only of ASCII."""
    text = "1" if size < len(b'""') else json.dumps("ö" * ((size - 2) // 2), ensure_ascii=False)
    return text.replace('"', '"x', 1) if len(text.encode()) < size else text


def error_of(size: int) -> str:
    """Return an error text of that many bytes, or as many as an error may have."""
    return params_of(size)[: MAX_ERROR // 2]


async def _is_sound(store: Store) -> bool:
    return (await verify(store)).violations == ()


@sizes
async def test_params_of_any_size_are_read_whole_by_everything(store: Store, size: int) -> None:
    params = params_of(size)
    assert len(params.encode()) == size

    job_id = await put(store, params=params)

    job = await job_of(store, job_id)
    facts = await store.wait_facts(job_id)
    lists = [await store.find(Filter(), limit=1), await store.peek("default", limit=1)]
    assert job.params == params
    assert [*lists, await store.chain(job_id)] == [[job]] * 3
    assert facts is not None
    assert facts.job == job
    assert (await take(store)).params == params
    [run] = await store.runs(job_id)
    assert run.params_snapshot == params


@sizes
async def test_job_of_any_size_is_retried_and_keeps_each_error_and_its_result(
    store: Store, clock: FakeClock, size: int
) -> None:
    params, error = params_of(size), error_of(size)
    claim = await started(store, params=params)
    assert await settle(store, claim, Failed(error, delay=SECOND))
    clock.advance(SECOND)
    assert await settle(store, await take(store), Failed(error[::-1]))
    again = await take(store)
    clock.advance(HOUR)
    [lapsed] = await store.expired_leases(limit=10)
    assert await settle(store, lapsed, LAPSED)
    last = await take(store)
    assert await settle(store, last, Succeeded(params))

    runs = await store.runs(claim.id)

    assert {again.params, lapsed.params, last.params} == {params}
    assert [run.error for run in runs[:2]] == [error, error[::-1]]
    assert (runs[3].result, runs[3].params_snapshot) == (params, params)
    assert await _is_sound(store)


@sizes
async def test_end_with_texts_of_any_size_that_is_sent_again_is_on_record(
    store: Store, size: int
) -> None:
    claim = await started(store)
    change = decide(claim, Succeeded(params_of(size)), new_id=new_id)

    assert await store.apply([change]) == [True]
    assert await store.apply([change]) == [True]
    assert await store.apply([replace(change, result='"other"')]) == [False]


@sizes
async def test_edit_replaces_params_of_any_size(store: Store, size: int) -> None:
    for before in (params_of(2 * KIB + 1), params_of(1)):
        job_id = await put(store, params=before, queue="edited")
        for params in (params_of(size), params_of(3 * KIB), params_of(size)):
            job = await job_of(store, job_id)
            assert await settle(store, job, Edited(JobEdit(params=params)))
            assert (await job_of(store, job_id)).params == params
        assert (await take(store, queue="edited")).params == params_of(size)
    assert await _is_sound(store)


@sizes
async def test_successor_has_its_own_params_of_any_size(store: Store, size: int) -> None:
    params, error = params_of(size), error_of(size)
    root = await ended(store, Failed(error), params=params, **LINKED)
    [_, successor] = await store.chain(root)
    assert successor.params == params

    assert await settle(store, successor, Edited(JobEdit(params="[]")))
    assert await settle(store, await take(store), Failed(error, permanent=True))

    [first, second] = await store.chain(root)
    assert (first.params, second.params) == (params, "[]")
    assert [(await store.runs(job.id))[0].error for job in (first, second)] == [error, error]
    assert await _is_sound(store)


@sizes
async def test_retry_by_hand_and_member_of_a_group_have_params_of_any_size(
    store: Store, size: int
) -> None:
    params = params_of(size)
    old = await ended(store, Failed("broke", permanent=True), params=params)
    retried = await put(store, params=params, retry_of=old)
    _, [member] = await put_group(store, make_job(params=params, queue="group"))

    claims = [await take(store), await take(store, queue="group")]

    assert [(claim.id, claim.params) for claim in claims] == [(retried, params), (member, params)]
    assert await _is_sound(store)


@sizes
async def test_pruned_job_of_any_size_leaves_nothing(
    store: Store, clock: FakeClock, size: int
) -> None:
    claim = await started(store, params=params_of(size))
    assert await settle(store, claim, Failed(error_of(size)))
    assert await settle(store, await take(store), Succeeded(params_of(size)))
    clock.advance(HOUR)

    assert await store.prune(older_than=timedelta(0), limit=10) == 1

    assert await store.find(Filter(), limit=10) == []
    assert await _is_sound(store)


async def _furnish(store: Store) -> None:
    """Fill a store with texts of all sizes, in jobs that wait, failed and ended."""
    for size in (2 * KIB, 2 * KIB + 1, MAX_PAYLOAD):
        params, error = params_of(size), error_of(size)
        await put(store, params=params, queue="waits")
        await ended(store, Failed(error, delay=HOUR), params=params, queue=f"failed-{size}")
        await ended(store, Failed(error), params=params, queue=f"linked-{size}", **LINKED)
        await ended(store, Succeeded(params), params=params, queue=f"ended-{size}")


async def test_texts_of_any_size_are_copied_to_and_from_another_store(
    store: Store, clock: FakeClock
) -> None:
    source, target = await another(clock), await another(clock)
    await _furnish(source)

    await store.change_transfer_status(FILLING)
    assert await copied(source, store) > 0
    assert await copied(source, store) == 0
    assert await _is_sound(store)
    await store.change_transfer_status(OPENED)
    await target.change_transfer_status(FILLING)
    await copied(store, target)

    assert await everything(target) == await everything(source)

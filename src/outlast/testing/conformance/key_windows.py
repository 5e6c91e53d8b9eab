"""Keys that are held for a while: windows and debounce keys."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Failed, Skipped
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, KeyWindow, NewJob
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added, Filter
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    MANY,
    SECOND,
    SUCCEEDED,
    TICK,
    ended,
    job_of,
    make_job,
    put,
    settle,
    started,
    take,
    take_many,
)

WINDOW = KeyWindow(key="k", span=HOUR)


def debounced(params: str = "{}", *, wait: timedelta = SECOND, **over: Any) -> NewJob:
    """A job that is due when no further one came for that long."""
    window = KeyWindow(key="k", at_most=over.pop("at_most", None))
    return make_job(params=params, window=window, delay=wait, replaces=True, **over)


async def _add(store: Store, job: NewJob) -> Added:
    [added] = await store.add([job])
    return added


async def test_window_is_held_until_its_end_by_the_store_s_clock(
    store: Store, clock: FakeClock
) -> None:
    holder = await put(store, window=WINDOW)

    clock.advance(HOUR - TICK)
    within = await _add(store, make_job(window=WINDOW))
    clock.advance(TICK)
    after = make_job(window=WINDOW)

    assert within == Added(holder, created=False)
    assert await _add(store, after) == Added(after.id, created=True)
    assert (await _add(store, make_job(window=WINDOW))).id == after.id, "its own window has begun"


async def test_window_rolls_from_the_creation_of_its_job_not_from_the_last_enqueue(
    store: Store, clock: FakeClock
) -> None:
    await put(store, window=WINDOW)
    clock.advance(HOUR - SECOND)
    await _add(store, make_job(window=WINDOW))

    clock.advance(SECOND)

    assert await put(store, window=WINDOW)


@pytest.mark.parametrize("event", [SUCCEEDED, FAILED, Skipped()])
async def test_window_is_held_after_its_job_has_run(store: Store, event: Any) -> None:
    holder = await ended(store, event, window=WINDOW)

    assert await _add(store, make_job(window=WINDOW)) == Added(holder, created=False)


async def test_window_outlives_its_pruned_job(store: Store, clock: FakeClock) -> None:
    holder = await ended(store, SUCCEEDED, window=WINDOW)
    clock.advance(2 * SECOND)
    assert await store.prune(older_than=SECOND, limit=10) == 1

    assert await _add(store, make_job(window=WINDOW)) == Added(holder, created=False)


async def test_windows_differ_by_bucket_and_kinds_of_key_do_not_meet(store: Store) -> None:
    await put(store, window=WINDOW)

    assert await put(store, window=replace(WINDOW, bucket="b"))
    assert await put(store, key=DedupeKey(key="k"))
    assert await put(store, active_key="k")
    assert (await _add(store, debounced())).created


async def test_of_two_windows_in_one_call_the_first_wins(store: Store) -> None:
    first, second, other = (make_job(window=WINDOW), make_job(window=WINDOW), make_job())

    added = await store.add([first, second, other])

    assert added == [
        Added(first.id, created=True),
        Added(first.id, created=False),
        Added(other.id, created=True),
    ]


async def test_adding_a_stored_id_again_does_not_take_the_window_anew(
    store: Store, clock: FakeClock
) -> None:
    job = make_job(window=WINDOW)
    await store.add([job])
    clock.advance(HOUR)

    assert await _add(store, job) == Added(job.id, created=False)
    assert await put(store, window=WINDOW)


async def test_window_of_a_linked_job_names_the_root_of_its_chain(store: Store) -> None:
    claim = await started(store, delivery=Delivery.LINKED, window=WINDOW)
    await settle(store, claim, FAILED)

    assert await _add(store, make_job(window=WINDOW)) == Added(claim.id, created=False)


@pytest.mark.parametrize(
    "bad",
    [
        {"window": KeyWindow(key="k", span=timedelta(0))},
        {"window": KeyWindow(key="k", span=-HOUR)},
        {"window": KeyWindow(key="k", span=timedelta(days=4_000))},
        {"window": KeyWindow(key="", span=HOUR)},
        {"window": KeyWindow(key="\ud800", span=HOUR)},
        {"window": KeyWindow(key="k", bucket="b" * 513, span=HOUR)},
        {"window": KeyWindow(key="k"), "delay": SECOND},
        {"window": KeyWindow(key="k"), "replaces": True},
        {"window": KeyWindow(key="k", at_most=-SECOND), "replaces": True, "delay": SECOND},
    ],
    ids=[
        "zero",
        "negative",
        "long",
        "empty",
        "surrogate",
        "bucket",
        "alone",
        "no_delay",
        "at_most",
    ],
)
async def test_invalid_window_is_refused_whole(store: Store, bad: Any) -> None:
    job, good = make_job(**bad), make_job()

    added = await store.add([job, good])

    assert added[0].refused
    assert added[1] == Added(good.id, created=True)
    assert await store.get([job.id]) == [None]


async def test_further_enqueues_put_a_debounced_job_off(store: Store, clock: FakeClock) -> None:
    first = debounced('"one"')
    assert await _add(store, first) == Added(first.id, created=True)
    assert (await job_of(store, first.id)).available_at == clock.now() + SECOND

    clock.advance(SECOND)  # due, and not claimed yet
    assert await _add(store, debounced('"two"')) == Added(first.id, created=False, replaced=True)

    assert await take_many(store) == []
    clock.advance(SECOND)
    assert (await take(store)).params == '"two"'


async def test_debounced_job_is_put_off_at_most_so_long_after_its_creation(
    store: Store, clock: FakeClock
) -> None:
    over: dict[str, Any] = {"wait": 3 * SECOND, "at_most": 5 * SECOND}
    created, job = clock.now(), debounced(**over)
    await store.add([job])
    due = []

    for number in range(4):
        clock.advance(2 * SECOND)
        assert (await _add(store, debounced(str(number), **over))).replaced
        due.append((await job_of(store, job.id)).available_at - created)

    assert due == [5 * SECOND] * 4
    assert (await take(store)).params == "3", "also when it is late, the last one counts"


async def test_enqueue_after_the_claim_starts_a_new_debounced_job(
    store: Store, clock: FakeClock
) -> None:
    first, second = debounced('"one"'), debounced('"two"')
    await store.add([first])
    clock.advance(SECOND)
    claim = await take(store)

    added = await _add(store, second)
    third = await _add(store, debounced('"three"'))

    assert added == Added(second.id, created=True)
    assert third == Added(second.id, created=False, replaced=True)
    assert claim.params == (await job_of(store, first.id)).params == '"one"'
    await settle(store, claim, Failed("it broke"))
    assert (await _add(store, debounced())).id == second.id, "a retry of the first is not its job"


async def test_enqueue_after_a_cancel_starts_a_new_debounced_job(store: Store) -> None:
    first = debounced()
    await store.add([first])
    await settle(store, await job_of(store, first.id), CancelRequested())

    assert (await _add(store, debounced())).created


async def test_two_debounced_jobs_in_one_call_become_one(store: Store) -> None:
    first, second = debounced('"one"'), debounced('"two"')

    added = await store.add([first, second])

    assert [(answer.id, answer.replaced) for answer in added] == [
        (first.id, False),
        (first.id, True),
    ]
    assert (await job_of(store, first.id)).params == '"two"'


async def test_job_is_found_by_the_key_of_its_window(store: Store) -> None:
    by_window, by_debounce = await put(store, window=WINDOW), debounced()
    await store.add([by_debounce])

    found = await store.find(Filter(key="k"), limit=MANY)

    assert {job.id for job in found} == {by_window, by_debounce.id}


async def _keys(store: Store) -> set[str]:
    found = await store.find(Filter(key="k"), limit=MANY)
    return {job.id for job in found}


async def test_prune_deletes_windows_that_have_ended_and_no_others(
    store: Store, clock: FakeClock
) -> None:
    short = await put(store, window=replace(WINDOW, span=SECOND, bucket="short"))
    long = await put(store, window=WINDOW)
    waiting = debounced()
    await store.add([waiting])
    clock.advance(SECOND)

    await store.prune(older_than=HOUR, limit=10)
    held = await _keys(store)
    claims = await take_many(store)
    await store.prune(older_than=HOUR, limit=10)

    assert held == {long, waiting.id}, "a debounced job holds its key until it is claimed"
    assert {claim.id for claim in claims} == {short, long, waiting.id}
    assert await _keys(store) == {long}


async def test_prune_deletes_no_more_windows_than_its_limit(store: Store, clock: FakeClock) -> None:
    jobs: list[JobId] = []
    for number in range(3):
        held = KeyWindow(key="k", bucket=str(number), span=SECOND)
        jobs.append(await put(store, window=held))
        clock.advance(TICK)
    clock.advance(SECOND)

    await store.prune(older_than=HOUR, limit=2)

    assert await _keys(store) == {jobs[2]}, "the earliest end first"

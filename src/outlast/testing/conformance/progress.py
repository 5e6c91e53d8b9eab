"""Progress of a run is fenced and bounded, and the last report is kept."""

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Event, Failed
from outlast.core.limits import MAX_PROGRESS
from outlast.core.run import Lease
from outlast.store.contract import Store
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LAPSED,
    LEASE,
    LOST,
    SUCCEEDED,
    job_of,
    kinds,
    last_run,
    make_job,
    new_id,
    settle,
    started,
    take,
    take_many,
)


async def test_progress_is_seen_on_the_run_and_on_its_job(store: Store) -> None:
    claim = await started(store)
    before = (await job_of(store, claim.id)).progress, (await last_run(store, claim.id)).progress

    kept = await store.record_progress([(claim.lease, '{"done":1,"of":3}')])

    assert before == (None, None)
    assert kept == [True]
    assert (await job_of(store, claim.id)).progress == '{"done":1,"of":3}'
    assert (await last_run(store, claim.id)).progress == '{"done":1,"of":3}'


async def test_last_report_counts_also_within_one_call(store: Store) -> None:
    claim = await started(store)

    kept = await store.record_progress(
        [(claim.lease, text) for text in ("1", "2", "no JSON", "3", "{")]
    )

    assert kept == [True, True, False, True, False]
    assert (await job_of(store, claim.id)).progress == "3"


async def test_reports_are_answered_each_in_the_order_given(store: Store) -> None:
    await store.add([make_job() for _ in range(3)])
    first, gone, third = await take_many(store)
    await settle(store, gone, SUCCEEDED)

    leases = [third.lease, gone.lease, Lease(new_id(), 1), first.lease]
    kept = await store.record_progress([(lease, f"{n}") for n, lease in enumerate(leases)])

    assert kept == [True, False, False, True]
    assert (await job_of(store, first.id)).progress == "3"
    assert (await job_of(store, third.id)).progress == "0"


async def test_reporting_nothing_answers_nothing(store: Store) -> None:
    assert await store.record_progress([]) == []


@pytest.mark.parametrize("event", [SUCCEEDED, Failed("no"), LOST], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("delivery", [Delivery.LEASE, Delivery.LINKED])
async def test_closed_run_keeps_its_progress_and_the_job_shows_none(
    store: Store, event: Event, delivery: Delivery
) -> None:
    claim = await started(store, delivery=delivery)
    await store.record_progress([(claim.lease, "7")])

    await settle(store, claim, event)

    assert (await last_run(store, claim.id)).progress == "7"
    assert [job.progress for job in await store.chain(claim.id)] in ([None], [None, None])


async def test_next_run_starts_without_progress(store: Store) -> None:
    claim = await started(store)
    await store.record_progress([(claim.lease, "7")])
    await settle(store, claim, LOST)

    await take(store)

    assert (await job_of(store, claim.id)).progress is None
    assert [run.progress for run in await store.runs(claim.id)] == ["7", None]


async def test_closed_run_takes_no_more_reports(store: Store) -> None:
    claim = await started(store)
    await store.record_progress([(claim.lease, "1")])
    await settle(store, claim, SUCCEEDED)

    assert await store.record_progress([(claim.lease, "2")]) == [False]
    assert (await last_run(store, claim.id)).progress == "1"


async def test_stale_holder_reports_nothing_and_leaves_no_event(
    store: Store, clock: FakeClock
) -> None:
    stale = await started(store)
    clock.advance(LEASE)
    await settle(store, stale, LAPSED)
    again = await take(store)
    events = await kinds(store, stale.id)

    kept = await store.record_progress([(stale.lease, "1"), (again.lease, "2")])

    assert kept == [False, True]
    assert (await job_of(store, stale.id)).progress == "2"
    assert await kinds(store, stale.id) == events


async def test_lapsed_run_that_nobody_took_may_still_report(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(HOUR)

    assert await store.record_progress([(claim.lease, "1")]) == [True]
    assert [job.progress for job in await store.expired_leases(limit=1)] == ["1"]


@pytest.mark.parametrize(
    "text",
    ["", "no JSON", "{", '"\0"', '"\ud800"', f'"{"x" * MAX_PROGRESS}"'],
    ids=["empty", "words", "cut", "NUL", "surrogate", "large"],
)
async def test_progress_that_cannot_be_kept_is_refused_alone(store: Store, text: str) -> None:
    await store.add([make_job(), make_job()])
    bad, good = await take_many(store)
    await store.record_progress([(bad.lease, '"before"')])

    kept = await store.record_progress([(bad.lease, text), (good.lease, "1")])

    assert kept == [False, True]
    assert (await job_of(store, bad.id)).progress == '"before"'
    assert (await job_of(store, good.id)).progress == "1"


async def test_progress_of_the_largest_size_is_kept(store: Store) -> None:
    claim = await started(store)
    text = f'"{"x" * (MAX_PROGRESS - 2)}"'

    assert await store.record_progress([(claim.lease, text)]) == [True]
    assert (await job_of(store, claim.id)).progress == text

"""Which jobs `prune` deletes, and which it keeps."""

import pytest

from outlast.core.decide import succeed
from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Failed, Skipped, Stopped
from outlast.core.ids import JobId
from outlast.core.lineage import retry_copy
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract import runs as run_contract
from outlast.store.contract.jobs import EndedJob
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    MANY,
    SECOND,
    SUCCEEDED,
    TICK,
    ended,
    job_of,
    new_id,
    put,
    settle,
    started,
    take,
)


async def _left(store: Store) -> int:
    return sum((await store.counts()).values())


@pytest.mark.parametrize("event", [SUCCEEDED, Skipped(), Stopped()], ids=lambda e: type(e).__name__)
async def test_job_that_ended_well_goes_with_all_its_records(
    store: Store, clock: FakeClock, event: Skipped
) -> None:
    claim = await started(store)
    await settle(store, claim, LOST)
    await settle(store, await take(store), event)
    clock.advance(HOUR + TICK)

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert gone == 1
    assert await store.get([claim.id]) == [None]
    assert (await store.runs(claim.id), await store.events(claim.id)) == ([], [])
    assert await _left(store) == 0


async def test_job_cancelled_unrun_goes_too(store: Store, clock: FakeClock) -> None:
    waiting = await job_of(store, await put(store))
    await settle(store, waiting, CancelRequested())
    clock.advance(HOUR + TICK)

    assert await store.prune(older_than=HOUR, limit=MANY) == 1


async def test_job_stays_until_it_is_old_enough(store: Store, clock: FakeClock) -> None:
    await ended(store)
    clock.advance(HOUR)

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert gone == 0
    assert await _left(store) == 1


async def test_age_counts_from_the_end(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    clock.advance(10 * HOUR)
    await settle(store, claim, SUCCEEDED)

    assert await store.prune(older_than=HOUR, limit=MANY) == 0


async def test_what_failed_or_still_lives_is_never_pruned(store: Store, clock: FakeClock) -> None:
    await ended(store, Failed("no", permanent=True))
    await ended(store, FAILED, delivery=Delivery.ONCE)
    await started(store)
    await put(store, delay=HOUR)
    await put(store)
    clock.advance(24 * HOUR)

    gone = await store.prune(older_than=SECOND, limit=MANY)

    assert gone == 0
    assert await _left(store) == 5


async def test_chain_goes_whole_by_its_last_end(store: Store, clock: FakeClock) -> None:
    root = await ended(store, FAILED, delivery=Delivery.LINKED)
    clock.advance(10 * HOUR)
    await settle(store, await take(store), SUCCEEDED)
    too_soon = await store.prune(older_than=HOUR, limit=MANY)
    clock.advance(2 * HOUR)

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert (too_soon, gone) == (0, 2)
    assert await store.chain(root) == []
    assert await _left(store) == 0


@pytest.mark.parametrize("last", [State.QUEUED, State.RUNNING, State.DEAD_LETTER])
async def test_chain_whose_last_job_did_not_end_well_stays_whole(
    store: Store, clock: FakeClock, last: State
) -> None:
    root = await ended(store, FAILED, delivery=Delivery.LINKED)
    if last is not State.QUEUED:
        claim = await take(store)
        if last is State.DEAD_LETTER:
            await settle(store, claim, Failed("no", permanent=True))
    clock.advance(10 * HOUR)

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert gone == 0
    assert [job.state for job in await store.chain(root)] == [State.FAILED, last]


@pytest.mark.parametrize("retry", [State.QUEUED, State.DEAD_LETTER])
@pytest.mark.parametrize("event", [SUCCEEDED, Skipped(), Stopped()], ids=lambda e: type(e).__name__)
async def test_job_that_was_retried_stays_with_its_retry(
    store: Store, clock: FakeClock, event: Skipped, retry: State
) -> None:
    first = await ended(store, event)
    second = await put(store, retry_of=first)
    if retry is State.DEAD_LETTER:
        await settle(store, await take(store), Failed("no", permanent=True))
    clock.advance(10 * HOUR)

    gone = await store.prune(older_than=HOUR, limit=MANY)

    assert gone == 0
    assert [job.id for job in await store.chain(first)] == [first, second]


async def test_oldest_chains_go_first(store: Store, clock: FakeClock) -> None:
    claims = [await started(store) for _ in range(3)]
    for claim in reversed(claims):
        clock.advance(SECOND)
        await settle(store, claim, SUCCEEDED)
    clock.advance(HOUR + TICK)

    gone = await store.prune(older_than=HOUR, limit=2)

    [first, *rest] = await store.get([claim.id for claim in claims])
    assert gone == 2
    assert first is not None
    assert rest == [None, None]


async def test_limit_counts_chains_and_the_answer_counts_jobs(
    store: Store, clock: FakeClock
) -> None:
    for _ in range(2):
        await ended(store, FAILED, delivery=Delivery.LINKED)
        clock.advance(SECOND)
        await settle(store, await take(store), SUCCEEDED)
    clock.advance(2 * HOUR)

    assert await store.prune(older_than=HOUR, limit=1) == 2
    assert await store.prune(older_than=HOUR, limit=1) == 2
    assert await store.prune(older_than=HOUR, limit=1) == 0


async def test_pruned_job_accepts_no_late_write(store: Store, clock: FakeClock) -> None:
    claim = await started(store)
    await settle(store, claim, SUCCEEDED)
    clock.advance(2 * HOUR)
    await store.prune(older_than=HOUR, limit=MANY)

    assert not await settle(store, claim, SUCCEEDED)
    assert not await store.attach(claim.lease, ["x"])
    assert await store.events(claim.id) == []


async def test_neighbours_of_what_is_pruned_are_untouched(store: Store, clock: FakeClock) -> None:
    await ended(store)
    clock.advance(2 * HOUR)
    young = await job_of(store, await ended(store))
    runs = await store.runs(young.id)

    await store.prune(older_than=HOUR, limit=MANY)

    assert await store.get([young.id, new_id()]) == [young, None]
    assert await store.runs(young.id) == runs


async def test_old_events_of_no_job_are_pruned(store: Store, clock: FakeClock) -> None:
    await store.pause("old", reason=None, span=None)
    clock.advance(HOUR + TICK)
    await store.pause("young", reason=None, span=None)

    await store.prune(older_than=HOUR, limit=MANY)

    assert [event.queue for event in await store.events(None)] == ["young"]
    assert [event.queue for event in await store.stream(limit=MANY)] == ["young"]


async def test_events_of_no_job_are_pruned_the_oldest_first(store: Store, clock: FakeClock) -> None:
    for number in range(3):
        await store.pause(f"queue-{number}", reason=None, span=None)
    clock.advance(HOUR + TICK)

    await store.prune(older_than=HOUR, limit=2)

    assert [event.queue for event in await store.events(None)] == ["queue-2"]


async def test_read_of_the_events_of_no_job_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_contract, "MAX_EVENTS_OF_NO_JOB", 2)
    for number in range(3):
        await store.pause(f"queue-{number}", reason=None, span=None)

    newest = await store.events(None)

    assert [event.queue for event in newest] == ["queue-1", "queue-2"]
    assert len(await store.stream(limit=MANY)) == 3


async def _ended_of(store: Store, clock: FakeClock, *types: str) -> list[JobId]:
    """End a job of each type, a tick apart; return their ids."""
    ids = []
    for each in types:
        ids.append(await ended(store, type=each))
        clock.advance(TICK)
    return ids


async def test_ended_jobs_are_listed_with_their_types_in_the_order_of_their_ends(
    store: Store, clock: FakeClock
) -> None:
    ids = await _ended_of(store, clock, "send", "report", "send")
    await ended(store, Failed("no", permanent=True))
    await put(store)
    clock.advance(HOUR + TICK)

    found = await store.ended_jobs(older_than=HOUR, after=None, limit=MANY)

    assert [(job.id, job.type) for job in found] == list(
        zip(ids, ["send", "report", "send"], strict=True)
    )
    assert [(job.at, job.seq) for job in found] == sorted((job.at, job.seq) for job in found)


async def test_ended_jobs_are_listed_once_page_by_page(store: Store, clock: FakeClock) -> None:
    claims = [await started(store) for _ in range(7)]
    await store.apply([succeed(claim.id, claim.token, None) for claim in claims])  # one moment
    clock.advance(HOUR + TICK)

    found: list[EndedJob] = []
    while page := await store.ended_jobs(
        older_than=HOUR, after=found[-1] if found else None, limit=2
    ):
        assert len(page) <= 2
        found += page

    assert sorted(job.id for job in found) == sorted(claim.id for claim in claims)


async def test_jobs_that_ended_too_lately_are_not_listed(store: Store, clock: FakeClock) -> None:
    await ended(store)
    clock.advance(HOUR)

    assert await store.ended_jobs(older_than=HOUR, after=None, limit=MANY) == []


async def test_named_jobs_go_with_their_records_and_the_others_stay(
    store: Store, clock: FakeClock
) -> None:
    gone, kept = await _ended_of(store, clock, "send", "report")
    clock.advance(HOUR + TICK)
    found = await store.ended_jobs(older_than=HOUR, after=None, limit=MANY)

    deleted = await store.prune_jobs([job for job in found if job.type == "send"], older_than=HOUR)

    assert deleted == 1
    assert (await store.get([gone]), await store.runs(gone)) == ([None], [])
    assert (await job_of(store, kept)).state is State.SUCCEEDED
    assert len(await store.runs(kept)) == 1
    assert await store.prune_jobs(found[:1], older_than=HOUR) == 0, "it can be repeated"


async def test_named_jobs_stay_while_prune_would_keep_them(store: Store, clock: FakeClock) -> None:
    """One that ended too lately, one whose retry lives, one that never ended."""
    young = await job_of(store, await ended(store))
    cancelled = await job_of(store, await put(store))
    await settle(store, cancelled, CancelRequested())
    cancelled = await job_of(store, cancelled.id)
    waiting = await put(store)
    named = [
        EndedJob(id=job.id, type=job.type, at=job.finished_at or clock.now(), seq=job.seq)
        for job in [young, cancelled, await job_of(store, waiting)]
    ]
    await store.add([retry_copy(cancelled, new_id())])

    assert await store.prune_jobs(named, older_than=HOUR) == 0
    clock.advance(HOUR + TICK)
    assert await store.prune_jobs(named[1:], older_than=HOUR) == 0
    assert await store.prune_jobs(named, older_than=HOUR) == 1
    assert await store.get([young.id]) == [None]


async def test_pruning_without_chains_deletes_no_job(store: Store, clock: FakeClock) -> None:
    await ended(store)
    clock.advance(HOUR + TICK)

    assert await store.prune(older_than=HOUR, limit=MANY, chains=False) == 0
    assert await _left(store) == 1

"""Audit reads return everything stored about a job, and `verify` proves it consistent."""

from dataclasses import replace
from typing import Any, cast

import pytest

from outlast.core.audit.model import JobAudit, StateTable
from outlast.core.delivery import Delivery
from outlast.core.event import CancelRequested, Event, EventKind
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Slot
from outlast.core.state import RunStatus, State
from outlast.errors import InvalidArgument
from outlast.store.contract import Store
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LOST,
    MANY,
    SECOND,
    SUCCEEDED,
    ended,
    job_of,
    put,
    settle,
    started,
    take,
)
from outlast.verify import verify

LINKED, ONCE = {"delivery": Delivery.LINKED}, {"delivery": Delivery.ONCE}


async def _dossier(store: Store, job_id: JobId) -> JobAudit:
    return next(d for d in await store.audit_jobs(after=0, limit=MANY) if d.id == job_id)


async def test_dossier_shows_where_a_job_stands(store: Store, clock: FakeClock) -> None:
    waiting, running = await put(store, queue="lane", delay=HOUR), (await started(store)).id
    over = await ended(store)

    places = [(await _dossier(store, job_id)).places for job_id in (waiting, running, over)]

    assert [[place.where for place in each] for each in places] == [
        [StateTable.WAITING],
        [StateTable.OPEN],
        [StateTable.END],
    ]
    [[first], [second], [third]] = places
    assert (first.state, first.token) == (State.SCHEDULED, 0)
    assert (second.state, second.token, second.at) == (State.RUNNING, 1, None)
    assert second.run_id == (await store.runs(running))[0].run_id
    assert (third.state, third.token, third.at) == (State.SUCCEEDED, 1, clock.now())
    assert all(place.is_like_its_job and place.has_holder for [place] in places)


async def test_dossier_shows_every_run_and_event(store: Store, clock: FakeClock) -> None:
    job_id = await ended(store, LOST)
    await settle(store, await take(store), FAILED)
    clock.advance(SECOND)
    await settle(store, await take(store), SUCCEEDED)

    dossier = await _dossier(store, job_id)

    runs = [(run.token, run.status, run.has_result) for run in dossier.runs]
    assert runs == [
        (1, RunStatus.LOST, False),
        (2, RunStatus.FAILED, False),
        (3, RunStatus.SUCCEEDED, True),
    ]
    assert [run.run_id for run in dossier.runs] == [run.run_id for run in await store.runs(job_id)]
    assert dossier.runs[-1].finished_at == clock.now()
    assert [(e.id, e.kind, e.token, e.at) for e in dossier.events] == [
        (e.id, e.kind, e.token, e.at) for e in await store.events(job_id)
    ]
    [place] = dossier.places
    assert (place.failures, place.losses) == (2, 1)


async def test_dossier_shows_both_sides_of_a_link(store: Store) -> None:
    job_id = await ended(store, LOST, **LINKED)
    [root, successor] = await store.chain(job_id)

    first, second = await _dossier(store, job_id), await _dossier(store, successor.id)

    assert (first.successors, first.before, first.root_id) == ((successor.id,), None, root.id)
    assert (second.successors, second.root_id) == ((), root.id)
    before = second.before
    assert before is not None
    assert (before.id, before.root_id, before.chained) == (root.id, root.id, True)
    assert (before.failures, before.losses, before.has_ended) == (1, 1, True)


async def test_retry_by_hand_is_not_taken_for_a_link_that_a_job_wrote(store: Store) -> None:
    dead = await ended(store, FAILED, max_attempts=1)
    again = await put(store, retry_of=dead)

    before = (await _dossier(store, again)).before

    assert before is not None
    assert (before.id, before.chained, before.failures) == (dead, False, 1)


async def test_dossiers_come_in_pages_in_the_order_stored(store: Store) -> None:
    ids = [await put(store) for _ in range(5)]

    seen: list[JobAudit] = []
    while page := await store.audit_jobs(after=seen[-1].seq if seen else 0, limit=2):
        assert len(page) <= 2
        seen += page

    assert [dossier.id for dossier in seen] == ids
    assert [dossier.seq for dossier in seen] == [(await job_of(store, i)).seq for i in ids]


async def _one_of_everything(store: Store, clock: FakeClock) -> None:
    events: tuple[Event, ...] = (SUCCEEDED, FAILED, LOST)
    for number, event in enumerate(events):
        for over in ({}, LINKED, ONCE):
            queue = f"queue-{number}-{over.get('delivery', 'lease')}"
            await ended(store, event, queue=queue, **over)
    await ended(
        store, FAILED, max_attempts=1, active_key="a", key=DedupeKey(key="k"), queue="keyed"
    )
    asked = await started(store, queue="asked", active_key="a", slot=Slot(series="s", at=START))
    await settle(store, asked, CancelRequested("no"))
    cancelled = await put(store, queue="cancelled")
    await settle(store, await job_of(store, cancelled), CancelRequested())
    stale = await started(store, queue="stale")
    await settle(store, stale, SUCCEEDED)
    await settle(store, stale, FAILED)
    clock.advance(HOUR)
    await store.prune(older_than=SECOND, limit=1)
    clock.set_back(2 * HOUR)
    await put(store, retry_of=cancelled, queue="retried")
    await settle(store, asked, SUCCEEDED)


async def test_store_that_nobody_has_broken_is_proved_sound(store: Store, clock: FakeClock) -> None:
    await _one_of_everything(store, clock)

    report = await verify(store, clock=clock)

    assert (report.violations, report.found, report.is_sound) == ((), 0, True)
    jobs = await store.audit_jobs(after=0, limit=MANY)
    assert report.jobs == len(jobs) == await store.job_count() > 10
    open_runs = sum(place.where is StateTable.OPEN for job in jobs for place in job.places)
    assert report.runs == sum(len(job.runs) for job in jobs) + open_runs
    assert report.events == sum(len(job.events) for job in jobs)
    assert await store.dangling_records(limit=MANY) == []


async def test_keys_outlive_the_jobs_they_were_taken_by(store: Store, clock: FakeClock) -> None:
    await ended(store, key=DedupeKey(key="k"), slot=Slot(series="s", at=START), active_key="a")
    clock.advance(HOUR)
    assert await store.prune(older_than=SECOND, limit=MANY) == 1

    assert (await verify(store)).is_sound


@pytest.mark.parametrize("page", [1, 3, 500])
async def test_proof_tells_its_progress(store: Store, page: int) -> None:
    for _ in range(5):
        await put(store)
    told: list[tuple[int, int]] = []

    await verify(store, progress=lambda done, total: told.append((done, total)), page=page)

    assert (told[0], told[-1]) == ((0, 5), (5, 5))
    assert [done for done, _ in told] == sorted({0, 5, *range(0, 5, page)})


async def test_jobs_that_come_while_it_proves_are_looked_at_too(store: Store) -> None:
    first = await put(store)
    growing = _Growing(store)

    told: list[tuple[int, int]] = []
    report = await verify(cast(Store, growing), progress=lambda *both: told.append(both), page=1)

    assert growing.added
    assert report.jobs == 1 + len(growing.added), first
    assert all(done <= total for done, total in told)


class _Growing:
    """A store to which a job is added after each of the first three pages."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.added: list[JobId] = []

    async def audit_jobs(self, *, after: int, limit: int) -> list[JobAudit]:
        page = await self._store.audit_jobs(after=after, limit=limit)
        if len(self.added) < 3:
            self.added.append(await put(self._store))
        return page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize("page", [0, -1, 10_001])
async def test_page_of_a_proof_has_bounds(store: Store, page: int) -> None:
    with pytest.raises(InvalidArgument, match=f"page is {page}; it must be between 1 and 10,000"):
        await verify(store, page=page)


async def test_refused_late_write_of_any_token_is_no_violation(store: Store) -> None:
    claim = await started(store)
    ahead = replace(claim, token=9)

    assert not await settle(store, ahead, SUCCEEDED)

    assert [event.kind for event in await store.events(claim.id)] == [EventKind.LATE_WRITE_REFUSED]
    assert (await verify(store)).is_sound

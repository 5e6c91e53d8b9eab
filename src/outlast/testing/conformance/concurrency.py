"""Capability SHARED: processes race on one store. Takes a fixture `url`."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from outlast.core.decide import decide, succeed
from outlast.core.delivery import Delivery
from outlast.core.event import EventKind, EventRecord
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Job, NewJob, Slot
from outlast.core.run import Lease, RunRecord
from outlast.core.state import RunStatus, State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added, Filter
from outlast.testing.clock import START
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    FAILED,
    HOUR,
    LAPSED,
    MANY,
    SUCCEEDED,
    ended,
    job_of,
    kinds,
    make_job,
    new_id,
    put,
    started,
    take,
    take_many,
)
from outlast.testing.conformance.race_runner import Act, busy, opened, race

Everything = tuple[list[Job], list[Job], list[list[RunRecord]], list[list[EventRecord]]]


async def claim_all(store: Store, *, holder: str, queue: str = "default") -> list[JobId]:
    """Claim a few at a time until nothing is left."""
    taken: list[JobId] = []
    while claims := await take_many(store, limit=5, holder=holder, queue=queue):
        taken.extend(claim.id for claim in claims)
    return taken


async def add_one(store: Store, *, job: NewJob) -> Added:
    [added] = await store.add([job])
    return added


async def finish_one(store: Store, *, lease: Lease, result: str) -> bool:
    [applied] = await store.apply([succeed(lease.job_id, lease.token, result)])
    return applied


async def reclaim_all(store: Store, *, successors: Sequence[JobId]) -> int:
    """Lapsed, decide, apply: how many losses this process wrote."""
    fresh = iter(successors)
    lapsed = await store.expired_leases(limit=MANY)
    changes = [decide(job, LAPSED, new_id=lambda: next(fresh)) for job in lapsed]
    return sum(await store.apply(changes))


async def renew_one(store: Store, *, lease: Lease) -> bool:
    [renewal] = await store.renew([lease], span=HOUR)
    return renewal.held


async def hold_one(store: Store, *, name: str) -> bool:
    return await store.acquire_lock(name) is not None


async def everything(store: Store) -> Everything:
    jobs = await store.find(Filter(), limit=MANY)
    runs = [await store.runs(job.id) for job in jobs]
    events = [await store.events(job.id) for job in jobs]
    return jobs, await store.peek("default", limit=MANY), runs, events


async def _race_to_add(url: str, jobs: Sequence[Sequence[NewJob]]) -> list[list[Added]]:
    """What the processes were told in each round, one list per round."""
    acts = [[partial(add_one, job=job) for job in own] for own in jobs]
    told = await race(url, acts)
    return [list(answers) for answers in zip(*told, strict=True)]


def _check_one_winner(rounds: Sequence[Sequence[Added]]) -> None:
    for told in rounds:
        winners = [added for added in told if added.created]
        assert len(winners) == 1, told
        assert {added.id for added in told} == {winners[0].id}, "every loser knows the winner"


async def test_processes_share_out_jobs_and_none_goes_twice(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        jobs = [make_job() for _ in range(size.race_jobs)]
        await store.add(jobs)

    names = [f"worker-{number}" for number in range(size.race_processes)]
    taken = await race(url, [[partial(claim_all, holder=name)] for name in names])

    count = Counter(job_id for [own] in taken for job_id in own)
    assert count == Counter(job.id for job in jobs)


async def test_once_jobs_of_one_name_never_overlap_between_processes(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        for number in range(size.race_rounds):
            queue = f"round-{number}"
            jobs = [make_job(delivery=Delivery.ONCE, name=queue, queue=queue) for _ in range(5)]
            await store.add(jobs)

    rounds = [f"round-{number}" for number in range(size.race_rounds)]
    taken = await race(
        url,
        [
            [partial(claim_all, holder=f"worker-{n}", queue=queue) for queue in rounds]
            for n in range(size.race_processes)
        ],
    )

    for answers in zip(*taken, strict=True):
        assert sum(len(own) for own in answers) == 1


async def test_one_key_has_one_winner_between_processes(url: str) -> None:
    size = sizes.SIZES
    jobs = [
        [make_job(key=DedupeKey(key=f"round-{number}")) for number in range(size.race_rounds)]
        for _ in range(size.race_processes)
    ]

    _check_one_winner(await _race_to_add(url, jobs))


async def test_one_slot_has_one_winner_between_processes(url: str) -> None:
    size = sizes.SIZES
    slots = [Slot(series="daily", at=START + number * HOUR) for number in range(size.race_rounds)]
    jobs = [[make_job(slot=slot) for slot in slots] for _ in range(size.race_processes)]

    _check_one_winner(await _race_to_add(url, jobs))


async def test_one_active_key_has_one_winner_between_processes(url: str) -> None:
    size = sizes.SIZES
    keys = [f"round-{number}" for number in range(size.race_rounds)]
    jobs = [[make_job(active_key=key) for key in keys] for _ in range(size.race_processes)]

    _check_one_winner(await _race_to_add(url, jobs))


async def test_one_job_id_is_stored_once_between_processes(url: str) -> None:
    size = sizes.SIZES
    jobs = [make_job() for _ in range(size.race_rounds)]

    rounds = await _race_to_add(url, [jobs] * size.race_processes)

    _check_one_winner(rounds)
    assert [told[0].id for told in rounds] == [job.id for job in jobs]


async def test_one_dead_letter_is_retried_once_between_processes(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        dead = [await ended(store, FAILED, max_attempts=1) for _ in range(size.race_rounds)]
    jobs = [[make_job(retry_of=job_id) for job_id in dead] for _ in range(size.race_processes)]

    rounds = await _race_to_add(url, jobs)

    for told in rounds:
        assert [added.created for added in told].count(True) == 1
        assert [bool(added.refused) for added in told].count(False) == 1


async def test_one_lease_is_finished_once_between_processes(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        claims = [await started(store) for _ in range(size.race_rounds)]

    told = await race(
        url,
        [
            [partial(finish_one, lease=claim.lease, result=f"{number}") for claim in claims]
            for number in range(size.race_processes)
        ],
    )

    async with opened(url) as store:
        for claim, answers in zip(claims, zip(*told, strict=True), strict=True):
            [run] = await store.runs(claim.id)
            assert answers.count(True) == 1
            assert run.result == f"{answers.index(True)}", "the result is the winner's"


async def test_one_lapsed_run_is_reclaimed_once_between_processes(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        lapsed = [await _lapsed(store, Delivery.LEASE) for _ in range(size.race_rounds)]

    told = await race(url, [[partial(reclaim_all, successors=())] for _ in range(2)])

    async with opened(url) as store:
        assert sum(count for [count] in told) == len(lapsed)
        for job_id in lapsed:
            job = await job_of(store, job_id)
            assert (job.state, job.failures, job.losses) == (State.QUEUED, 1, 1)
            assert await kinds(store, job_id) == [EventKind.REQUEUED]


async def test_one_lapsed_chain_job_gets_one_successor_between_processes(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        lapsed = [await _lapsed(store, Delivery.LINKED) for _ in range(size.race_rounds)]
    ids = [[new_id() for _ in lapsed] for _ in range(2)]

    await race(url, [[partial(reclaim_all, successors=own)] for own in ids])

    async with opened(url) as store:
        chains = [await store.chain(job_id) for job_id in lapsed]
    assert [len(chain) for chain in chains] == [2] * len(lapsed)
    assert [chain[1].failures for chain in chains] == [1] * len(lapsed)


async def test_finish_and_reclaim_never_both_count(url: str) -> None:
    async with opened(url) as store:
        job_id = await _lapsed(store, Delivery.LEASE)

    finisher = partial(finish_one, lease=Lease(job_id, 1), result="1")
    runners: list[list[Act[int]]] = [[finisher], [partial(reclaim_all, successors=())]]
    told = await race(url, runners)

    async with opened(url) as store:
        job, [run] = await job_of(store, job_id), await store.runs(job_id)
    [finished], [reclaimed] = told
    assert finished + reclaimed == 1
    assert job.state is (State.SUCCEEDED if finished else State.QUEUED)
    assert run.status is (RunStatus.SUCCEEDED if finished else RunStatus.LOST)


async def test_renewal_by_another_process_is_seen(url: str) -> None:
    async with opened(url) as store:
        job_id = await _lapsed(store, Delivery.LEASE)

        [[held]] = await race(url, [[partial(renew_one, lease=Lease(job_id, 1))]])

        assert held
        assert await store.expired_leases(limit=MANY) == []


async def test_fresh_process_finds_all_as_it_was_left(url: str) -> None:
    async with opened(url) as store:
        await ended(store, SUCCEEDED)
        await ended(store, FAILED, delivery=Delivery.LINKED)
        await take(store)
        for number in range(20):
            await put(store, priority=number % 3)
        before = await everything(store)

    [[found]] = await race(url, [[everything]])

    assert found == before


async def test_one_lock_has_one_holder_between_processes(url: str) -> None:
    size = sizes.SIZES
    async with opened(url):
        rounds: list[Act[object]] = [
            partial(hold_one, name=f"round-{n}") for n in range(size.race_rounds)
        ]
        # A finished process releases all it holds, so one more round lets all finish together.
        told = await race(url, [[*rounds, everything] for _ in range(size.race_processes)])

    winners = [answers.count(True) for answers in zip(*told, strict=True)]
    assert winners[:-1] == [1] * size.race_rounds


async def test_lock_of_another_process_is_refused_until_that_is_killed(url: str) -> None:
    async with opened(url) as store, busy(url, partial(hold_one, name="host-1")) as other:
        while_it_lived = await store.acquire_lock("host-1")
        await other.kill()

        assert await store.acquire_lock("host-1") is not None
    assert while_it_lived is None


async def _lapsed(store: Store, delivery: Delivery) -> JobId:
    """A running job whose lease was over as soon as it began."""
    job_id = await put(store, delivery=delivery)
    await take(store, lease=timedelta(0))
    return job_id

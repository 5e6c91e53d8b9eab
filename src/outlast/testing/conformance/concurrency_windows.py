"""Capability SHARED: processes race for windows and debounce keys, and against claims."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Job, KeyWindow, NewJob
from outlast.core.run import Claim
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added, Filter
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import (
    HOUR,
    MANY,
    TICK,
    job_of,
    make_job,
    put,
    take_many,
)
from outlast.testing.conformance.race_runner import Act, opened, race


async def add_window(store: Store, *, job: NewJob) -> Added:
    [added] = await store.add([job])
    return added


async def claim_params(store: Store, *, queue: str) -> dict[JobId, str]:
    """The params of what this process claims, by job."""
    claims: Sequence[Claim] = await take_many(store, queue=queue)
    return {claim.id: claim.params for claim in claims}


async def _race_rounds(url: str, runners: list[list[Act[Any]]]) -> list[tuple[Any, ...]]:
    """The answers of each round, one per process."""
    return list(zip(*await race(url, runners), strict=True))


def _in_round(number: int, process: int, **over: Any) -> NewJob:
    return make_job(queue=f"round-{number}", params=f'"{process}"', **over)


async def _of_round(store: Store, number: int) -> list[Job]:
    return await store.find(Filter(queue=f"round-{number}"), limit=MANY)


async def test_one_window_has_one_winner_between_processes(url: str) -> None:
    size = sizes.SIZES
    windows = [KeyWindow(key=f"round-{n}", span=HOUR) for n in range(size.race_rounds)]
    runners: list[list[Act[Any]]] = [
        [partial(add_window, job=make_job(window=window)) for window in windows]
        for _ in range(size.race_processes)
    ]

    for told in await _race_rounds(url, runners):
        [winner] = [added.id for added in told if added.created]
        assert {added.id for added in told} == {winner}


async def test_one_window_that_is_over_has_one_winner_between_processes(url: str) -> None:
    size = sizes.SIZES
    over = [KeyWindow(key=f"round-{n}", span=TICK) for n in range(size.race_rounds)]
    async with opened(url) as store:
        before = [await put(store, window=window) for window in over]
    runners: list[list[Act[Any]]] = [
        [
            partial(add_window, job=make_job(window=KeyWindow(key=window.key, span=HOUR)))
            for window in over
        ]
        for _ in range(size.race_processes)
    ]

    for old, told in zip(before, await _race_rounds(url, runners), strict=True):
        [winner] = [added.id for added in told if added.created]
        assert {added.id for added in told} == {winner}
        assert winner != old


async def test_debounced_enqueues_of_processes_become_one_job_with_the_params_of_one(
    url: str,
) -> None:
    size = sizes.SIZES
    runners: list[list[Act[Any]]] = [
        [
            partial(
                add_window,
                job=_in_round(
                    number, process, window=KeyWindow(key=f"{number}"), delay=HOUR, replaces=True
                ),
            )
            for number in range(size.race_rounds)
        ]
        for process in range(size.race_processes)
    ]

    rounds = await _race_rounds(url, runners)

    async with opened(url) as store:
        for number, told in enumerate(rounds):
            [job] = await _of_round(store, number)
            assert {added.id for added in told} == {job.id}
            assert [added.created for added in told].count(True) == 1
            assert all(added.created != added.replaced for added in told)
            edits = [event.detail for event in await store.events(job.id)]
            assert len(set(edits)) == len(edits) == size.race_processes - 1


async def test_params_that_run_are_of_the_enqueue_that_was_told_so(url: str) -> None:
    """A replacement races against the claim: the answer says which of the two was first."""
    size = sizes.SIZES
    async with opened(url) as store:
        for number in range(size.race_rounds):
            await store.add([_in_round(number, 0, key=DedupeKey(key=f"{number}"))])
    new: list[Act[Any]] = [
        partial(
            add_window,
            job=_in_round(number, 1, key=DedupeKey(key=f"{number}"), replaces=True),
        )
        for number in range(size.race_rounds)
    ]
    claims: list[Act[Any]] = [
        partial(claim_params, queue=f"round-{number}") for number in range(size.race_rounds)
    ]

    rounds = await _race_rounds(url, [new, claims])

    async with opened(url) as store:
        for number, (added, claimed) in enumerate(rounds):
            # A claim may pass over a job that is being edited; the next claim takes it.
            taken = claimed or await claim_params(store, queue=f"round-{number}")
            assert not added.created
            assert taken == {added.id: '"1"' if added.replaced else '"0"'}


async def test_debounced_enqueue_at_the_claim_runs_once_with_it_or_after_it(url: str) -> None:
    size = sizes.SIZES
    window = [KeyWindow(key=f"{number}") for number in range(size.race_rounds)]
    async with opened(url) as store:
        for number in range(size.race_rounds):
            job = _in_round(number, 0, window=window[number], delay=TICK, replaces=True)
            await store.add([job])
    new: list[Act[Any]] = [
        partial(
            add_window,
            job=_in_round(number, 1, window=window[number], delay=TICK, replaces=True),
        )
        for number in range(size.race_rounds)
    ]
    claims: list[Act[Any]] = [
        partial(claim_params, queue=f"round-{number}") for number in range(size.race_rounds)
    ]

    rounds = await _race_rounds(url, [new, claims])

    async with opened(url) as store:
        for number, (added, claimed) in enumerate(rounds):
            jobs = await _of_round(store, number)
            if added.replaced:
                assert [job.params for job in jobs] == ['"1"']
                assert set(claimed.values()) <= {'"1"'}
            else:
                assert added.created
                assert sorted(job.params for job in jobs) == ['"0"', '"1"']
                assert (await job_of(store, added.id)).params == '"1"'

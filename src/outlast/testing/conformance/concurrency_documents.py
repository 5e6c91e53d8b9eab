"""Capability SHARED: processes race for documents and events. Takes a fixture `url`."""

import json
from functools import partial

from outlast.core.decide import decide
from outlast.core.event import Failed
from outlast.core.ids import JobId
from outlast.store.contract import Store
from outlast.testing.conformance import sizes
from outlast.testing.conformance.factories import MANY, make_job, take_many
from outlast.testing.conformance.race_runner import opened, race

DEAD = Failed("no", permanent=True)


async def count_up(store: Store, *, times: int) -> int:
    """Raise a counter that often, reading and swapping until it works; the last value written."""
    value = 0
    for _ in range(times):
        swapped = None
        while swapped is None:
            record = await store.document("note", "counter")
            assert record is not None
            value = json.loads(record.value) + 1
            swapped = await store.swap(
                "note", "counter", expected=record.version, value=json.dumps(value)
            )
    return value


async def create(store: Store, *, key: str, value: str) -> bool:
    return await store.swap("note", key, expected=None, value=value) is not None


async def kill_all(store: Store, *, queue: str) -> list[JobId]:
    """Take each job of a queue and declare it dead, one commit each."""
    for claim in await take_many(store, queue=queue):
        await store.apply([decide(claim, DEAD, new_id=lambda: claim.id)])  # noqa: B023 - never called
    return []


async def read_all(store: Store, *, number: int) -> list[JobId]:
    """Page through the stream while others write, until that many were told of."""
    seen, last = list[JobId](), 0
    while len(seen) < number:
        for event in await store.stream(after=last, limit=3):
            assert event.id > last
            assert event.job_id is not None
            seen.append(event.job_id)
            last = event.id
    return seen


async def test_processes_that_swap_one_record_lose_nothing(url: str) -> None:
    size = sizes.SIZES
    async with opened(url) as store:
        await store.swap("note", "counter", expected=None, value="0")

    acts = [[partial(count_up, times=size.race_rounds)]] * 4
    last = await race(url, acts)

    async with opened(url) as store:
        record = await store.document("note", "counter")
    assert record is not None
    assert json.loads(record.value) == 4 * size.race_rounds == max(value for [value] in last)


async def test_of_processes_that_create_one_record_one_does(url: str) -> None:
    keys = [f"key-{number}" for number in range(sizes.SIZES.race_rounds)]

    acts = [[partial(create, key=key, value=str(own)) for key in keys] for own in range(4)]
    told = await race(url, acts)

    winners = [answers.index(True) for answers in zip(*told, strict=True)]
    assert [sum(answers) for answers in zip(*told, strict=True)] == [1] * len(keys)
    async with opened(url) as store:
        values = [json.loads(record.value) for record in await store.documents("note")]
    assert values == [winner for _, winner in sorted(zip(keys, winners, strict=True))]


async def test_who_pages_through_the_stream_while_others_write_misses_nothing(url: str) -> None:
    queues = [f"lane-{number}" for number in range(3)]
    jobs = [make_job(queue=queue) for queue in queues for _ in range(sizes.SIZES.race_rounds)]
    async with opened(url) as store:
        await store.add(jobs)

    acts = [[partial(kill_all, queue=queue)] for queue in queues]
    *_, [seen] = await race(url, [*acts, [partial(read_all, number=len(jobs))]])

    assert sorted(seen) == sorted(job.id for job in jobs)
    async with opened(url) as store:
        assert [event.job_id for event in await store.stream(limit=MANY)] == seen

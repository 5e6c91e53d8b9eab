"""Headers, tags and meta: kept with their job, passed on, and found by filters."""

from dataclasses import replace
from typing import Any

import pytest

from outlast.core.delivery import Delivery
from outlast.core.event import Released
from outlast.core.ids import JobId
from outlast.core.lineage import retry_copy
from outlast.core.metadata import MAX_LABEL_VALUE, MAX_METADATA, checked, labels_to_match, to_text
from outlast.core.schedule import SlotOutcome
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Filter
from outlast.store.contract.schedules import FireResult
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
    make_firing,
    make_job,
    new_id,
    put,
    put_group,
    put_schedule,
    settle,
    started,
    take,
    take_many,
)
from outlast.verify import verify


def stored(**parts: Any) -> str:
    """Return the stored text of these headers, tags and meta."""
    text = to_text(checked(**parts))
    assert text is not None
    return text


RICH = stored(
    headers={"trace": "00-ü"}, tags=["urgent"], meta={"tenant": "acme", "deep": {"n": [1]}}
)


async def ids_of(store: Store, *, limit: int = MANY, before: int | None = None,
                 tags: list[str] | None = None, meta: dict[str, Any] | None = None,
                 **filters: Any) -> list[JobId]:  # fmt: skip
    """Return the ids of the jobs that a filter with these tags and meta finds."""
    what = Filter(labels=labels_to_match(tags=tags, meta=meta), **filters)
    return [job.id for job in await store.find(what, limit=limit, before=before)]


async def test_job_keeps_its_metadata_and_shows_it_to_its_run(store: Store) -> None:
    claim = await started(store, metadata=RICH)

    job = await job_of(store, claim.id)

    assert claim.metadata == job.metadata == RICH
    assert job.headers == {"trace": "00-ü"}
    assert job.tags == ("urgent",)
    assert job.meta == {"tenant": "acme", "deep": {"n": [1]}}


async def test_job_without_metadata_has_none(store: Store) -> None:
    claim = await started(store)

    job = await job_of(store, claim.id)

    assert claim.metadata is job.metadata is None
    assert (job.headers, job.tags, job.meta) == ({}, (), {})


async def test_each_job_of_a_batch_keeps_its_own_metadata(store: Store) -> None:
    texts = [None, stored(tags=["a"]), stored(tags=["a"]), stored(tags=["b"]), None]
    jobs = [make_job(metadata=text) for text in texts]

    await store.add(jobs)

    assert [job and job.metadata for job in await store.get([job.id for job in jobs])] == texts
    claimed = {claim.id: claim.metadata for claim in await take_many(store)}
    assert claimed == {job.id: job.metadata for job in jobs}
    assert await ids_of(store, tags=["a"]) == [jobs[2].id, jobs[1].id]


async def test_metadata_stays_with_a_job_that_runs_again(store: Store) -> None:
    await settle(store, await started(store, metadata=RICH), Released("shutdown"))
    await settle(store, await take(store), Released("again"))

    assert (await take(store)).metadata == RICH


async def test_successor_and_retry_have_the_metadata_of_their_job(store: Store) -> None:
    linked = {"delivery": Delivery.LINKED, "max_attempts": 2, "metadata": RICH}
    first = await ended(store, FAILED, **linked)
    second = await take(store)
    await settle(store, second, FAILED)

    retry = retry_copy(await job_of(store, second.id), new_id())
    await store.add([retry])

    assert second.metadata == RICH
    assert (await job_of(store, retry.id)).metadata == RICH
    assert await ids_of(store, tags=["urgent"]) == [retry.id, second.id, first]
    assert await ids_of(store, meta={"tenant": "acme"}) == [retry.id, second.id, first]
    assert (await verify(store)).violations == ()


async def test_job_of_a_slot_and_of_a_group_have_metadata(store: Store, clock: FakeClock) -> None:
    plans = [await put_schedule(store, clock.now() - SECOND, name=name) for name in "ab"]
    firings = [make_firing(schedule, SlotOutcome.RAN) for schedule in plans]
    labelled = [replace(f, job=f.job and replace(f.job, metadata=RICH)) for f in firings]

    fired = await store.fire(labelled)
    group, members = await put_group(store, make_job(metadata=RICH), make_job())

    assert fired == [FireResult.WRITTEN] * 2
    slots = [firing.job.id for firing in firings if firing.job]
    assert set(await ids_of(store, tags=["urgent"])) == {*slots, members[0]}
    assert await ids_of(store, tags=["urgent"], group=group) == members[:1]


MISSHAPEN = {
    "no JSON": "{",
    "no object": "[]",
    "empty": "{}",
    "no tags": '{"tags":[]}',
    "one tag twice": '{"tags":["a","a"]}',
    "tags as text": '{"tags":"a"}',
    "a number as tag": '{"tags":[1]}',
    "a number as header": '{"headers":{"a":1}}',
    "meta as list": '{"meta":[]}',
    "a space in a name": '{"meta":{"a b":1}}',
    "one name twice": '{"meta":{"a":1,"a":2}}',
    "spaces": '{"meta": {"a":1}}',
    "NUL": '{"meta":{"a":"\\u0000"}}',
    "NaN": '{"meta":{"a":NaN}}',
    "unknown part": '{"more":{}}',
    "too long": f'{{"headers":{{"a":"{"x" * MAX_METADATA}"}}}}',
}


@pytest.mark.parametrize("text", MISSHAPEN.values(), ids=MISSHAPEN)
async def test_metadata_of_another_form_is_refused_alone(store: Store, text: str) -> None:
    jobs = [make_job(), make_job(metadata=text), make_job(metadata=RICH)]

    added = await store.add(jobs)

    assert [answer.created for answer in added] == [True, False, True]
    assert added[1].refused
    assert await store.get([jobs[1].id]) == [None]
    assert (await verify(store)).violations == ()


async def test_largest_metadata_is_kept(store: Store) -> None:
    tags = [f"{n:02}{'ö' * 62}" for n in range(16)]
    meta = {f"name-{n}": "v" * 90 for n in range(32)}
    left = MAX_METADATA - len(stored(tags=tags, meta=meta, headers={"rest": ""}).encode())
    text = stored(tags=tags, meta=meta, headers={"rest": "h" * left})
    assert len(text.encode()) == MAX_METADATA

    claim = await started(store, metadata=text)

    assert claim.metadata == text
    assert await ids_of(store, tags=tags, meta=meta) == [claim.id]
    assert (await verify(store)).violations == ()


HOSTILE = ["%", "_", "'; --", '"', "\\", "a:b", "tag:a", "ü", "🎈", " ", "\n", "\x1b[0m", "null"]


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_label_is_found_by_its_exact_text(store: Store, text: str) -> None:
    one = await put(store, metadata=stored(tags=[text], meta={"m.n-o": text}))
    await put(store, metadata=stored(tags=[text + "x"], meta={"m.n-o": text + "x"}))
    await put(store, metadata=stored(headers={"tag": text}))

    assert await ids_of(store, tags=[text]) == [one]
    assert await ids_of(store, meta={"m.n-o": text}) == [one]
    assert (await verify(store)).violations == ()


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (5, "5"),
        (1.5, "1.5"),
        (1e22, "1e+22"),
        (True, "true"),
        (None, "null"),
        (-(2**63), "-9223372036854775808"),
    ],
)
async def test_meta_matches_by_the_text_of_its_value(store: Store, value: Any, same: str) -> None:
    both = [await put(store, metadata=stored(meta={"n": each})) for each in (value, same)]

    assert await ids_of(store, meta={"n": value}) == both[::-1]
    assert await ids_of(store, meta={"n": same}) == both[::-1]
    assert await ids_of(store, meta={"n": "other"}) == []
    assert (await verify(store)).violations == ()


async def test_objects_lists_and_long_texts_of_meta_are_kept_and_not_matched(store: Store) -> None:
    long = "x" * (MAX_LABEL_VALUE + 1)
    meta = {"object": {"a": 1}, "list": [1], "long": long, "short": long[1:]}
    job_id = await put(store, metadata=stored(meta=meta))

    assert (await job_of(store, job_id)).meta == meta
    assert await ids_of(store, meta={"short": long[1:]}) == [job_id]
    assert await ids_of(store, meta={"object": "a"}) == []
    assert (await verify(store)).violations == ()


async def test_filter_finds_jobs_that_have_every_label_newest_first(store: Store) -> None:
    red, both = stored(tags=["red"]), stored(tags=["red", "big"], meta={"tenant": "acme"})
    jobs = [make_job(metadata=text) for text in (red, both, None, red, both)]
    await store.add(jobs)
    known = [job.id for job in jobs]

    assert await ids_of(store, tags=["red"]) == [known[4], known[3], known[1], known[0]]
    assert await ids_of(store, tags=["red", "big"]) == [known[4], known[1]]
    assert await ids_of(store, tags=["red"], meta={"tenant": "acme"}) == [known[4], known[1]]
    assert await ids_of(store, tags=["red", "none"]) == []
    assert await ids_of(store, tags=["Red"]) == []


async def test_filter_by_label_goes_with_every_other_filter(store: Store) -> None:
    mine: dict[str, Any] = {"metadata": stored(tags=["t"])}
    done = await ended(store, SUCCEEDED, **mine)
    dead = await ended(store, FAILED, max_attempts=1, **mine)
    running = (await started(store, queue="other", **mine)).id
    waiting = await put(store, type="mail", active_key="k", **mine)
    await put(store, type="mail", queue="other")

    async def found(**filters: Any) -> list[JobId]:
        return await ids_of(store, tags=["t"], **filters)

    assert await found(states=frozenset({State.SUCCEEDED})) == [done]
    assert await found(states=frozenset({State.DEAD_LETTER})) == [dead]
    assert await found(states=frozenset({State.RUNNING, State.QUEUED})) == [waiting, running]
    assert await found(queue="other") == [running]
    assert await found(type="mail") == [waiting]
    assert await found(key="k") == [waiting]
    assert await found(prefix=dead) == [dead]
    assert await found(key="another") == []


async def test_pages_of_a_label_have_every_job_once(store: Store) -> None:
    jobs = [make_job(metadata=stored(tags=["odd" if n % 2 else "even"])) for n in range(11)]
    await store.add(jobs)
    what = Filter(labels=labels_to_match(tags=["even"], meta=None))

    pages, before = [], None
    while page := await store.find(what, limit=2, before=before):
        pages.append([job.id for job in page])
        before = page[-1].seq

    assert [job_id for page in pages for job_id in page] == [job.id for job in jobs[::-2]]
    assert [len(page) for page in pages] == [2, 2, 2]


async def test_filter_ends_at_its_oldest_time(store: Store, clock: FakeClock) -> None:
    ids = []
    for _ in range(3):
        ids.append(await put(store, metadata=RICH))
        clock.advance(HOUR)
    since = clock.now() - 2 * HOUR

    assert await ids_of(store, since=since) == ids[:0:-1]
    assert await ids_of(store, since=since, tags=["urgent"]) == ids[:0:-1]
    assert await ids_of(store, since=clock.now(), tags=["urgent"]) == []


async def test_labels_go_with_their_job(store: Store, clock: FakeClock) -> None:
    await ended(store, SUCCEEDED, metadata=RICH)
    clock.advance(HOUR + TICK)
    stays = await put(store, metadata=RICH)

    assert await store.prune(older_than=HOUR, limit=MANY) == 1

    assert await ids_of(store, tags=["urgent"]) == [stays]
    assert (await verify(store)).violations == ()

"""`add` stores each job once and as given, or refuses it whole."""

from datetime import timedelta

import pytest

from outlast.core.delivery import Delivery
from outlast.core.ids import JobId
from outlast.core.job import DedupeKey, Slot
from outlast.core.limits import MAX_KEY, MAX_PAYLOAD, MAX_PRIORITY, MIN_PRIORITY
from outlast.core.state import State
from outlast.store.contract import Store
from outlast.store.contract.jobs import Added
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    SECOND,
    TICK,
    job_of,
    make_job,
    new_id,
    put,
    started,
)


async def test_added_job_is_there_as_it_was_asked(store: Store, clock: FakeClock) -> None:
    asked = make_job(
        type="story.write",
        params='{"words":900}',
        name="morning-story",
        queue="stories",
        delivery=Delivery.LINKED,
        priority=7,
        max_attempts=3,
        group_id="group-1",
        template_id="template-1",
        schedule_id="schedule-1",
    )

    [added] = await store.add([asked])

    job = await job_of(store, asked.id)
    assert added == Added(asked.id, created=True)
    assert (job.id, job.type, job.params) == (asked.id, "story.write", '{"words":900}')
    assert (job.name, job.queue, job.delivery) == ("morning-story", "stories", Delivery.LINKED)
    assert (job.priority, job.max_attempts) == (7, 3)
    assert (job.group_id, job.template_id) == ("group-1", "template-1")
    assert job.schedule_id == "schedule-1"
    assert (job.created_at, job.available_at) == (clock.now(), clock.now())


async def test_new_job_has_done_nothing_yet(store: Store) -> None:
    job_id = await put(store)

    job = await job_of(store, job_id)

    assert (job.token, job.failures, job.losses, job.cancel_requested) == (0, 0, 0, False)
    assert (job.retry_of, job.root_id) == (None, job_id)
    assert (job.holder, job.boot_id, job.started_at) == (None, None, None)
    assert (job.finished_at, job.reason) == (None, None)
    assert (job.slot_at, job.start_deadline) == (None, None)
    assert (await store.runs(job_id), await store.events(job_id)) == ([], [])


async def test_max_attempts_may_be_without_limit(store: Store) -> None:
    job_id = await put(store, max_attempts=None)

    assert (await job_of(store, job_id)).max_attempts is None


async def test_job_due_now_is_queued(store: Store, clock: FakeClock) -> None:
    past = clock.now() - HOUR

    plain = await put(store)
    undelayed = await put(store, delay=timedelta(0))
    late = await put(store, at=past)

    assert (await job_of(store, plain)).state is State.QUEUED
    assert (await job_of(store, undelayed)).state is State.QUEUED
    assert (await job_of(store, late)).state is State.QUEUED
    assert (await job_of(store, late)).available_at == past


async def test_job_due_later_is_scheduled(store: Store, clock: FakeClock) -> None:
    delayed = await job_of(store, await put(store, delay=HOUR))
    dated = await job_of(store, await put(store, at=clock.now() + TICK))

    assert (delayed.state, delayed.available_at) == (State.SCHEDULED, clock.now() + HOUR)
    assert (dated.state, dated.available_at) == (State.SCHEDULED, clock.now() + TICK)


async def test_slot_yet_to_come_says_when_a_job_is_due(store: Store, clock: FakeClock) -> None:
    later = clock.now() + HOUR

    job = await job_of(store, await put(store, slot=Slot(series="daily", at=later)))

    assert (job.state, job.available_at, job.slot_at) == (State.SCHEDULED, later, later)


async def test_slot_gone_by_is_due_at_once(store: Store, clock: FakeClock) -> None:
    earlier = clock.now() - HOUR

    job = await job_of(store, await put(store, slot=Slot(series="daily", at=earlier)))

    assert (job.state, job.available_at, job.slot_at) == (State.QUEUED, clock.now(), earlier)


async def test_delay_goes_before_the_slot_s_own_time(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="daily", at=clock.now() + HOUR)

    job = await job_of(store, await put(store, slot=slot, delay=SECOND))

    assert (job.available_at, job.slot_at) == (clock.now() + SECOND, slot.at)


async def test_start_deadline_counts_from_the_due_time(store: Store, clock: FakeClock) -> None:
    job = await job_of(store, await put(store, delay=HOUR, start_within=SECOND))

    assert job.start_deadline == clock.now() + HOUR + SECOND


async def test_start_deadline_counts_from_the_slot(store: Store, clock: FakeClock) -> None:
    slot = Slot(series="daily", at=clock.now() - SECOND)

    job = await job_of(store, await put(store, slot=slot, start_within=HOUR))

    assert job.start_deadline == slot.at + HOUR


async def test_answers_come_in_the_order_given(store: Store) -> None:
    await put(store, key=DedupeKey(key="taken"))
    jobs = [make_job(), make_job(key=DedupeKey(key="taken")), make_job(priority=10**6), make_job()]

    added = await store.add(jobs)

    assert [answer.created for answer in added] == [True, False, False, True]
    assert [answer.refused is not None for answer in added] == [False, False, True, False]
    assert (added[0].id, added[3].id) == (jobs[0].id, jobs[3].id)


async def test_adding_nothing_adds_nothing(store: Store) -> None:
    added = await store.add([])

    assert added == []
    assert dict(await store.counts()) == {}


async def test_adding_an_id_again_changes_nothing(store: Store) -> None:
    first = make_job(params='{"n":1}')
    await store.add([first])
    before = await job_of(store, first.id)

    [again] = await store.add([make_job(id=first.id, params='{"n":2}', priority=9)])

    assert again == Added(first.id, created=False)
    assert await job_of(store, first.id) == before


async def test_adding_an_id_twice_in_one_call_stores_it_once(store: Store) -> None:
    job = make_job()

    added = await store.add([job, job])

    assert added == [Added(job.id, created=True), Added(job.id, created=False)]
    assert sum((await store.counts()).values()) == 1


async def test_adding_an_id_again_leaves_its_run_alone(store: Store) -> None:
    claim = await started(store)

    [again] = await store.add([make_job(id=claim.id)])

    assert again == Added(claim.id, created=False)
    assert (await job_of(store, claim.id)).state is State.RUNNING


async def test_text_comes_back_as_it_went_in(store: Store) -> None:
    params = '{"word":"naïve 東京 \U0001f433","quote":"it\'s \\"so\\"","slash":"\\\\"}'

    job = await job_of(store, await put(store, params=params))

    assert job.params == params


async def test_params_up_to_the_limit_are_kept(store: Store) -> None:
    params = '"' + "é" * (MAX_PAYLOAD // 2 - 1) + '"'

    job = await job_of(store, await put(store, params=params))

    assert len(params.encode()) == MAX_PAYLOAD
    assert job.params == params


async def test_names_and_priorities_up_to_their_bounds_are_kept(store: Store) -> None:
    longest = "aZ0_.:-" * 18 + "zz"
    low = await put(store, name=longest, queue=longest, type=longest, priority=MIN_PRIORITY)
    high = await put(store, priority=MAX_PRIORITY)

    assert len(longest) == 128
    assert (await job_of(store, low)).name == longest
    assert (await job_of(store, low)).priority == MIN_PRIORITY
    assert (await job_of(store, high)).priority == MAX_PRIORITY


@pytest.mark.parametrize(
    "over",
    [
        {"params": '"' + "x" * (MAX_PAYLOAD - 1) + '"'},
        {"params": '"' + "é" * (MAX_PAYLOAD // 2) + '"'},
        {"params": '"\ud800"'},
        {"name": ""},
        {"name": "n" * 129},
        {"queue": "two words"},
        {"type": "naïve"},
        {"type": "trailing\n"},
        {"key": DedupeKey(key="")},
        {"key": DedupeKey(key="k" * (MAX_KEY + 1))},
        {"key": DedupeKey(key="k", bucket="b" * (MAX_KEY + 1))},
        {"active_key": ""},
        {"active_key": "a" * (MAX_KEY + 1)},
        {"slot": Slot(series="two words", at=START)},
        {"priority": MIN_PRIORITY - 1},
        {"priority": MAX_PRIORITY + 1},
        {"retry_of": JobId("00000000-0000-7000-8000-ffffffffffff")},
    ],
    ids=lambda over: next(iter(over)),
)
async def test_what_cannot_be_kept_is_refused_whole(store: Store, over: dict[str, object]) -> None:
    job = make_job(**{"key": DedupeKey(key="k"), "active_key": "a", **over})

    [refused] = await store.add([job])

    [stored] = await store.get([job.id])
    assert (refused.id, refused.created) == (job.id, False)
    assert refused.refused
    assert stored is None
    assert await put(store, key=DedupeKey(key="k"), active_key="a"), "its keys are still free"


async def test_get_answers_in_the_order_asked(store: Store) -> None:
    first, second = await put(store), await put(store)

    found = await store.get([second, new_id(), first, second])

    assert [job and job.id for job in found] == [second, None, first, second]

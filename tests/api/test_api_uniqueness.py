"""How long a key is held, what a further enqueue does, and what is refused before it is stored."""

import re
from datetime import timedelta

import pytest

from outlast import DuplicateJob, InvalidGroup, InvalidJob, InvalidType, State

HOUR = timedelta(hours=1)


@pytest.fixture
def clock(outlast_clock):
    return outlast_clock


@pytest.fixture
def send(outlast):
    @outlast.app.job(queue="mail")
    def send(number: int = 0) -> int:
        return number

    return send


async def test_an_enqueue_within_the_window_gets_the_job_of_the_first(send, clock):
    keyed = send.options(key="k", unique_for="1h")
    first, within = await keyed.enqueue(1), await keyed.enqueue(2)
    clock.advance(HOUR)

    after = await keyed.enqueue(3)

    assert (within.id, within.created, within.replaced) == (first.id, False, False)
    assert (after.created, after.replaced) == (True, False)
    assert (await first.read()).params == '{"number":1}'


async def test_a_waiting_job_takes_the_new_params_and_the_handle_says_so(send):
    keyed = send.options(key="k", key_until="end", on_conflict="replace")
    first = await keyed.enqueue(1)

    again = await keyed.enqueue(2)

    assert (again.id, again.created, again.replaced) == (first.id, False, True)
    assert (await first.read()).params == '{"number":2}'


async def test_the_key_of_a_cancelled_job_is_free_if_it_is_held_until_the_end(send):
    held, forever = send.options(key="k", key_until="end"), send.options(key="f")
    for keyed in (held, forever):
        await (await keyed.enqueue(1)).cancel()

    assert (await held.enqueue(2)).created
    assert not (await forever.enqueue(2)).created


async def test_a_burst_becomes_one_job_that_is_due_after_the_last(send, clock):
    burst = send.options(key="k", debounce="30s", at_most="1m")
    created = clock.now()
    handles = []
    for number in range(4):
        handles.append(await burst.enqueue(number))
        clock.advance(timedelta(seconds=20))

    job = await handles[0].read()
    assert {handle.id for handle in handles} == {job.id}
    assert [handle.created for handle in handles] == [True, False, False, False]
    assert (job.params, job.state) == ('{"number":3}', State.SCHEDULED)
    assert job.available_at == created + timedelta(minutes=1)


async def test_defaults_of_a_type_apply_to_its_jobs_with_a_key(outlast, clock):
    @outlast.app.job(unique_for="1h", on_conflict="reject")
    def digest(user: int) -> None: ...

    await digest.options(key="k").enqueue(1)
    with pytest.raises(DuplicateJob):
        await digest.options(key="k").enqueue(2)
    other_kind = await digest.options(key="k", key_until="forever").enqueue(3)
    plain = [await digest.enqueue(4), await digest.enqueue(4)]
    clock.advance(HOUR)

    assert other_kind.created
    assert all(handle.created for handle in plain)
    assert (await digest.options(key="k").enqueue(5)).created


async def test_at_most_of_a_call_narrows_the_debounce_of_its_type(outlast, clock):
    @outlast.app.job(debounce="30s")
    def index(page: int) -> None: ...

    created = clock.now()
    await index.options(key="k", at_most="40s").enqueue(1)
    clock.advance(timedelta(seconds=20))
    handle = await index.options(key="k", at_most="40s").enqueue(2)

    assert (await handle.read()).available_at == created + timedelta(seconds=40)


async def test_many_and_templates_replace_too(outlast, send):
    keyed = {"key": "k", "unique_for": "1h", "on_conflict": "replace"}
    first = await send.options(**keyed).enqueue(1)
    many = await outlast.app.enqueue_many([send.options(**keyed).bind(2), send.bind(3)])
    params = (await first.read()).params
    await outlast.app.templates.save("weekly", send, params={"number": 4})
    by_template = await outlast.app.templates.options("weekly", **keyed).enqueue()

    assert [(handle.id == first.id, handle.replaced) for handle in many] == [
        (True, True),
        (False, False),
    ]
    assert params == '{"number":2}'
    assert (by_template.id, by_template.replaced) == (first.id, True)
    assert (await first.read()).params == '{"number":4}'


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"unique_for": "1h"}, "unique_for was given without key"),
        ({"debounce": "1s"}, "debounce was given without key"),
        ({"key_until": "end"}, "key_until was given without key"),
        ({"on_conflict": "replace"}, 'on_conflict="replace" was given without key'),
        ({"key": "k", "unique_for": "0s"}, "unique_for is '0s'; give a span such as \"1h\""),
        ({"key": "k", "unique_for": "4000d"}, "at most 3650 days"),
        ({"key": "k", "unique_for": "1 hour"}, 'write "1h"'),
        ({"key": "k", "unique_for": timedelta(seconds=-1)}, "must lie between zero"),
        ({"key": "k", "debounce": "0s"}, "debounce is '0s'"),
        ({"key": "k", "key_until": "ever"}, "key_until is 'ever'; use forever, end"),
        ({"key": "k", "unique_for": "1h", "debounce": "1s"}, "give one of them"),
        ({"key": "k", "unique_for": "1h", "key_until": "end"}, "give one of them"),
        ({"key": "k", "at_most": "1h"}, "at_most was given without debounce"),
        ({"key": "k", "debounce": "1h", "at_most": "1m"}, "at least as long as debounce"),
        ({"key": "k", "debounce": "1s", "delay": "1s"}, "debounce was given with delay"),
        ({"key": "k", "debounce": "1s", "on_conflict": "reject"}, "leave on_conflict out"),
        ({"key": "k", "bucket": "b", "key_until": "end"}, "key='k:b'"),
    ],
)
async def test_an_option_about_a_key_that_makes_no_sense_is_refused(outlast, send, options, why):
    with pytest.raises(InvalidJob, match=re.escape(why)):
        await send.options(**options).enqueue(1)

    assert (await outlast.app.jobs.page()).jobs == []


@pytest.mark.parametrize("options", [{"debounce": "1s"}, {"on_conflict": "replace"}])
async def test_a_job_for_a_slot_and_a_member_of_a_group_replace_nothing(
    outlast, send, clock, options
):
    replacing = send.options(key="k", **options)

    with pytest.raises(InvalidJob, match="slot were both given"):
        send.options(key="k", slot=clock.now(), **options)
    with pytest.raises(InvalidGroup, match="a group has jobs of its own"):
        await outlast.app.groups.start([replacing.bind(1)])
    with pytest.raises(InvalidJob, match="key makes no sense with run_now"):
        await replacing.run_now(1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"unique_for": "0s"}, "unique_for is '0s'"),
        ({"on_conflict": "return"}, "use existing, skip, reject, replace"),
        ({"delivery": "once", "debounce": "1s"}, "delivery once takes a slot"),
        ({"at_most": "1h"}, "at_most was given without debounce"),
    ],
)
def test_a_type_whose_keys_make_no_sense_is_refused(outlast, options, why):
    with pytest.raises(InvalidType, match=f'job type "bad": .*{re.escape(why)}'):
        outlast.app.job(name="bad", **options)(lambda: None)

"""What may be asked of one job, and what is refused before anything is stored."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from outlast import Backoff, DuplicateJob, InvalidJob, Slot, State
from outlast.core.job import NewJob
from outlast.jobs.options import JobFactory, new_job
from outlast.jobs.policy import Policy
from outlast.testing.clock import START

MIDNIGHT = datetime(2026, 1, 6, tzinfo=UTC)


@pytest.fixture
def send(outlast):
    @outlast.app.job(retry=Backoff(3), queue="mail", priority=2)
    def send(number: int = 0) -> int:
        return number

    return send


@pytest.fixture
def report(outlast):
    @outlast.app.job(delivery="once")
    def report() -> None: ...

    return report


async def test_without_options_a_job_is_as_its_type_says(send):
    job = await (await send.enqueue(7)).read()

    assert (job.type, job.name, job.params) == ("send", "send", '{"number":7}')
    assert (job.queue, job.priority, job.max_attempts) == ("mail", 2, 3)
    assert (job.state, job.available_at) == (State.QUEUED, START)


async def test_options_are_for_one_job_only(send):
    wished = send.options(
        priority=-1, queue="slow", max_attempts=9, delay="5m", start_within="1h", group_id="g"
    )

    job = await (await wished.enqueue(number=1)).read()
    plain = await (await send.enqueue(number=2)).read()

    assert (job.priority, job.queue, job.max_attempts, job.group_id) == (-1, "slow", 9, "g")
    assert (job.state, job.available_at) == (State.SCHEDULED, START + timedelta(minutes=5))
    assert job.start_deadline == job.available_at + timedelta(hours=1)
    assert (plain.priority, plain.queue, plain.group_id) == (2, "mail", None)


async def test_at_is_a_moment_in_any_zone(send):
    east = timezone(timedelta(hours=5))

    job = await (await send.options(at=datetime(2026, 1, 6, 5, tzinfo=east)).enqueue()).read()

    assert job.available_at == MIDNIGHT
    assert job.state is State.SCHEDULED


async def test_a_key_returns_the_job_that_holds_it(send, outlast):
    keyed = send.options(key="invoice:3")

    first, again = await keyed.enqueue(1), await keyed.enqueue(2)
    other = await send.options(key="invoice:3", bucket="2026-01-06").enqueue(3)

    assert (first.created, again.created, other.created) == (True, False, True)
    assert again.id == first.id
    outlast.assert_enqueued(send, count=2)


async def test_an_active_key_is_free_again_when_its_job_has_ended(send, outlast):
    active = send.options(key="sync", key_until="end")

    first, again = await active.enqueue(), await active.enqueue()
    await outlast.drain()
    later = await active.enqueue()

    assert (again.id, again.created) == (first.id, False)
    assert later.created


async def test_a_taken_key_is_rejected_when_the_caller_says_so(send, outlast):
    first = await send.options(key="k").enqueue()

    with pytest.raises(DuplicateJob, match=f"job {first.id} has its key or slot; use") as refusal:
        await send.options(key="k", on_conflict="reject").enqueue()

    assert refusal.value.existing == first.id
    outlast.assert_enqueued(send, count=1)


async def test_a_taken_key_is_skipped_when_the_caller_says_so(send):
    first = await send.options(key="k").enqueue()

    skipped = await send.options(key="k", on_conflict="skip").enqueue()

    assert (skipped.id, skipped.created) == (first.id, False)


async def test_a_slot_is_taken_once(report):
    first = await report.options(slot=MIDNIGHT).enqueue()
    again = await report.options(slot=Slot(series="report", at=MIDNIGHT)).enqueue()

    assert (again.id, again.created) == (first.id, False)
    assert (await first.read()).slot_at == MIDNIGHT
    assert (await first.read()).max_attempts == 1


async def test_a_once_job_says_which_slot_it_takes(report, outlast):
    for ask in (report.enqueue, report.options(key="k").enqueue):
        with pytest.raises(InvalidJob, match='"report" is delivered once per slot; say which'):
            await ask()
    bound = report.bind()  # for a schedule, whose slots it gets
    for take in (outlast.app.enqueue_many, outlast.app.groups.start):
        with pytest.raises(InvalidJob, match="say which one"):
            await take([bound])
    with pytest.raises(InvalidJob, match="slot is of series 'other'; the slots of \"report\""):
        report.options(slot=Slot(series="other", at=MIDNIGHT))
    with pytest.raises(InvalidJob, match='max_attempts was given, but "report" is delivered once'):
        report.options(slot=MIDNIGHT, max_attempts=2)

    outlast.assert_not_enqueued(report)


WRONG = [
    ({"delay": "-1s"}, "delay is '-1s'; write a timedelta or text"),
    ({"delay": timedelta(seconds=-1)}, "delay is -1 day.*; it must lie between zero and"),
    ({"delay": "999999999d"}, "delay is 999999999 days.*; it must lie between zero and 36500 days"),
    ({"delay": 5}, 'delay is 5; write "5s" or "5m"'),
    ({"delay": "1s", "at": MIDNIGHT}, "delay and at were both given; .* give one of them"),
    ({"at": datetime(2026, 1, 6)}, "at is datetime.*; use a datetime with a time zone"),  # noqa: DTZ001
    ({"at": "2026-01-06"}, "at is '2026-01-06'; use a datetime"),
    ({"at": datetime(1, 1, 1, tzinfo=UTC)}, "at is 0001-.*; it must lie between 1970 and 9000"),
    ({"at": datetime.max.replace(tzinfo=UTC)}, "must lie between 1970 and 9000"),
    ({"start_within": "soon"}, "start_within is 'soon'"),
    ({"priority": 32_768}, "priority is 32768; it must lie in"),
    ({"priority": -32_769}, "priority is -32769; it must lie in"),
    ({"priority": True}, "priority is True; use a whole number"),
    ({"priority": 10**5000}, "priority has more than 64 bits"),
    ({"max_attempts": 10**5000}, "max_attempts has more than 64 bits"),
    ({"queue": "no spaces"}, "queue is 'no spaces'; use 1 to 128 of the characters"),
    ({"queue": ""}, "queue is ''"),
    ({"queue": "x" * 10_000_000}, "queue is 'xxx"),
    ({"key": ""}, "key is ''; use text of 1 to 512 characters"),
    ({"key": "k" * 513}, "key is 'kkk"),
    ({"key": "a\0"}, "key is .*; NUL and lone surrogates cannot be stored"),
    ({"key": "\ud800"}, "key is .*; NUL and lone surrogates cannot be stored"),
    ({"key": 3}, "key is 3; use text"),
    ({"bucket": "b"}, "bucket was given without key; .* give both"),
    ({"key": "k", "bucket": "\0"}, "bucket is"),
    ({"key": "", "key_until": "end"}, "key is ''"),
    ({"group_id": "g" * 1000}, "group_id is"),
    ({"max_attempts": 0}, "max_attempts is 0; use a whole number from 1 to"),
    ({"max_attempts": -3}, "max_attempts is -3"),
    ({"max_attempts": 10**9}, "max_attempts is 1000000000"),
    ({"max_attempts": True}, "max_attempts is True"),
    ({"slot": datetime(2026, 1, 6)}, "slot is datetime.*; use a datetime with a time zone"),  # noqa: DTZ001
    ({"slot": Slot(series="a b", at=MIDNIGHT)}, "series is 'a b'"),
    ({"slot": 7}, "slot is 7; use a datetime with a time zone"),
    ({"on_conflict": "ignore"}, "on_conflict is 'ignore'; use existing, skip, reject, replace"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words for _, words in WRONG])
async def test_options_that_cannot_be_are_refused(send, outlast, options, words):
    with pytest.raises(InvalidJob, match=words) as refusal:
        await send.options(**options).enqueue()

    assert len(str(refusal.value)) < 500
    outlast.assert_not_enqueued(send)


def test_a_mould_makes_what_the_class_itself_would_make():
    policy = Policy.new(name="send", queue="mail", priority=3)
    like = new_job(policy, key="k", bucket="b", delay="1s", group_id="g", slot=MIDNIGHT)

    made = JobFactory(like).make("id", "{}")

    assert made == NewJob(
        id="id",
        params="{}",
        **{name: getattr(like, name) for name in vars(like) if name not in {"id", "params"}},
    )

"""Assertions about what was enqueued: who fits, and the words when nobody does."""

from datetime import UTC, datetime, timedelta
from unittest.mock import ANY

import pytest
from pydantic import BaseModel

from outlast import Backoff, InvalidParams, InvalidType, Outlast, Run, State, TypeNotFound
from outlast.testing.enqueued import shown_span
from outlast.testing.harness import Harness

MIDNIGHT = datetime(2026, 1, 6, tzinfo=UTC)


class Address(BaseModel):
    street: str


app = Outlast("sqlite:////nowhere/that/exists/jobs.db")
other = Outlast("sqlite:////nowhere/that/exists/jobs.db")


@app.job
async def send(run: Run, number: int, copy: bool = False, to: Address | None = None) -> None: ...


@app.job(queue="slow")
async def remind(at: datetime, count: int = 1) -> None: ...


@app.job(delivery="linked", retry=Backoff(2))
async def breaks() -> None:
    raise ValueError


@other.job(name="send")
async def foreign(number: int) -> None: ...


@pytest.fixture
def outlast_app() -> Outlast:
    return app


async def test_arguments_named_must_be_equal_and_others_do_not_matter(outlast: Harness) -> None:
    handle = await send.enqueue(3, to=Address(street="Main"))
    await remind.enqueue(MIDNIGHT)

    for args in (
        {},
        {"number": 3},
        {"number": ANY},
        {"copy": False},
        {"to": Address(street="Main")},
        {"to": {"street": "Main"}},
        {"number": 3, "copy": False},
    ):
        assert [job.id for job in outlast.assert_enqueued(send, args)] == [handle.id]
    outlast.assert_enqueued("remind", at=MIDNIGHT, queue="slow")
    outlast.assert_enqueued(remind, at="2026-01-06T00:00:00Z")
    outlast.assert_enqueued(remind, {"count": 1}, count=1)


@pytest.mark.parametrize(
    "asked",
    [
        {"number": 4},
        {"number": "3"},
        {"copy": True},
        {"to": {"street": "Main"}},
        {"queue": "slow"},
        {"count": 0},
        {"count": 2},
        {"number": 3, "copy": True},
    ],
    ids=str,
)
async def test_what_does_not_fit_fails(outlast: Harness, asked: dict[str, object]) -> None:
    await send.enqueue(3)

    with pytest.raises(AssertionError):
        outlast.assert_enqueued(send, **asked)  # type: ignore[arg-type]


async def test_how_soon_it_is_due_can_be_asked(outlast: Harness) -> None:
    await send.options(delay="1h").enqueue(3)

    outlast.assert_enqueued(send, within="1h")
    outlast.assert_not_enqueued(send, within="59m")
    with pytest.raises(AssertionError, match=r"it is due in 1h, not within 59m"):
        outlast.assert_enqueued(send, within="59m")


async def test_jobs_that_ran_count_and_their_retries_do_not(outlast: Harness) -> None:
    await breaks.enqueue()
    await outlast.drain_until_idle()

    outlast.assert_enqueued(breaks, count=1)
    assert len(outlast.jobs(breaks)) == 2


async def test_the_failure_shows_what_was_enqueued_and_what_came_nearest(
    outlast: Harness,
) -> None:
    await send.enqueue(1)
    await send.options(delay="90m").enqueue(3, to=Address(street="x" * 100))
    await outlast.drain()
    await remind.enqueue(MIDNIGHT)

    with pytest.raises(AssertionError) as failure:
        outlast.assert_enqueued(send, number=3, copy=True, queue="slow")

    assert str(failure.value).splitlines() == [
        'no job "send" with number=3, copy=True in queue "slow" was enqueued',
        "",
        "3 jobs were enqueued:",
        "  type    params                                              queue    due in  state",
        '  send    {"number":1}                                        default  -       succeeded',
        '  send    {"number":3,"to":{"street":"xxxxxxxxxxxxxxxxxxxxx…  default  1h30m   scheduled',
        '  remind  {"at":"2026-01-06T00:00:00Z"}                       slow     now     queued',
        "",
        'nearest: {"number":3,"to":{"street":"xxxxxxxxxxxxxxxxxxxxx…',
        "  copy is False, not True",
        '  queue is "default", not "slow"',
    ]


async def test_a_wrong_number_is_told(outlast: Harness) -> None:
    for number in range(25):
        await send.enqueue(number)

    with pytest.raises(AssertionError) as failure:
        outlast.assert_enqueued(send, count=24)

    lines = str(failure.value).splitlines()
    assert lines[0] == '25 jobs "send" were enqueued, not 24'
    with pytest.raises(AssertionError, match=r'^1 job "send" with number=3 was enqueued, not 0\n'):
        outlast.assert_enqueued(send, number=3, count=0)
    assert lines[-1] == "  and 5 more"
    assert len(lines) == 25


def test_nothing_at_all_is_told_also_to_a_plain_test(outlast: Harness) -> None:
    with pytest.raises(
        AssertionError, match=r'^no job "send" was enqueued\n\nnothing was enqueued$'
    ):
        outlast.assert_enqueued(send)


async def test_what_should_not_be_there_is_shown(outlast: Harness) -> None:
    await send.enqueue(3)

    outlast.assert_not_enqueued(send, number=4)
    with pytest.raises(AssertionError) as failure:
        outlast.assert_not_enqueued(send, number=3)

    assert str(failure.value).splitlines() == [
        'no job "send" with number=3 was to be enqueued, but 1 job was:',
        "",
        "  type  params        queue    due in  state",
        '  send  {"number":3}  default  now     queued',
    ]


def test_a_mistake_in_the_question_is_no_failed_assertion(outlast: Harness) -> None:
    with pytest.raises(InvalidParams, match='"send" takes no param "nmber"; it knows: number, c'):
        outlast.assert_not_enqueued(send, nmber=3)
    with pytest.raises(InvalidParams, match='takes no param "run"'):
        outlast.assert_not_enqueued(send, run=None)
    with pytest.raises(TypeNotFound, match=r"did you mean send\?"):
        outlast.assert_not_enqueued("sent")
    with pytest.raises(InvalidType, match="is no job type; pass what"):
        outlast.assert_not_enqueued(send.function)  # type: ignore[arg-type]
    with pytest.raises(InvalidType, match='"send" belongs to another app than'):
        outlast.assert_not_enqueued(foreign)
    with pytest.raises(ValueError, match="within is 'soon'"):
        outlast.assert_not_enqueued(send, within="soon")
    with pytest.raises(ValueError, match="count is -1"):
        outlast.assert_enqueued(send, count=-1)


async def test_jobs_are_listed_by_type_queue_and_state(outlast: Harness) -> None:
    for number in range(3):
        await send.enqueue(number)
    await remind.options(delay="1d").enqueue(MIDNIGHT)

    assert [job.params for job in outlast.jobs(send)] == [f'{{"number":{n}}}' for n in range(3)]
    assert [job.type for job in outlast.jobs(queue="slow")] == ["remind"]
    assert [job.type for job in outlast.jobs(states=[State.SCHEDULED])] == ["remind"]
    assert len(outlast.jobs()) == 4


async def test_more_jobs_than_a_page_are_all_seen(
    outlast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.testing.harness.PAGE", 3)
    await app.enqueue_many(send.bind(number) for number in range(10))

    assert len(outlast.assert_enqueued(send, count=10)) == 10


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(0), "now"),
        (timedelta(days=-1), "now"),
        (timedelta(milliseconds=5), "5ms"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=2, seconds=5), "2d5s"),
        (timedelta(hours=26, minutes=3), "1d2h"),
    ],
)
def test_spans_are_shown_as_they_are_written(span: timedelta, words: str) -> None:
    assert shown_span(span) == words

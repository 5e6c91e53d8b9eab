"""The results of a group: all members, in order, failures too."""

import asyncio
from datetime import timedelta

import pytest

from outlast import Backoff, InvalidArgument, JobNotFound, JobNotSucceeded, State, WaitTimeout
from outlast.core.event import Failed, Succeeded
from outlast.jobs import group_results

HOUR = timedelta(hours=1)


@pytest.fixture
def send(app):
    @app.job
    def send(number: int) -> int:
        return number

    return send


async def _end(hand, *numbers):
    """End the members: by that number, or by an error for None."""
    for number in numbers:
        claim = await hand.take("send")
        failed = Failed("ValueError: it broke", permanent=True)
        await hand.end(claim, failed if number is None else Succeeded(str(number)))


async def test_results_of_a_group_are_in_the_order_of_its_members(app, send, hand, monkeypatch):
    monkeypatch.setattr(group_results, "JOBS_PER_READ", 4)
    monkeypatch.setattr(group_results, "READS_AT_ONCE", 3)
    numbers = list(range(11))
    group = await app.groups.start(send.options(priority=number).bind(number) for number in numbers)
    await _end(hand, *reversed(numbers))

    results = await group.results()

    assert [each.result() for each in results] == numbers
    assert {each.state for each in results} == {State.SUCCEEDED}


async def test_failure_is_among_the_results_and_is_raised_only_when_asked_for(app, send, hand):
    group = await app.groups.start(send.bind(number) for number in range(3))
    await _end(hand, 0, None, 2)

    results = await group.results(wait=True)

    assert [each.state for each in results] == [
        State.SUCCEEDED,
        State.DEAD_LETTER,
        State.SUCCEEDED,
    ]
    assert (results[1].value, results[1].error) == (None, "ValueError: it broke")
    with pytest.raises(JobNotSucceeded, match=r"ended dead_letter .*: ValueError: it broke"):
        results[1].result()


async def test_member_that_has_not_ended_has_no_value_yet(app, send, hand):
    group = await app.groups.start(send.bind(number) for number in range(2))
    await _end(hand, 0)

    first, second = await group.results()

    assert (first.value, second.value, second.state) == (0, None, State.QUEUED)
    with pytest.raises(JobNotSucceeded, match="is queued"):
        second.result()


async def test_results_wait_for_the_end_of_the_group_if_asked(app, send, hand):
    group = await app.groups.start(send.bind(number) for number in range(2))
    waiting = asyncio.create_task(group.results(wait="120s"))
    await _end(hand, 0)
    await asyncio.sleep(0)
    is_early = waiting.done()
    await _end(hand, 1)

    results = await waiting

    assert ([each.value for each in results], is_early) == ([0, 1], False)


async def test_results_wait_no_longer_than_asked(app, send):
    group = await app.groups.start([send.bind(1)])

    with pytest.raises(WaitTimeout, match="is not over within 1ms"):
        await group.results(wait="1ms")


async def test_chain_is_one_result_that_of_its_last_job(app, hand, clock):
    @app.job(delivery="linked", retry=Backoff(2, base="1ms", jitter=False))
    def again(number: int) -> int:
        return number

    group = await app.groups.start([again.bind(1), again.bind(2)])
    for number in (1, 2):
        claim = await hand.take("again")
        await hand.end(claim, Failed("it broke") if number == 1 else Succeeded("2"))
    clock.advance(HOUR)
    claim = await hand.take("again")
    await hand.end(claim, Succeeded("1"))

    assert [each.result() for each in await group.results()] == [1, 2]


async def test_pruned_members_are_named_instead_of_left_out(app, send, hand, store, clock):
    group = await app.groups.start([send.bind(number) for number in range(2)])
    await _end(hand, 0, None)
    clock.advance(2 * HOUR)
    await store.prune(older_than=HOUR, limit=10)

    with pytest.raises(JobNotFound, match="has 2 members and 1 of them are not in this store"):
        await group.results()


async def test_length_of_the_wait_is_checked(app, send):
    group = await app.groups.start([send.bind(1)])

    with pytest.raises((InvalidArgument, ValueError), match="timeout"):
        await group.results(wait="soon")

"""Handlers that do the worst they can: it is counted against their job, and the worker lives."""

import asyncio
import contextvars
import logging
import threading

import pytest
from worker_helpers import SOON, all_slots_work, statuses

from outlast import Backoff, Run, State

TWICE = Backoff(2, base="1ms")


class Odd(BaseException):
    """Neither an Exception nor anything Python knows."""


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self):
        raise SystemExit("no words")


def recurse(n=0):
    return recurse(n + 1)


def circular():
    error = ValueError("snake")
    error.__cause__ = error
    return error


RAISES = {
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "StopIteration": lambda: StopIteration("x"),
    "StopAsyncIteration": StopAsyncIteration,
    "RecursionError": recurse,
    "Odd": Odd,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "MemoryError": MemoryError,
    "Mute": Mute,
    "surrogates": lambda: ValueError("a\ud800\0b"),
    "ten megabytes": lambda: ValueError("x" * 10_000_000),
    "circular": circular,
    "group": lambda: BaseExceptionGroup("many", [SystemExit(1), asyncio.CancelledError()]),
    "InvalidStateError": asyncio.InvalidStateError,
}


def raising(app, *, thread=False, **settings):
    if thread:

        @app.job(name="bad", **settings)
        def bad(name: str) -> None:
            error = RAISES[name]()
            raise error

        return bad

    @app.job(name="bad", **settings)
    async def bad(name: str) -> None:
        error = RAISES[name]()
        raise error

    return bad


@pytest.mark.parametrize("thread", [False, True], ids=["async", "thread"])
async def test_whatever_a_handler_raises_is_a_counted_failure(app, thread):
    bad = raising(app, thread=thread, retry=TWICE)
    ends, counted, said = {}, {}, {}

    async with app.worker():
        for name in RAISES:
            handle = await bad.enqueue(name)
            job = await handle.wait(SOON)
            ends[name] = (job.state, job.failures)
            counted[name] = await statuses(app, handle)
            said[name] = [run.error for run in await app.runs(handle.id)]

        assert await all_slots_work(app)
    assert ends == dict.fromkeys(RAISES, (State.DEAD_LETTER, 2))
    twice = [("failed", "failed"), ("failed", "attempts_exhausted")]
    assert counted == dict.fromkeys(RAISES, twice)
    for name, errors in said.items():
        assert all(len(error) <= 65_536 for error in errors)
        assert all(name in error for error in errors) or name[0].islower()


@pytest.mark.parametrize("delivery", ["linked", "once"])
@pytest.mark.parametrize("name", ["SystemExit", "CancelledError"])
async def test_the_same_holds_for_jobs_that_run_once(app, name, delivery, slot):
    settings = {"retry": TWICE} if delivery == "linked" else {}
    bad = raising(app, delivery=delivery, **settings)

    async with app.worker():
        handle = await bad.options(slot=slot).enqueue(name)
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    expected = (State.DEAD_LETTER, 2) if delivery == "linked" else (State.FAILED, 1)
    assert (job.state, job.failures) == expected


@pytest.mark.parametrize("then", ["await", "return", "raise"])
async def test_a_handler_that_cancels_its_own_task_only_fails_itself(app, then):
    @app.job(retry=TWICE)
    async def suicidal() -> None:
        asyncio.current_task().cancel()
        if then == "await":
            await asyncio.sleep(0)
        if then == "raise":
            raise ValueError("on the way out")

    async with app.worker(concurrency=1):
        handle = await suicidal.enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app, slots=1)
    assert job.state is State.DEAD_LETTER or then == "return"
    assert {status for status, _ in await statuses(app, handle)} <= {"failed", "succeeded"}


@pytest.mark.parametrize("answer", ["swallow", "raise"])
async def test_a_handler_that_defies_its_cancelling_leaves_its_slot_as_it_was(app, answer):
    """The request to stop must not linger and hit the next job in that slot."""
    started = asyncio.Event()

    @app.job(retry=Backoff(1))
    async def defiant() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if answer == "raise":
                raise ValueError("how dare you") from None
        return "done all the same"

    @app.job(retry=Backoff(1))
    async def by_itself() -> None:
        raise asyncio.CancelledError

    @app.job(retry=Backoff(1))
    async def grouped() -> str:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0, "fine"))
                group.create_task(fail())
        except* ValueError:
            pass
        async with asyncio.timeout(0.001):
            await asyncio.sleep(5)
        return "not reached"

    async def fail():
        raise ValueError("in a task")

    async with app.worker(concurrency=1):
        first = await defiant.enqueue()
        await started.wait()
        await first.cancel()
        await first.wait(SOON)
        second = await (await by_itself.enqueue()).wait(SOON)
        third = await grouped.enqueue()
        await third.wait(SOON)

        assert await all_slots_work(app, slots=1)
    assert (second.state, second.failures) == (State.DEAD_LETTER, 1)
    assert await statuses(app, third) == [("failed", "attempts_exhausted")]
    [run] = await app.runs(third.id)
    # Early releases of Python 3.11 let the cancellation itself through there.
    assert "TimeoutError" in run.error or "CancelledError" in run.error


async def test_what_one_job_puts_into_the_context_the_next_does_not_see(app):
    who = contextvars.ContextVar("who", default="nobody")

    @app.job
    async def leave(name: str) -> str:
        return _swap(who, name)

    @app.job
    def leave_in_thread(name: str) -> str:
        return _swap(who, name)

    async with app.worker(concurrency=1):
        seen = [await (await leave.enqueue(f"a{n}")).result(SOON) for n in range(3)]
        seen += [await (await leave_in_thread.enqueue(f"t{n}")).result(SOON) for n in range(3)]

    assert seen == ["nobody"] * 6


def _swap(variable, value):
    before = variable.get()
    variable.set(value)
    return before


async def test_a_thread_handler_may_use_an_event_loop_of_its_own(app):
    @app.job
    def bridge() -> int:
        async def inner():
            await asyncio.sleep(0)
            return threading.get_ident()

        return asyncio.run(inner())

    async with app.worker():
        result = await (await bridge.enqueue()).result(SOON)

    assert result != threading.get_ident()


async def test_a_handler_that_writes_to_its_arguments_does_not_change_its_next_run(app):
    @app.job(retry=TWICE)
    async def greedy(run: Run, items: list[int]) -> list[int]:
        items.append(9)
        if run.attempt == 1:
            raise ValueError("after changing them")
        return items

    async with app.worker():
        result = await (await greedy.enqueue([1])).result(SOON)

    assert result == [1, 9]


class Deaf(logging.Filter):
    """A filter of the app's, with a fault."""

    def filter(self, record):
        raise ValueError(f"cannot judge {record.msg}")


async def test_log_filter_that_raises_costs_no_job_and_no_slot(app, monkeypatch):
    jobs = logging.getLogger("outlast.jobs")
    monkeypatch.setattr(jobs, "filters", [Deaf()])
    monkeypatch.setattr(jobs, "level", logging.DEBUG)

    @app.job
    async def fine() -> int:
        return 1

    async with app.worker():
        handle = await fine.enqueue()
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    assert (job.state, job.failures) == (State.SUCCEEDED, 0)


def broken(*_):
    raise ZeroDivisionError("no such delay")


async def test_run_that_cannot_be_judged_is_lost_and_costs_no_slot(app, monkeypatch):
    monkeypatch.setattr(Backoff, "delay", broken)
    bad = raising(app, retry=TWICE)

    async with app.worker():
        handle = await bad.enqueue("Odd")
        job = await handle.wait(SOON)

        assert await all_slots_work(app)
    runs = await app.runs(handle.id)
    assert (job.state, job.failures) == (State.DEAD_LETTER, 2)
    assert [(run.status, "no such delay" in run.error) for run in runs] == [("lost", True)] * 2

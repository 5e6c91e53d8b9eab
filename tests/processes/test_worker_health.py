"""What a worker reports of itself: live, ready, and the number of jobs that wait."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import pytest

from outlast.core.state import State
from outlast.errors import StoreUnavailable
from outlast.testing.clock import FakeClock
from outlast.worker.supervisor.health import Unready, Watched, WorkerHealth

LEASE = timedelta(seconds=15)


class Counted:
    """A store whose overview has these due jobs by queue; it counts how often it is read."""

    def __init__(self, **due):
        self.due = due
        self.reads = 0
        self.error = None
        self.takes = timedelta()
        self.clock = None
        self.is_read = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def overview(self, *, span):
        self.reads += 1
        self.is_read.set()
        await self.may_answer.wait()
        self.clock.advance(self.takes)
        if self.error:
            raise self.error
        backlog = [
            SimpleNamespace(queue=queue, state=state, jobs=due + 7, due=due)
            for queue, due in self.due.items()
            for state in (State.QUEUED, State.RETRY_WAIT)
        ]
        return SimpleNamespace(backlog=backlog)


class Worker:
    """The health of a worker with one child that claims."""

    def __init__(self, store=None, queues=("mail", "default")):
        self.clock = FakeClock()
        self.told = []
        self.health = WorkerHealth(self.clock, self.told.append)
        self.child = SimpleNamespace(is_claiming=True)
        self.silent = False
        self.children = [self.child]
        self.store = store or Counted()
        self.store.clock = self.clock
        self._queues = queues

    def start(self):
        self.health.watch(
            Watched(
                store=self.store,
                lease=LEASE,
                watchdog=SimpleNamespace(has_silent_child=lambda: self.silent),
                working=lambda: self.children,
                queues=self._queues,
            )
        )
        self.health.claims()
        return self


def test_a_worker_is_ready_once_a_child_claims():
    worker = Worker()

    assert worker.health.unready is Unready.STARTING
    worker.start()

    assert worker.health.unready is None


def test_a_worker_without_a_claiming_child_is_not_ready():
    worker = Worker().start()

    worker.child.is_claiming = False

    assert worker.health.unready is Unready.NO_CHILD


def test_a_stopping_worker_is_draining_and_stays_live():
    worker = Worker().start()

    worker.health.stops()

    assert worker.health.unready is Unready.DRAINING
    assert worker.health.is_live


def test_a_failed_heartbeat_makes_a_worker_unready_until_one_succeeds():
    worker = Worker().start()

    with pytest.raises(StoreUnavailable), worker.health.asking_store():
        raise StoreUnavailable("gone")
    assert worker.health.unready is Unready.STORE_AWAY

    with worker.health.asking_store():
        pass
    assert worker.health.unready is None


def test_a_store_that_neither_answers_nor_fails_is_away_after_a_lease():
    worker = Worker().start()

    worker.clock.advance(LEASE)
    assert worker.health.unready is None
    worker.clock.advance(timedelta(seconds=1))

    assert worker.health.unready is Unready.STORE_AWAY


def test_a_silent_child_makes_a_worker_not_live():
    worker = Worker()
    assert worker.health.is_live  # it starts

    worker.start().silent = True

    assert not worker.health.is_live


def test_the_service_manager_is_told_once_and_never_ready_after_stopping():
    worker = Worker().start()
    worker.health.claims()
    worker.health.stops()
    worker.health.stops()
    early = Worker()
    early.health.stops()
    early.health.claims()

    assert worker.told == ["READY=1", "STOPPING=1"]
    assert early.told == ["STOPPING=1"]


async def test_the_backlog_has_only_due_jobs_of_this_workers_queues():
    worker = Worker(Counted(mail=3, other=50)).start()

    assert await worker.health.backlog() == {"mail": 6, "default": 0}


async def test_a_starting_worker_has_no_backlog_to_tell():
    assert await Worker().health.backlog() is None


async def test_the_store_is_read_once_however_many_ask():
    worker = Worker(Counted(mail=1)).start()
    worker.store.may_answer.clear()
    asking = [asyncio.create_task(worker.health.backlog()) for _ in range(20)]
    await worker.store.is_read.wait()
    asking[0].cancel()
    worker.store.may_answer.set()

    answers = await asyncio.gather(*asking[1:], worker.health.backlog())

    assert {answer["mail"] for answer in answers} == {2}
    assert worker.store.reads == 1


async def test_slow_counts_take_a_tenth_of_the_time_at_most():
    worker = Worker(Counted(mail=1)).start()
    worker.store.takes = timedelta(seconds=4)
    await worker.health.backlog()

    worker.clock.advance(timedelta(seconds=39))
    await worker.health.backlog()
    assert worker.store.reads == 1
    worker.clock.advance(timedelta(seconds=1))
    await worker.health.backlog()

    assert worker.store.reads == 2


async def test_a_count_that_fails_is_no_number_and_is_not_repeated_at_once():
    worker = Worker(Counted(mail=1)).start()
    worker.store.error = StoreUnavailable("gone")

    assert [await worker.health.backlog() for _ in range(3)] == [None] * 3
    assert worker.store.reads == 1
    worker.store.error = None
    worker.clock.advance(timedelta(seconds=2))

    assert await worker.health.backlog() == {"mail": 2, "default": 0}

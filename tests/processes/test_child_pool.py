"""The child pool keeps its size: a child that dies, stops or cannot be started is replaced."""

import asyncio
import os
import tempfile
from itertools import count

import pytest

from outlast.core.run import LeaseHolder
from outlast.telemetry import TelemetryEvent
from outlast.testing.clock import FakeClock
from outlast.worker.supervisor.child_pool import AppUnusable, ChildPool
from outlast.worker.supervisor.child_process import ChildProcess, ChildRole
from outlast.worker.supervisor.shared_lease_table import SharedLeaseTable

HOLDER = LeaseHolder(instance_id="here", boot_id="now")
SIGKILLED = -9
PIDS = count(1)


class Process:
    """One that ends when the test says so, or when it is killed."""

    def __init__(self):
        self.pid = next(PIDS)
        self.returncode = None
        self._ended = asyncio.Event()

    def end(self, code):
        self.returncode = code
        self._ended.set()

    def kill(self):
        self.end(SIGKILLED)

    async def wait(self):
        await self._ended.wait()


class Channel:
    """A channel whose incoming messages the test queues; it never ends by itself."""

    def __init__(self):
        self.messages_in = asyncio.Queue()
        self.sent = []
        self.events = []
        self.is_backed_up = False

    def send(self, kind, **values):
        self.sent.append(kind)
        if kind == "event":
            self.events.append(values["event"])

    async def messages(self):
        while True:
            yield await self.messages_in.get()

    def close(self):
        pass


class Spawner:
    """Spawns children; raises while there are `errors`."""

    def __init__(self):
        self.spawned = asyncio.Queue()
        self.errors = []

    async def __call__(self):
        if self.errors:
            raise self.errors.pop(0)
        ours, theirs = os.pipe()
        os.close(theirs)
        child = ChildProcess(
            Process(),
            lease_table=SharedLeaseTable.new(),
            channel=Channel(),
            lifeline=ours,
            dump=tempfile.TemporaryFile(),  # noqa: SIM115 - it lives as long as the child
            started_at=0,
        )
        self.spawned.put_nowait(child)
        return child

    async def next(self, **hello):
        """Return the next spawned child after its hello message."""
        child = await self.spawned.get()
        child.channel.messages_in.put_nowait({"is": "hello", **hello})
        return child


@pytest.fixture
def spawner():
    return Spawner()


@pytest.fixture
async def pool(spawner):
    async def died(child):
        pass

    pool = ChildPool(spawner, size=1, clock=FakeClock(), on_exit=died)
    yield pool
    pool.stop(0.0)
    await pool.wait_gone(0.0)


async def in_role(child, role):
    while child.role is not role:  # noqa: ASYNC110 - no event signals it
        await asyncio.sleep(0.001)


async def at_work(pool, child):
    await in_role(child, ChildRole.WORKING)
    assert pool.working == [child]


async def test_one_that_dies_between_its_hello_and_the_work_is_replaced(pool, spawner):
    gathering = asyncio.create_task(pool.start())
    first = await spawner.next()
    await gathering
    first.process.end(1)
    await in_role(first, ChildRole.GONE)

    pool.start_work(HOLDER)

    await at_work(pool, await spawner.next())


async def test_one_that_cannot_even_be_started_is_named_at_the_start(pool, spawner):
    spawner.errors.append(OSError(24, "Too many open files"))

    with pytest.raises(AppUnusable, match=r"cannot start a child process.*Too many open files"):
        await pool.start()


async def test_one_that_cannot_be_started_in_place_of_a_dead_one_is_tried_again(pool, spawner):
    gathering = asyncio.create_task(pool.start())
    first = await spawner.next()
    await gathering
    pool.start_work(HOLDER)
    await at_work(pool, first)
    spawner.errors += [OSError(24, "Too many open files")] * 2

    first.process.end(1)

    await at_work(pool, await spawner.next())


async def test_one_that_has_stopped_but_does_not_end_is_ended(pool, spawner):
    gathering = asyncio.create_task(pool.start())
    first = await spawner.next()
    await gathering
    pool.start_work(HOLDER)
    await at_work(pool, first)

    pool.replace(first, "it is old")
    second = await spawner.next()
    await at_work(pool, second)
    first.channel.messages_in.put_nowait({"is": "stopped", "settled": {}})
    await first.process.wait()

    assert first.channel.sent[-1] == "stop"
    assert first.process.returncode == SIGKILLED
    assert pool.working == [second]


async def test_events_go_to_a_child_that_listens_and_wait_for_one(pool, spawner):
    gathering = asyncio.create_task(pool.start())
    pool.forward_event(TelemetryEvent("first", {}))
    child = await spawner.next(wants_events=True)
    await gathering
    pool.forward_event(TelemetryEvent("second", {}))
    child.channel.is_backed_up = True
    pool.forward_event(TelemetryEvent("third", {}))
    while_backed_up = list(child.channel.events)
    child.channel.is_backed_up = False
    pool.forward_event(TelemetryEvent("fourth", {}))

    assert while_backed_up == ["first", "second"]
    assert child.channel.events == ["first", "second", "third", "fourth"]


async def test_a_child_that_does_not_listen_is_told_of_no_event(pool, spawner):
    gathering = asyncio.create_task(pool.start())
    child = await spawner.next(wants_events=False)
    await gathering

    pool.forward_event(TelemetryEvent("first", {}))

    assert child.channel.sent == []


async def test_schedules_that_a_child_has_written_are_reported_at_once(spawner):
    """The trigger does not wait for its next poll, on stores without notifications either."""
    written = asyncio.Event()

    async def died(child):
        pass

    pool = ChildPool(
        spawner, size=1, clock=FakeClock(), on_exit=died, on_schedules_written=written.set
    )
    gathering = asyncio.create_task(pool.start())
    child = await spawner.next()
    await gathering

    child.channel.messages_in.put_nowait({"is": "schedules_written"})

    async with asyncio.timeout(120):
        await written.wait()
    pool.stop(0.0)
    await pool.wait_gone(0.0)

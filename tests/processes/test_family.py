"""A family keeps its size: whoever dies, leaves or cannot be started is replaced."""

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


class Line:
    """What the child says is what the test puts there; it never ends by itself."""

    def __init__(self):
        self.words = asyncio.Queue()
        self.told = []
        self.events = []
        self.is_backed_up = False

    def send(self, kind, **values):
        self.told.append(kind)
        if kind == "event":
            self.events.append(values["event"])

    async def messages(self):
        while True:
            yield await self.words.get()

    def close(self):
        pass


class Nursery:
    """Spawns; fails to while there are `errors`."""

    def __init__(self):
        self.born = asyncio.Queue()
        self.errors = []

    async def __call__(self):
        if self.errors:
            raise self.errors.pop(0)
        ours, theirs = os.pipe()
        os.close(theirs)
        kin = ChildProcess(
            Process(),
            lease_table=SharedLeaseTable.new(),
            channel=Line(),
            lifeline=ours,
            dump=tempfile.TemporaryFile(),  # noqa: SIM115 - it lives as long as the child
            started_at=0,
        )
        self.born.put_nowait(kin)
        return kin

    async def next(self, **hello):
        """The next to be born, once it has said hello."""
        kin = await self.born.get()
        kin.channel.words.put_nowait({"is": "hello", **hello})
        return kin


@pytest.fixture
def nursery():
    return Nursery()


@pytest.fixture
async def family(nursery):
    async def died(kin):
        pass

    family = ChildPool(nursery, size=1, clock=FakeClock(), on_exit=died)
    yield family
    family.stop(0.0)
    await family.wait_gone(0.0)


async def in_role(kin, role):
    while kin.role is not role:  # noqa: ASYNC110 - nobody is told of it
        await asyncio.sleep(0.001)


async def at_work(family, kin):
    await in_role(kin, ChildRole.WORKING)
    assert family.working == [kin]


async def test_one_that_dies_between_its_hello_and_the_work_is_replaced(family, nursery):
    gathering = asyncio.create_task(family.start())
    first = await nursery.next()
    await gathering
    first.process.end(1)
    await in_role(first, ChildRole.GONE)

    family.start_work(HOLDER)

    await at_work(family, await nursery.next())


async def test_one_that_cannot_even_be_started_is_named_at_the_start(family, nursery):
    nursery.errors.append(OSError(24, "Too many open files"))

    with pytest.raises(AppUnusable, match=r"cannot start a child process.*Too many open files"):
        await family.start()


async def test_one_that_cannot_be_started_in_place_of_a_dead_one_is_tried_again(family, nursery):
    gathering = asyncio.create_task(family.start())
    first = await nursery.next()
    await gathering
    family.start_work(HOLDER)
    await at_work(family, first)
    nursery.errors += [OSError(24, "Too many open files")] * 2

    first.process.end(1)

    await at_work(family, await nursery.next())


async def test_one_that_has_stopped_but_does_not_end_is_ended(family, nursery):
    gathering = asyncio.create_task(family.start())
    first = await nursery.next()
    await gathering
    family.start_work(HOLDER)
    await at_work(family, first)

    family.replace(first, "it is old")
    second = await nursery.next()
    await at_work(family, second)
    first.channel.words.put_nowait({"is": "stopped", "settled": {}})
    await first.process.wait()

    assert first.channel.told[-1] == "stop"
    assert first.process.returncode == SIGKILLED
    assert family.working == [second]


async def test_events_go_to_a_child_that_listens_and_wait_for_one(family, nursery):
    gathering = asyncio.create_task(family.start())
    family.forward_event(TelemetryEvent("first", {}))
    kin = await nursery.next(listens=True)
    await gathering
    family.forward_event(TelemetryEvent("second", {}))
    kin.channel.is_backed_up = True
    family.forward_event(TelemetryEvent("third", {}))
    while_backed_up = list(kin.channel.events)
    kin.channel.is_backed_up = False
    family.forward_event(TelemetryEvent("fourth", {}))

    assert while_backed_up == ["first", "second"]
    assert kin.channel.events == ["first", "second", "third", "fourth"]


async def test_a_child_that_does_not_listen_is_told_of_no_event(family, nursery):
    gathering = asyncio.create_task(family.start())
    kin = await nursery.next(listens=False)
    await gathering

    family.forward_event(TelemetryEvent("first", {}))

    assert kin.channel.told == []

"""The start of a child: what it tells its supervisor, and how it ends if it cannot do its part."""

import asyncio
from contextlib import suppress
from types import MappingProxyType

from outlast.config import Settings
from outlast.worker.supervisor.child_main import WorkerChild


class Line:
    """Told to start, and nothing more."""

    def __init__(self, *, closes=False):
        self.said = []
        self.later = asyncio.Queue()
        self._closes = closes

    async def messages(self):
        if not self._closes:
            yield {"is": "start", "instance_id": "here", "boot_id": "now"}
            while True:
                yield await self.later.get()

    def send(self, kind, **values):
        self.said.append(kind)

    def close(self):
        pass


class Broken:
    """A store with a fault of our own, an engine that never starts, and a board."""

    settled = MappingProxyType({})
    on_settled = None

    async def open(self):
        raise ZeroDivisionError("a fault")

    async def close(self):
        pass

    def heartbeat(self, memory_in_use):
        pass


async def crashed(line):
    """Run a child until it crashes."""
    crash, broken = asyncio.Event(), Broken()
    child = WorkerChild(
        broken,
        broken,
        Settings(),
        leases=broken,
        channel=line,
        is_orphan=lambda: False,
        crash=crash.set,
    )
    running = asyncio.create_task(child.run())
    async with asyncio.timeout(120):
        await crash.wait()
    running.cancel()


async def test_child_that_fails_to_start_ends_instead_of_holding_its_place():
    line = Line()

    await crashed(line)

    assert line.said == []  # it did not stop in order, which would release what it runs


async def test_child_whose_channel_a_handler_closed_ends_as_in_a_crash():
    line = Line(closes=True)

    await crashed(line)

    assert line.said == []


class Working(Broken):
    """A store that opens, and an engine that starts."""

    queues = ()

    async def open(self):
        pass

    async def acquire_lock(self, name, **how):
        return self

    def start(self, holder):
        pass

    def notify(self, notification):
        pass

    def subscribe(self, wake, *, topics):
        return lambda: None


async def test_child_tells_its_supervisor_when_the_declared_schedules_are_written():
    line, working, written = Line(), Working(), asyncio.Event()

    async def write_schedules():
        written.set()

    child = WorkerChild(
        working,
        working,
        Settings(),
        leases=working,
        channel=line,
        is_orphan=lambda: False,
        crash=lambda: None,
        write_schedules=write_schedules,
    )
    running = asyncio.create_task(child.run())
    async with asyncio.timeout(120):
        while "schedules_written" not in line.said:  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.001)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

    assert written.is_set()


async def test_child_claims_at_once_when_its_supervisor_took_jobs_over():
    line, woken = Line(), asyncio.Event()

    class Woken(Working):
        def wake(self):
            woken.set()

    working = Woken()
    child = WorkerChild(
        working,
        working,
        Settings(),
        leases=working,
        channel=line,
        is_orphan=lambda: False,
        crash=lambda: None,
    )
    line.later.put_nowait({"is": "wake"})  # before it works: ignored
    running = asyncio.create_task(child.run())
    async with asyncio.timeout(120):
        while "started" not in line.said:  # noqa: ASYNC110 - no event signals it
            await asyncio.sleep(0.001)
    assert not woken.is_set()

    line.later.put_nowait({"is": "wake"})

    async with asyncio.timeout(120):
        await woken.wait()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running

"""A child that cannot do its part does not stay in its place, and does not release its runs."""

import asyncio
from types import MappingProxyType

from outlast.config import Settings
from outlast.worker.supervisor.child_main import WorkerChild


class Line:
    """Told to start, and nothing more."""

    def __init__(self, *, closes=False):
        self.said = []
        self._closes = closes

    async def messages(self):
        if not self._closes:
            yield {"is": "start", "instance_id": "here", "boot_id": "now"}
            await asyncio.Event().wait()

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

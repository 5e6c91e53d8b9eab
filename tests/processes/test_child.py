"""A child that cannot do its part does not stay in its place."""

import asyncio
from types import MappingProxyType

from outlast.config import Settings
from outlast.worker.supervisor.child_main import WorkerChild


class Line:
    """Told to start, and nothing more."""

    def __init__(self):
        self.said = []

    async def messages(self):
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


async def test_child_that_fails_to_start_ends_instead_of_holding_its_place():
    line, broken = Line(), Broken()
    child = WorkerChild(broken, broken, Settings(), leases=broken, channel=line)

    async with asyncio.timeout(120):
        await child.run()

    assert line.said == ["stopped"]

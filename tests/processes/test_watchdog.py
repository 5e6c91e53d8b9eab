"""Which children count as silent: those that could have shown life, and did not."""

from datetime import timedelta

import pytest

from outlast.config import Settings
from outlast.testing.clock import FakeClock
from outlast.worker.supervisor.child_process import ChildRole
from outlast.worker.supervisor.watchdog import ChildWatchdog


class Silent:
    """A child that never sent a heartbeat."""

    pid = 1
    killed_for = None
    last_heartbeat = 0

    def __init__(self, role, clock):
        self.role = role
        self.last_heartbeat = clock.monotonic()
        self.lease_table = self

    def entries(self):
        return []

    async def dump(self):
        return "its stacks"

    def kill(self, why):
        self.killed_for = why


@pytest.mark.parametrize(
    ("role", "ended"), [(ChildRole.STARTING, 0), (ChildRole.WORKING, 1), (ChildRole.SPARE, 1)]
)
async def test_child_that_still_loads_its_app_is_not_silent(role, ended):
    clock = FakeClock()
    child = Silent(role, clock)
    watchdog = ChildWatchdog(None, Settings(max_silence="3s"), clock=clock, members=lambda: [child])

    found = 0
    for _ in range(4):
        clock.advance(timedelta(seconds=2))
        found += await watchdog.check_once()

    assert found == ended


def test_a_child_that_is_silent_is_reported_until_it_is_gone():
    clock = FakeClock()
    members = [Silent(ChildRole.WORKING, clock)]
    watchdog = ChildWatchdog(None, Settings(max_silence="3s"), clock=clock, members=lambda: members)
    assert not watchdog.has_silent_child()

    clock.advance(timedelta(seconds=4))
    assert watchdog.has_silent_child()
    members.clear()

    assert not watchdog.has_silent_child()

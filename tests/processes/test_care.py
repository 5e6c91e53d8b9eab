"""Which children count as silent: those that could have shown life, and did not."""

from datetime import timedelta

import pytest

from outlast.config import Settings
from outlast.testing.clock import FakeClock
from outlast.worker.supervisor.child_process import Role
from outlast.worker.supervisor.watchdog import ChildWatchdog


class Silent:
    """A child that never showed life."""

    pid = 1
    killed_for = None
    seen = 0

    def __init__(self, role, clock):
        self.role = role
        self.seen = clock.monotonic()
        self.board = self

    def entries(self):
        return []

    async def dump(self):
        return "its stacks"

    def kill(self, why):
        self.killed_for = why


@pytest.mark.parametrize(
    ("role", "ended"), [(Role.STARTING, 0), (Role.WORKING, 1), (Role.SPARE, 1)]
)
async def test_child_that_still_loads_its_app_is_not_silent(role, ended):
    clock = FakeClock()
    child = Silent(role, clock)
    care = ChildWatchdog(None, Settings(max_silence="3s"), clock=clock, members=lambda: [child])

    found = 0
    for _ in range(4):
        clock.advance(timedelta(seconds=2))
        found += await care.check_once()

    assert found == ended

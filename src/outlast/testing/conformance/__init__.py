"""The suite every store must pass: plain async tests that take an open `store` and its `clock`.

A store proves itself in a test module of a few lines, run by pytest-asyncio in auto mode:

    from outlast.testing.conformance import *

    @pytest.fixture
    async def store(clock, ids): ...    # an open store that asks this clock

    @pytest.fixture
    def clock(): return FakeClock()

A store with the capability DURABLE also imports `conformance.durable`, and one with SHARED
`conformance.shared`, `conformance.shared_records` and `conformance.shared_schedules`, whose tests
take a fixture `url`: the address of a new, empty store. What recovery repairs is shown by
`conformance.broken`, whose tests take a fixture `wrecker`, and what `verify` finds of it by
`conformance.refuted`.
"""

from outlast.testing.conformance import (
    adding,
    applying,
    audits,
    batches,
    cancelling,
    chains,
    chores,
    claiming,
    copying,
    editing,
    explaining,
    fences,
    grouping,
    groups,
    hints,
    history,
    keys,
    leases,
    leavings,
    locks,
    moving,
    normalising,
    opening,
    order,
    progress,
    queues,
    records,
    recovery,
    reservations,
    retention,
    scheduling,
    slotting,
    standing,
    streaming,
    workers,
)

_PARTS = (
    adding,
    claiming,
    order,
    moving,
    editing,
    explaining,
    normalising,
    applying,
    cancelling,
    fences,
    leases,
    keys,
    chains,
    history,
    progress,
    leavings,
    retention,
    groups,
    grouping,
    chores,
    workers,
    locks,
    queues,
    records,
    streaming,
    reservations,
    scheduling,
    slotting,
    recovery,
    audits,
    batches,
    hints,
    opening,
    standing,
    copying,
)
_NAMED = [
    (name, test) for part in _PARTS for name, test in vars(part).items() if name.startswith("test_")
]
_TESTS = dict(_NAMED)
assert len(_TESTS) == len(_NAMED), "two tests have one name"

globals().update(_TESTS)
__all__ = list(_TESTS)  # made, so that no test is forgotten

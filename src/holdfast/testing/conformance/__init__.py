"""The suite every store must pass: plain async tests that take an open `store` and its `clock`.

A store proves itself in a test module of a few lines, run by pytest-asyncio in auto mode:

    from holdfast.testing.conformance import *

    @pytest.fixture
    async def store(clock, ids): ...    # an open store that asks this clock

    @pytest.fixture
    def clock(): return FakeClock()

A store with the capability DURABLE also imports `conformance.durable`, and one with SHARED
`conformance.shared`, whose tests take a fixture `url`: the address of a new, empty store. What
recovery repairs is shown by `conformance.broken`, whose tests take a fixture `wrecker`.
"""

from holdfast.testing.conformance import (
    adding,
    applying,
    batches,
    cancelling,
    chains,
    claiming,
    fences,
    hints,
    history,
    keys,
    leases,
    leavings,
    locks,
    opening,
    order,
    progress,
    queues,
    recovery,
    reservations,
    retention,
    workers,
)

_PARTS = (
    adding,
    claiming,
    order,
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
    workers,
    locks,
    queues,
    reservations,
    recovery,
    batches,
    hints,
    opening,
)
_NAMED = [
    (name, test) for part in _PARTS for name, test in vars(part).items() if name.startswith("test_")
]
_TESTS = dict(_NAMED)
assert len(_TESTS) == len(_NAMED), "two tests have one name"

globals().update(_TESTS)
__all__ = list(_TESTS)  # made, so that no test is forgotten

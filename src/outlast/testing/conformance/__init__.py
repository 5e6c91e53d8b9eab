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
    add,
    apply,
    audit,
    batch_isolation,
    cancel,
    chains,
    claim,
    command_results,
    documents,
    edit,
    event_stream,
    fencing,
    group_members,
    groups,
    history,
    insight,
    leases,
    lifecycle,
    locks,
    maintenance,
    move,
    notifications,
    ordering,
    progress,
    queues,
    recovery,
    renumber,
    reservations,
    retention,
    schedules,
    slots,
    transfer_rows,
    transfer_status,
    uniqueness,
    workers,
)

_PARTS = (
    add,
    claim,
    ordering,
    move,
    edit,
    insight,
    renumber,
    apply,
    cancel,
    fencing,
    leases,
    uniqueness,
    chains,
    history,
    progress,
    command_results,
    retention,
    groups,
    group_members,
    maintenance,
    workers,
    locks,
    queues,
    documents,
    event_stream,
    reservations,
    schedules,
    slots,
    recovery,
    audit,
    batch_isolation,
    notifications,
    lifecycle,
    transfer_status,
    transfer_rows,
)
_NAMED = [
    (name, test) for part in _PARTS for name, test in vars(part).items() if name.startswith("test_")
]
_TESTS = dict(_NAMED)
assert len(_TESTS) == len(_NAMED), "two tests have one name"

globals().update(_TESTS)
__all__ = list(_TESTS)  # made, so that no test is forgotten

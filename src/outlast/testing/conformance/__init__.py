"""Conformance suite: plain async tests that take an open `store` and its `clock`.

A store runs it from a test module of a few lines, run by pytest-asyncio in auto mode:

    from outlast.testing.conformance import *

    @pytest.fixture
    async def store(clock, ids): ...    # an open store that asks this clock

    @pytest.fixture
    def clock(): return FakeClock()

A store with the capability DURABLE also imports `conformance.durable`, and one with SHARED
`conformance.concurrency`, `conformance.concurrency_queues`, `conformance.concurrency_documents`,
`conformance.concurrency_schedules` and `conformance.concurrency_windows`, whose tests take a
fixture `url`: the URL of a new, empty store. `conformance.corruption_recovery`,
`conformance.corruption_recovery_records` and `conformance.corruption_detection` take a fixture
`corrupter` that corrupts the store.
"""

from outlast.testing.conformance import (
    add,
    apply,
    audit,
    batch_isolation,
    cancel,
    chains,
    claim,
    claim_outlook,
    command_results,
    declarations,
    documents,
    edit,
    envelopes,
    event_stream,
    fencing,
    group_members,
    group_retention,
    group_stop,
    groups,
    history,
    insight,
    key_windows,
    large_payloads,
    leases,
    lifecycle,
    locks,
    long_texts,
    maintenance,
    metadata,
    move,
    notifications,
    ordering,
    progress,
    queues,
    recovery,
    refusals,
    renumber,
    replacement,
    reservation_expiry,
    reservation_release,
    reservations,
    retention,
    run_logs,
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
    claim_outlook,
    ordering,
    move,
    edit,
    long_texts,
    envelopes,
    insight,
    renumber,
    apply,
    refusals,
    cancel,
    fencing,
    leases,
    uniqueness,
    key_windows,
    replacement,
    chains,
    history,
    progress,
    run_logs,
    command_results,
    retention,
    groups,
    group_members,
    group_stop,
    group_retention,
    maintenance,
    workers,
    locks,
    queues,
    documents,
    event_stream,
    reservations,
    reservation_release,
    reservation_expiry,
    schedules,
    declarations,
    slots,
    recovery,
    audit,
    batch_isolation,
    notifications,
    lifecycle,
    large_payloads,
    transfer_status,
    transfer_rows,
    metadata,
)
_NAMED = [
    (name, test) for part in _PARTS for name, test in vars(part).items() if name.startswith("test_")
]
_TESTS = dict(_NAMED)
assert len(_TESTS) == len(_NAMED), "two tests have one name"

globals().update(_TESTS)
__all__ = list(_TESTS)  # made, so that no test is forgotten

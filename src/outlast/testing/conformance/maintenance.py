"""The maintenance check misses nothing that is due."""

from collections.abc import Awaitable, Callable

import pytest

from outlast.core.reservation import NewReservation, ReservationId
from outlast.store.contract import Capability, Store, check_maintenance
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.testing.clock import FakeClock
from outlast.testing.conformance.factories import (
    HOUR,
    LEASE,
    SECOND,
    TICK,
    ended,
    make_job,
    new_id,
    put,
    put_group,
    started,
    sweep,
)

NOTHING = MaintenanceDue(lapsed=False, overdue=False, held=False, groups=False, deserted=False)


async def _lapse(store: Store, clock: FakeClock) -> None:
    await started(store)
    clock.advance(LEASE)


async def _be_late(store: Store, clock: FakeClock) -> None:
    await put(store, start_within=SECOND)
    clock.advance(SECOND + TICK)


async def _hold(store: Store, _: FakeClock) -> None:
    wanted = NewReservation(id=ReservationId(new_id()), caller="caller.1", request="r", span=HOUR)
    await store.reserve(wanted, make_job(max_attempts=1))


async def _stop_group(store: Store, _: FakeClock) -> None:
    group_id, _ids = await put_group(store)
    await store.stop_group(group_id, reason="enough")


async def _abandon_group(store: Store, clock: FakeClock) -> None:
    await put_group(store, is_sealed=False)
    clock.advance(HOUR + TICK)


CHORES: dict[str, Callable[[Store, FakeClock], Awaitable[None]]] = {
    "lapsed": _lapse,
    "overdue": _be_late,
    "held": _hold,
    "groups": _stop_group,
    "groups, never completed": _abandon_group,
}


async def _plenty(store: Store) -> None:
    """Waiting, running, ended, grouped: all in order."""
    await ended(store)
    await started(store)
    await put(store, start_within=HOUR)
    await put(store, delay=SECOND)
    await put_group(store)
    await put_group(store, is_sealed=False)


async def test_where_all_is_in_order_one_look_says_so(store: Store) -> None:
    await _plenty(store)

    chores = await check_maintenance(store, abandoned=HOUR)

    # Who cannot tell at one look says that there may be something of everything.
    assert chores == (
        NOTHING if Capability.MAINTENANCE_CHECK in store.capabilities else MaintenanceDue()
    )


@pytest.mark.parametrize("what", CHORES)
async def test_nothing_that_needs_tidying_is_missed_at_one_look(
    store: Store, clock: FakeClock, what: str
) -> None:
    await CHORES[what](store, clock)

    chores = await check_maintenance(store, abandoned=HOUR)

    assert getattr(chores, what.partition(",")[0])
    if Capability.MAINTENANCE_CHECK in store.capabilities:
        others = [name for name in MaintenanceDue.__slots__ if getattr(chores, name)]
        assert others == [what.partition(",")[0]]


async def test_group_that_was_swept_is_no_chore_any_more(store: Store) -> None:
    group_id, _ = await put_group(store)
    await store.stop_group(group_id, reason="enough")
    await sweep(store)

    chores = await check_maintenance(store, abandoned=HOUR)

    assert chores.groups is (Capability.MAINTENANCE_CHECK not in store.capabilities)

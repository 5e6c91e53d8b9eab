"""Machines whose clocks differ: no living worker loses a lease, and a dead one's leases end."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from outlast.clock import MICROSECOND
from outlast.core.event import Lost
from outlast.core.run import Claim, Lease
from outlast.core.state import Loss
from outlast.errors import ClockSkewTooLarge
from outlast.store.keyvalue.clocks import FleetClock
from outlast.store.keyvalue.engine import Engine, ServerTime
from outlast.store.keyvalue.engine_wrapper import EngineWrapper
from outlast.store.keyvalue.store import MAX_SKEW, KeyValueStore
from outlast.testing.clock import START, FakeClock
from outlast.testing.conformance.factories import HOUR, MANY, SECOND, new_id, put, settle, take
from outlast.worker.maintenance.loop import Maintenance
from support.engines.memory import MemoryEngine

LEASE = timedelta(seconds=6)
RENEW = timedelta(seconds=2)
FRACTION = timedelta(milliseconds=900)
"""Server time that its whole seconds leave out."""

ACCEPTED = [(-5.5, 4.9), (-4.9, 5.0), (0.0, 5.0), (-5.5, 0.0)]
"""Seconds by which the clocks of two machines are ahead of the server's."""


class _Answering(EngineWrapper):
    """The engine as one machine sees it: each answer has the server's time in whole seconds."""

    def __init__(self, engine: Engine, server: FakeClock, machine: FakeClock) -> None:
        super().__init__(engine)
        self._server, self._machine = server, machine

    async def time(self) -> ServerTime:
        return self.latest_time

    @property
    def latest_time(self) -> ServerTime:
        reading = self._machine.monotonic()
        return ServerTime(self._server.now().replace(microsecond=0), reading, reading)


class _Fleet:
    """A server and machines whose clocks pass at the same pace."""

    def __init__(self, *, poll: float = 0.5) -> None:
        self._engine = MemoryEngine()
        self._engine.limits = replace(self._engine.limits, poll=poll)
        self._server = FakeClock(START + FRACTION)
        self.clocks: list[FakeClock] = []

    async def machine(self, ahead: float) -> KeyValueStore:
        """Open a store on a machine whose clock is that many seconds ahead of the server's."""
        clock = FakeClock(self._server.now() + timedelta(seconds=ahead))
        self.clocks.append(clock)
        engine = _Answering(self._engine, self._server, clock)
        store = KeyValueStore(engine, clock=FleetClock(clock))
        await store.open()
        return store

    def advance(self, span: timedelta) -> None:
        for clock in (self._server, *self.clocks):
            clock.advance(span)


@pytest.mark.parametrize("ahead", [*ACCEPTED, *(pair[::-1] for pair in ACCEPTED)])
async def test_living_worker_keeps_its_lease_whatever_two_machines_open_accepts(
    ahead: tuple[float, float],
) -> None:
    fleet = _Fleet()
    worker, other = [await fleet.machine(each) for each in ahead]
    claim = await _claimed(worker)

    for second in range(1, 31):
        fleet.advance(SECOND)
        if second % RENEW.total_seconds() == 0:
            await _renew(worker, claim)
        assert await other.expired_leases(limit=MANY) == []
        assert not await _lose(other, claim)


@pytest.mark.parametrize("ahead", [*ACCEPTED, *(pair[::-1] for pair in ACCEPTED)])
async def test_lease_of_a_dead_worker_is_over_for_each_machine_after_the_margin(
    ahead: tuple[float, float],
) -> None:
    fleet = _Fleet()
    worker, other = [await fleet.machine(each) for each in ahead]
    claim = await _claimed(worker)

    fleet.advance(LEASE + MAX_SKEW + MAX_SKEW / 2)

    assert [job.id for job in await other.expired_leases(limit=MANY)] == [claim.id]
    assert await _lose(other, claim)


async def test_machine_that_differs_more_than_allowed_is_refused() -> None:
    fleet = _Fleet()

    for ahead in (-6.0, 5.5):
        with pytest.raises(ClockSkewTooLarge):
            await fleet.machine(ahead)


async def test_clock_that_goes_wrong_costs_no_living_run(caplog: pytest.LogCaptureFixture) -> None:
    fleet = _Fleet()
    right, wrong = await fleet.machine(0.0), await fleet.machine(0.0)
    others, own = await _claimed(right), await _claimed(wrong)
    fleet.clocks[1].advance(HOUR)

    for _ in range(15):
        fleet.advance(RENEW)
        await _renew(right, others)
        await _renew(wrong, own)
        assert not await _lose(wrong, others)
        assert not await _lose(right, own)

    [line] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "clock differs apart=" in line.getMessage()


async def test_machine_that_was_suspended_judges_leases_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = _Fleet()
    awake, suspended = await fleet.machine(0.0), await fleet.machine(0.0)
    clock = fleet.clocks.pop()
    fleet.advance(HOUR)
    clock.set_wall(clock.now() + HOUR)  # its monotonic clock has stood still
    fleet.clocks.append(clock)
    dead = await _claimed(awake)
    own = await _claimed(suspended)

    fleet.advance(LEASE - SECOND)
    early = await _lose(awake, own), await _lose(suspended, dead)
    fleet.advance(SECOND + 2 * MAX_SKEW)

    assert early == (False, False)
    assert await _lose(suspended, dead)
    assert await _lose(awake, own)
    assert not caplog.records


@pytest.mark.parametrize(
    ("poll", "promised"), [(0.5, 8 * SECOND), (5.0, 10 * SECOND)], ids=["etcd", "dynamodb"]
)
async def test_jobs_of_a_dead_worker_are_taken_over_as_soon_after_their_lease_as_promised(
    poll: float, promised: timedelta
) -> None:
    fleet, woken = _Fleet(poll=poll), list[bool]()
    worker, other = await fleet.machine(0.0), await fleet.machine(0.0)
    maintenance = Maintenance(other, new_id, on_reclaimed=lambda: woken.append(True))
    longest_pause = other.polling_defaults.tick * 1.2
    claim = await _claimed(worker)

    fleet.advance(LEASE + MAX_SKEW - MICROSECOND)
    too_early = await maintenance.run_once()
    fleet.advance(longest_pause)
    done = await maintenance.run_once()

    assert (too_early.reclaimed, done.reclaimed, woken) == (0, 1, [True])
    assert (await take(other, lease=LEASE)).id == claim.id
    assert MAX_SKEW + longest_pause < promised - SECOND, "a second is left to claim and start it"


async def _claimed(store: KeyValueStore) -> Claim:
    await put(store)
    return await take(store, lease=LEASE)


async def _renew(store: KeyValueStore, claim: Claim) -> None:
    [renewal] = await store.renew([Lease(claim.job_id, claim.token)], span=LEASE)
    assert renewal.held


async def _lose(store: KeyValueStore, claim: Claim) -> bool:
    return await settle(store, claim, Lost(Loss.LEASE_EXPIRED))

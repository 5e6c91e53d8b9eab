"""The lease guard: a `once` run ends before the store lets the next slot start."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from test_shared_lease_table import claim

from outlast.config import Settings
from outlast.core.delivery import Delivery
from outlast.core.duration import MICROSECOND
from outlast.core.state import Loss
from outlast.store.contract.jobs import Renewal
from outlast.testing.clock import FakeClock
from outlast.worker.supervisor.child_process import ChildRole
from outlast.worker.supervisor.crash_attribution import attribute_crash
from outlast.worker.supervisor.lease_guard import UNCOVERED_STATUS, covered_time, guard_leases
from outlast.worker.supervisor.shared_lease_table import SharedLeaseTable, SharedLeaseWriter
from outlast.worker.supervisor.watchdog import ChildWatchdog, is_overdue

PATIENCE_S = 120
LEASE = timedelta(seconds=10)
LIMIT = covered_time(LEASE)
ONCE, OTHER = replace(claim(1), delivery=Delivery.ONCE), claim(2)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def table():
    table = SharedLeaseTable.new()
    yield table
    table.close()


@pytest.fixture
def held(table, clock):
    return SharedLeaseWriter(table, clock.monotonic)


class Child:
    """A child as its watchdog sees it."""

    pid = 1
    role = ChildRole.WORKING
    killed_for = None
    was_killed = True

    def __init__(self, table, clock):
        self.lease_table = table
        self.last_heartbeat = clock.monotonic()
        self.channel = self
        self.process = self
        self.returncode = None
        self.sent = []

    def send(self, kind, **fields):
        self.sent.append((kind, fields["held"]))

    def kill(self, why):
        self.killed_for = why


class Renewing:
    """A store that renews as told."""

    def __init__(self, *, held=True):
        self.held = held

    async def renew(self, leases, *, span):
        return [Renewal(held=self.held) for _ in leases]


@pytest.fixture
def child(table, clock):
    return Child(table, clock)


def watchdog(child, clock, store=None):
    settings = Settings(lease="10s", renew="3s", max_silence="1h")
    return ChildWatchdog(store or Renewing(), settings, clock=clock, members=lambda: [child])


def test_a_run_is_covered_for_less_time_than_its_lease_lasts():
    assert timedelta() < LIMIT * MICROSECOND < LEASE


def test_a_once_run_is_covered_until_its_last_renewal_is_too_old(table, held, clock):
    held.add([ONCE, OTHER])
    clock.advance(LIMIT * MICROSECOND)
    claimed = held.is_uncovered(LIMIT)
    table.record_renewal(clock.monotonic())
    clock.advance(LIMIT * MICROSECOND)
    renewed = held.is_uncovered(LIMIT)
    clock.advance(MICROSECOND)

    assert (claimed, renewed, held.is_uncovered(LIMIT)) == (False, False, True)


@pytest.mark.parametrize("end", ["returned", "remove"])
def test_a_once_run_that_has_ended_needs_no_cover(held, clock, end):
    held.add([ONCE])
    held.start(ONCE, executor="thread", limit=None)

    held.returned(ONCE) if end == "returned" else held.remove(ONCE.lease)
    clock.advance(2 * LEASE)

    assert not held.is_uncovered(LIMIT)


def test_jobs_of_other_deliveries_need_no_cover(held, clock):
    held.add([OTHER])
    clock.advance(2 * LEASE)

    assert not held.is_uncovered(LIMIT)
    assert not held.has_once.is_set()


def test_a_child_ends_itself_when_nobody_renews_its_once_run(held, clock):
    """Also when its supervisor cannot kill it: that may be frozen."""
    statuses, ended = [], threading.Event()

    def exit_now(status):
        statuses.append(status)
        ended.set()

    guard_leases(held, LEASE, exit_now)
    held.add([ONCE])
    clock.advance(LEASE)

    assert ended.wait(PATIENCE_S)
    assert statuses == [UNCOVERED_STATUS]


async def test_the_supervisor_kills_a_child_whose_once_run_is_not_covered(held, child, clock):
    """Also a child whose own guard cannot run: its handler may hold the interpreter."""
    held.add([ONCE, OTHER])
    dog = watchdog(child, clock)
    clock.advance(LIMIT * MICROSECOND)
    before = await dog.check_once()
    clock.advance(MICROSECOND)

    assert (before, await dog.check_once(), child.killed_for) == (0, 1, Loss.LEASE_EXPIRED)


async def test_a_renewal_covers_a_once_run_from_its_beginning(table, held, child, clock):
    held.add([ONCE])
    clock.advance(LIMIT * MICROSECOND)

    await watchdog(child, clock).renew_once()

    assert table.renewed == clock.monotonic()
    clock.advance(LIMIT * MICROSECOND)
    assert not held.is_uncovered(LIMIT)


async def test_a_refused_renewal_covers_nothing(table, held, child, clock):
    held.add([ONCE])

    await watchdog(child, clock, Renewing(held=False)).renew_once()

    assert table.renewed == 0
    assert child.sent == [("renewal", False)]


async def test_a_renewal_refused_to_another_delivery_covers_the_once_run(table, held, child, clock):
    held.add([OTHER])

    await watchdog(child, clock, Renewing(held=False)).renew_once()

    assert table.renewed == clock.monotonic()


def test_a_once_run_that_lost_its_lease_is_overdue_unless_it_stops(table, held, clock):
    held.add([ONCE, OTHER])
    held.start(ONCE, executor="thread", limit=None)
    held.start(OTHER, executor="thread", limit=None)

    held.lose(ONCE.lease)
    held.lose(OTHER.lease)
    clock.advance("2s")

    [entry] = table.entries()
    assert entry.lease == ONCE.lease
    assert is_overdue(entry, clock.monotonic())


@pytest.mark.parametrize(
    ("killed_for", "status"), [(Loss.LEASE_EXPIRED, -9), (None, UNCOVERED_STATUS)]
)
def test_only_the_once_run_is_charged_for_a_child_ended_by_its_lease(
    table, held, child, clock, killed_for, status
):
    held.add([ONCE, OTHER])
    child.killed_for, child.returncode = killed_for, status

    report = attribute_crash(child, list(table.entries()), now=clock.monotonic())

    assert (report.reason, report.charged) == (Loss.LEASE_EXPIRED, {ONCE.lease})

"""The watchdog of child processes: renews their leases, kills silent or overdue children."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from outlast.clock import Clock
from outlast.config import Settings
from outlast.core.duration import MICROSECOND
from outlast.core.run import Lease
from outlast.core.state import Loss
from outlast.store.contract.jobs import Jobs, Renewal
from outlast.worker.executors.guarded_process import TERMINATE_TIMEOUT_S
from outlast.worker.supervisor.child_process import ChildProcess, ChildRole
from outlast.worker.supervisor.lease_guard import is_uncovered
from outlast.worker.supervisor.shared_lease_table import LeaseEntry

log = logging.getLogger("outlast.worker")

STOP_TIMEOUT: Final = timedelta(seconds=1)
"""Time for which a handler past its `max_runtime` may still stop by itself."""

MAX_START_TIME: Final = timedelta(minutes=10)
"""Time for which a child may load its app without a heartbeat."""

OUT_OF_PROCESS_EXECUTORS: Final = frozenset({"process", "command"})
"""Executors that kill such a handler themselves, without the child; they get more time."""


class ChildWatchdog:
    """Renews and checks, each in its own periodic loop. Neither waits for user code."""

    def __init__(
        self,
        store: Jobs,
        settings: Settings,
        *,
        clock: Clock,
        members: Callable[[], list[ChildProcess]],
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._members = members
        self._last_check = clock.monotonic()

    async def renew_once(self) -> int:
        """Renew the leases of all children; return how many were renewed.

        A child is informed of a lease that was lost or is to be cancelled.
        """
        began, members = self._clock.monotonic(), self._members()
        held = [(child, entry) for child in members for entry in child.lease_table.entries()]
        if not held:
            return 0
        leases = [entry.lease for _, entry in held]
        renewals = await self._store.renew(leases, span=self._settings.lease)
        uncovered: set[ChildProcess] = set()
        for (child, entry), renewal in zip(held, renewals, strict=True):
            if not renewal.held or renewal.cancel_requested:
                _send_renewal(child, entry.lease, renewal)
            if not renewal.held and entry.once_since is not None:
                uncovered.add(child)
        for child in members:
            # The table of a child that is gone is closed.
            if child not in uncovered and child.role is not ChildRole.GONE:
                child.lease_table.record_renewal(began)
        return sum(renewal.held for renewal in renewals)

    async def check_once(self) -> int:
        """Kill children that are silent, or have an overdue or uncovered run; return how many."""
        now, before = self._clock.monotonic(), self._last_check
        self._last_check = now
        members = [child for child in self._members() if child.killed_for is None]
        overdue = [child for child in members if self._is_overdue(child, now)]
        for child in overdue:
            log.error("child past a run's max_runtime pid=%d", child.pid)
            child.kill(Loss.TIMEOUT)
        uncovered = [child for child in members if self._is_uncovered(child, now)]
        for child in uncovered:
            log.error("lease of a once run not renewed pid=%d", child.pid)
            child.kill(Loss.LEASE_EXPIRED)
        # If the supervisor itself was suspended, no heartbeat is missing.
        silence = self._settings.max_silence
        was_awake = now - before < silence // MICROSECOND
        silent = [child for child in members if was_awake and self._is_silent(child, now)]
        for child in silent:
            log.error("child silent pid=%d for longer than %s", child.pid, silence)
            child.stacks = await child.dump()
            child.kill(Loss.SILENT)
        return len({*overdue, *uncovered, *silent})

    def has_silent_child(self) -> bool:
        """Whether a child that is alive has sent no heartbeat for too long."""
        now = self._clock.monotonic()
        return any(self._is_silent(child, now) for child in self._members())

    def _is_silent(self, child: ChildProcess, now: int) -> bool:
        silence = self._settings.max_silence
        if child.role is ChildRole.STARTING:  # it sends no heartbeat while it imports the app
            silence = max(silence, MAX_START_TIME)
        return now - child.last_heartbeat > silence // MICROSECOND

    def _is_uncovered(self, child: ChildProcess, now: int) -> bool:
        table, lease = child.lease_table, self._settings.lease
        return any(is_uncovered(entry, table.renewed, lease, now) for entry in table.entries())

    @staticmethod
    def _is_overdue(child: ChildProcess, now: int) -> bool:
        return any(is_overdue(entry, now) for entry in child.lease_table.entries())


def _send_renewal(child: ChildProcess, lease: Lease, renewal: Renewal) -> None:
    child.channel.send(
        "renewal",
        job=lease.job_id,
        token=lease.token,
        held=renewal.held,
        cancel=renewal.cancel_requested,
    )


def is_overdue(entry: LeaseEntry, now: int) -> bool:
    """Whether the handler still runs after its deadline and the time to stop."""
    if entry.deadline is None or entry.has_returned:
        return False
    extra = (
        timedelta(seconds=TERMINATE_TIMEOUT_S)
        if entry.executor in OUT_OF_PROCESS_EXECUTORS
        else timedelta()
    )
    return now > entry.deadline + (STOP_TIMEOUT + extra) // MICROSECOND

"""Keeping children alive and honest: their leases, their signs of life, their time limits."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from outlast.clock import Clock
from outlast.config import Settings
from outlast.core.duration import MICROSECOND
from outlast.core.state import Loss
from outlast.store.contract.jobs import Jobs
from outlast.worker.executors.guarded_process import TERMINATE_TIMEOUT_S
from outlast.worker.supervisor.child_process import ChildProcess, ChildRole
from outlast.worker.supervisor.shared_lease_table import LeaseEntry

log = logging.getLogger("outlast.worker")

STOP_TIMEOUT: Final = timedelta(seconds=1)
"""How long a handler that was told its time is over may still take to stop by itself."""

MAX_START_TIME: Final = timedelta(minutes=10)
"""How long a child may take to load its app, however short `max_silence` is."""

OUT_OF_PROCESS_EXECUTORS: Final = frozenset({"process", "command"})
"""Executors that end such a handler themselves, and no neighbour with it; they take longer."""


class ChildWatchdog:
    """Two steps, each on a clock of its own; neither waits for any user code."""

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
        self._looked = clock.monotonic()

    async def renew_once(self) -> int:
        """Renew what the living hold; how many leases were. Tells a child what it must know."""
        held = [
            (kin, entry.lease) for kin in self._members() for entry in kin.lease_table.entries()
        ]
        if not held:
            return 0
        leases = [lease for _, lease in held]
        renewals = await self._store.renew(leases, span=self._settings.lease)
        for (kin, lease), renewal in zip(held, renewals, strict=True):
            if not renewal.held or renewal.cancel_requested:
                kin.channel.send(
                    "found",
                    job=lease.job_id,
                    token=lease.token,
                    held=renewal.held,
                    cancel=renewal.cancel_requested,
                )
        return sum(renewal.held for renewal in renewals)

    async def check_once(self) -> int:
        """End children that are silent, or hold a run past its time limit; how many."""
        now, before = self._clock.monotonic(), self._looked
        self._looked = now
        members = [kin for kin in self._members() if kin.killed_for is None]
        late = [kin for kin in members if self._is_late(kin, now)]
        for kin in late:
            log.error("child past a run's max_runtime pid=%d", kin.pid)
            kin.kill(Loss.TIMEOUT)
        # If this process itself stood still, nobody was silent: nobody was heard.
        silence = self._settings.max_silence
        was_awake = now - before < silence // MICROSECOND
        silent = [kin for kin in members if was_awake and self._is_silent(kin, now)]
        for kin in silent:
            log.error("child silent pid=%d for longer than %s", kin.pid, silence)
            kin.stacks = await kin.dump()
            kin.kill(Loss.SILENT)
        return len(late) + len(silent)

    def _is_silent(self, kin: ChildProcess, now: int) -> bool:
        silence = self._settings.max_silence
        if (
            kin.role is ChildRole.STARTING
        ):  # importing an app gives no sign of life, and may take a while
            silence = max(silence, MAX_START_TIME)
        return now - kin.last_heartbeat > silence // MICROSECOND

    @staticmethod
    def _is_late(kin: ChildProcess, now: int) -> bool:
        return any(is_overdue(entry, now) for entry in kin.lease_table.entries())


def is_overdue(entry: LeaseEntry, now: int) -> bool:
    """Whether its handler still runs, though its time was over some while ago."""
    if entry.deadline is None or entry.has_returned:
        return False
    patience = (
        timedelta(seconds=TERMINATE_TIMEOUT_S)
        if entry.executor in OUT_OF_PROCESS_EXECUTORS
        else timedelta()
    )
    return now > entry.deadline + (STOP_TIMEOUT + patience) // MICROSECOND

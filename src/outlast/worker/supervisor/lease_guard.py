"""The lease guard: ends a child before the lease of one of its `once` runs can expire.

Runs of one `once` name never overlap. The store lets the next slot start when a lease has expired,
so its run must have ended by then, whatever prevented the renewal: the supervisor is frozen, the
store is out of reach, or the child itself was frozen.
"""

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from outlast.core.duration import MICROSECOND
from outlast.worker.supervisor.shared_lease_table import LeaseEntry, SharedLeaseWriter

UNCOVERED_STATUS: Final = 75
"""Exit status of a child that ended itself because a lease was not renewed."""

CHECK_INTERVAL_S: Final = 0.25
"""Seconds between two checks; a frozen process makes the next one as soon as it continues."""

COVERED_SHARE: Final = 0.9
"""Share of a lease for which it covers its run. The rest is time to end the process."""


def covered_time(lease: timedelta) -> int:
    """Return the microseconds after a claim or renewal for which a `once` run may go on."""
    return int(COVERED_SHARE * (lease // MICROSECOND))


def is_uncovered(entry: LeaseEntry, renewed: int, lease: timedelta, now: int) -> bool:
    """Whether an entry is a `once` run whose lease was not renewed for too long."""
    if entry.once_since is None or entry.has_returned:
        return False
    return now > max(entry.once_since, renewed) + covered_time(lease)


def guard_leases(
    held: SharedLeaseWriter, lease: timedelta, exit_now: Callable[[int], object] = os._exit
) -> None:
    """End this process when a `once` run is not covered by its lease.

    A thread checks it, because a handler may block the event loop. It waits for the first such run.
    """
    limit = covered_time(lease)

    def watch() -> None:
        held.has_once.wait()
        while not held.is_uncovered(limit):
            time.sleep(CHECK_INTERVAL_S)
        exit_now(UNCOVERED_STATUS)

    threading.Thread(target=watch, name="outlast-lease-guard", daemon=True).start()

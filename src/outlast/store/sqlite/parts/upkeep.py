"""What there is to tidy."""

from collections.abc import Collection
from datetime import timedelta

from outlast.clock import to_micros
from outlast.core.duration import MICROSECOND
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.sqlite.operations.base import SqliteOperations


class SqliteUpkeep(SqliteOperations):
    """What there is to tidy."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        now = to_micros(self._clock.now())
        asked = {"now": now, "mono": self._clock.monotonic()}
        before = now - abandoned // MICROSECOND
        [found] = await self._reader.rows("jobs.chores", before=before, **asked)
        lapsed, overdue, held, groups = map(bool, found)
        trees = [
            boot
            for (boot,) in await self._reader.rows("jobs.trees", tree=f"{SUPERVISED_BOOT_PREFIX}*")
        ]
        deserted = bool(trees and await self.free_locks(trees))
        return MaintenanceDue(
            expired_leases=lapsed,
            missed_deadlines=overdue,
            reservations=held,
            groups=groups,
            dead_workers=deserted,
        )

    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        raise NotImplementedError

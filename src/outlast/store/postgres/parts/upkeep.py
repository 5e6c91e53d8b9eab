"""What there is to tidy."""

from datetime import timedelta
from typing import Any, Final

from outlast.core.duration import MICROSECOND
from outlast.core.worker import SUPERVISED_BOOT_PREFIX
from outlast.store.contract.maintenance import MaintenanceDue
from outlast.store.postgres.locks import lock_key
from outlast.store.postgres.operations.base import PostgresOperations

CALM: Final = 15
"""Seconds after a start of the server in which a lock that nobody has proves nothing: its holder
may be on its way to take it again."""


class PostgresUpkeep(PostgresOperations):
    """What there is to tidy."""

    async def maintenance_due(self, *, abandoned: timedelta) -> MaintenanceDue:
        asked: dict[str, Any] = {
            "now": self._now,
            "mono": self._mono,
            "abandoned": abandoned // MICROSECOND,
        }
        asked |= {
            "tree": SUPERVISED_BOOT_PREFIX,
            "lock": lock_key(self.address.schema, ""),
            "calm": CALM,
        }
        found = (await self._lines.rows("maintenance.due", **asked))[0]
        lapsed, overdue, held, groups, deserted = found
        return MaintenanceDue(
            lapsed=lapsed, overdue=overdue, held=held, groups=groups, deserted=deserted
        )

"""What there is to tidy."""

from datetime import timedelta
from typing import Any, Final

from outlast.core.duration import MICROSECOND
from outlast.core.worker import TREE
from outlast.store.postgres.locks import lock_key
from outlast.store.postgres.operations.base import Asking
from outlast.store.upkeep import Chores

CALM: Final = 15
"""Seconds after a start of the server in which a lock that nobody has proves nothing: its holder
may be on its way to take it again."""


class PostgresUpkeep(Asking):
    """What there is to tidy."""

    async def chores(self, *, abandoned: timedelta) -> Chores:
        asked: dict[str, Any] = {
            "now": self._now,
            "mono": self._mono,
            "abandoned": abandoned // MICROSECOND,
        }
        asked |= {"tree": TREE, "lock": lock_key(self.address.schema, ""), "calm": CALM}
        found = (await self._lines.rows("chore.look", **asked))[0]
        lapsed, overdue, held, groups, deserted = found
        return Chores(lapsed=lapsed, overdue=overdue, held=held, groups=groups, deserted=deserted)

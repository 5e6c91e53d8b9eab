"""What there is to tidy."""

from datetime import timedelta

from holdfast.core.span import MICROSECOND
from holdfast.store.postgres.parts.asking import Asking
from holdfast.store.upkeep import Chores


class PostgresUpkeep(Asking):
    """What there is to tidy."""

    async def chores(self, *, abandoned: timedelta) -> Chores:
        asked = {"now": self._now, "mono": self._mono, "abandoned": abandoned // MICROSECOND}
        [(lapsed, overdue, held, groups)] = await self._lines.rows("chore.look", **asked)
        return Chores(lapsed=lapsed, overdue=overdue, held=held, groups=groups)

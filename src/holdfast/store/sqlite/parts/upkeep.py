"""What there is to tidy."""

from datetime import timedelta

from holdfast.clock import micros
from holdfast.core.span import MICROSECOND
from holdfast.store.sqlite.parts.asking import Asking
from holdfast.store.upkeep import Chores


class SqliteUpkeep(Asking):
    """What there is to tidy."""

    async def chores(self, *, abandoned: timedelta) -> Chores:
        now = micros(self._clock.now())
        asked = {"now": now, "mono": self._clock.monotonic()}
        before = now - abandoned // MICROSECOND
        [found] = await self._reader.rows("read.chores", before=before, **asked)
        lapsed, overdue, held, groups = map(bool, found)
        return Chores(lapsed=lapsed, overdue=overdue, held=held, groups=groups)

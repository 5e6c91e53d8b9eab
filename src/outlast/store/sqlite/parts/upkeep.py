"""What there is to tidy."""

from collections.abc import Collection
from datetime import timedelta

from outlast.clock import micros
from outlast.core.duration import MICROSECOND
from outlast.core.worker import TREE
from outlast.store.sqlite.operations.base import Asking
from outlast.store.upkeep import Chores


class SqliteUpkeep(Asking):
    """What there is to tidy."""

    async def chores(self, *, abandoned: timedelta) -> Chores:
        now = micros(self._clock.now())
        asked = {"now": now, "mono": self._clock.monotonic()}
        before = now - abandoned // MICROSECOND
        [found] = await self._reader.rows("read.chores", before=before, **asked)
        lapsed, overdue, held, groups = map(bool, found)
        trees = [boot for (boot,) in await self._reader.rows("read.trees", tree=f"{TREE}*")]
        deserted = bool(trees and await self.vacant(trees))
        return Chores(lapsed=lapsed, overdue=overdue, held=held, groups=groups, deserted=deserted)

    async def vacant(self, names: Collection[str]) -> frozenset[str]:
        raise NotImplementedError

"""The contract's verbs of a move, each handed to the module that does it."""

from collections.abc import Sequence

from outlast.store.contract.transfer import Footing, Kind, Row, Stage, Step, refuse_load
from outlast.store.keyvalue import footing
from outlast.store.keyvalue.footing import Gatekeeper
from outlast.store.keyvalue.operations import transfer_load
from outlast.store.keyvalue.operations.transfer_dump import Dumper
from outlast.store.keyvalue.surface import Opened


class KeyValueMoving(Opened):
    """Moving a store."""

    _gatekeeper: Gatekeeper | None = None
    _dumper: Dumper | None = None

    @property
    def gatekeeper(self) -> Gatekeeper:
        """Who knows whether the store takes work."""
        desk = self._desk
        if self._gatekeeper is None:
            self._gatekeeper = Gatekeeper(desk.engine, desk.now)
        return self._gatekeeper

    async def footing(self) -> Footing:
        return await self.gatekeeper.look()

    async def stand(self, step: Step) -> bool:
        taken = await footing.stand(self._desk, step)
        if taken and step.stage is Stage.OPEN:  # killed before that, a few records stay, unread
            await transfer_load.forget_copied(self._desk)
        await self.gatekeeper.look()
        return taken

    async def dump(
        self, kind: Kind, *, after: Row | None = None, limit: int, ended_only: bool = False
    ) -> list[Row]:
        if self._dumper is None:
            self._dumper = Dumper(self._desk)
        return await self._dumper.dump(kind, after, limit, ended_only=ended_only)

    async def load(self, kind: Kind, rows: Sequence[Row], gone: Sequence[Row] = ()) -> None:
        present = await self.footing()
        if present.stage is not Stage.FILLING:
            raise refuse_load(present)
        self._dumper = None  # what it remembers is no longer so
        await transfer_load.load(self._desk, kind, rows, gone)

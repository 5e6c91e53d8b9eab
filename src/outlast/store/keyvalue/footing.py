"""How the store stands towards work: a record that everybody looks at once in a while."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

from outlast.core.decide import Change
from outlast.store.contract.transfer import (
    OPEN,
    StatusChange,
    TransferStage,
    TransferStatus,
    allowed_while_sealed,
    closed_error,
    from_row,
    next_status,
    to_row,
)
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import Engine, Key, Value
from outlast.store.keyvalue.unit_of_work import UnitOfWork

FOOTING: Final = Key("outlast", "footing")
FRESH: Final = 1.0
"""Seconds for which a look at it counts: so long it takes until everybody sees a seal."""

WISHES: Final = (
    "add", "claim", "promote_due", "prune", "remove_orphans", "set_queue", "pause", "resume",
    "renumber", "swap", "reserve", "extend_reservation", "release_stale_reservations", "add_group", "seal_group",
    "stop_group", "mark_groups_closed", "expire_groups", "set_schedule", "fire",
)  # fmt: skip
"""Verbs that are refused unless the store is open."""

Store = TypeVar("Store", bound=type)


class StatusCache:
    """Knows how the store stands, as of a second ago at most."""

    def __init__(self, engine: Engine, now: Callable[[], Any]) -> None:
        self._engine = engine
        self._now = now
        self._known = OPEN
        self._looked: float | None = None

    async def require_open(self) -> None:
        """StoreSealed or StoreMoved, unless it takes work."""
        time = asyncio.get_running_loop().time()
        if self._looked is None or not 0 <= time - self._looked < FRESH:
            await self.look()
        footing = self._known.at(self._now())
        if footing is not OPEN:
            raise closed_error(footing)

    async def look(self) -> TransferStatus:
        """As it is now."""
        [entry] = await self._engine.get([FOOTING])
        self._known = _footing(None if entry is None else entry.value)
        self._looked = asyncio.get_running_loop().time()
        return self._known.at(self._now())


async def stand(desk: StoreContext, step: StatusChange) -> bool:
    async def work(unit: UnitOfWork) -> bool:
        footing = next_status(_footing(await unit.get(FOOTING)), step, desk.now())
        if footing is None:
            return False
        if footing.stage is TransferStage.OPEN:
            unit.delete(FOOTING)
        else:
            told = {name: value for name, value in to_row(footing).items() if value is not None}
            unit.put(FOOTING, told)
        return True

    return await desk.run_unit(work)


def _footing(value: Value | None) -> TransferStatus:
    if value is None:
        return OPEN
    names = ("stage", "other", "by", "until", "grace")
    return from_row([value.get(name) for name in names])


def while_open(store: Store) -> Store:
    """The class, with every verb refused that somebody wants while it is being moved."""
    for name in WISHES:
        setattr(store, name, _guarded(getattr(store, name)))
    apply = store.apply  # type: ignore[attr-defined]  # as every store has

    @wraps(apply)
    async def guarded(self: Any, changes: Sequence[Change]) -> list[bool]:
        if not all(map(allowed_while_sealed, changes)):
            await self.gatekeeper.require_open()
        answers: list[bool] = await apply(self, changes)
        return answers

    store.apply = guarded  # type: ignore[attr-defined]  # same
    return store


def _guarded(verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(verb)
    async def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        await self.gatekeeper.require_open()
        return await verb(self, *args, **kwargs)

    return guarded


COPIED: Final = "copied"
"""What was loaded of a job before the job itself, by its id."""


def copied_key(job_id: str) -> Key:
    return Key(COPIED, key_layout.key_safe(job_id))

"""How a store stands towards work, and what may be done only while it is open."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from outlast.clock import moment
from outlast.store.contract.transfer import Stage, Step, after, from_row, to_row
from outlast.store.postgres.unit_of_work import Work

T = TypeVar("T")

PATIENCE: Final = 1000
"""Milliseconds for which everybody waits with a seal for a transaction that began before it."""


def while_open(verb: Callable[[Work], Awaitable[T]]) -> Callable[[Work], Awaitable[T]]:
    """The verb, refused unless the store takes work."""

    async def guarded(work: Work) -> T:
        await require_open(work)
        return await verb(work)

    return guarded


async def require_open(work: Work) -> None:
    await work.rows("footing.require", now=work.now)


async def stand(work: Work, step: Step, *, schema: str) -> bool:
    await work.rows("footing.lock", name=schema)
    present = from_row(next(iter(await work.rows("footing.get")), None))
    footing = after(present, step, moment(work.now))
    if footing is None:
        return False
    if footing.stage is Stage.OPEN:
        await work.run("footing.clear")
        work.queues.add("")  # whoever waited may have work again
    else:
        if present.at(moment(work.now)).stage is Stage.OPEN:
            await _shut(work)
        await work.run("footing.set", **to_row(footing))
    return True


async def _shut(work: Work) -> None:
    """Wait for whoever found it open; nobody else does until this is committed."""
    await work.rows("footing.patience", millis=str(PATIENCE))
    await work.run("footing.shut")

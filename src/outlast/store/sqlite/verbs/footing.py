"""How a store stands towards work, and what may be done only while it is open."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from outlast.clock import from_micros
from outlast.store.contract.transfer import (
    StatusChange,
    TransferStage,
    from_row,
    next_status,
    to_row,
)
from outlast.store.sqlite.writer import WriteTransaction

T = TypeVar("T")
Item = TypeVar("Item")


def require_open_store(
    verb: Callable[[WriteTransaction, Sequence[Item]], list[T]],
) -> Callable[[WriteTransaction, Sequence[Item]], list[T]]:
    """The verb, refused unless the store takes work; one mark for all of a group."""

    @wraps(verb)
    def guarded(work: WriteTransaction, items: Sequence[Item]) -> list[T]:
        work.require_open()
        return verb(work, items)

    return guarded


def change_status(work: WriteTransaction, steps: Sequence[StatusChange]) -> list[bool]:
    return [_stand(work, step) for step in steps]


def _stand(work: WriteTransaction, step: StatusChange) -> bool:
    present = from_row(work.run("transfer_status.get").fetchone())
    footing = next_status(present, step, from_micros(work.now))
    if footing is None:
        return False
    if footing.stage is TransferStage.OPEN:
        work.run("transfer_status.clear")
        work.queues.add("")  # whoever waited may have work again
    else:
        bound: dict[str, Any] = to_row(footing)
        work.run("transfer_status.set", **bound)
    return True

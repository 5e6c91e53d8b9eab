"""How a store stands towards work, and what may be done only while it is open."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from outlast.clock import moment
from outlast.store.contract.transfer import Stage, Step, after, from_row, to_row
from outlast.store.sqlite.writer import Work

T = TypeVar("T")
Item = TypeVar("Item")


def while_open(
    verb: Callable[[Work, Sequence[Item]], list[T]],
) -> Callable[[Work, Sequence[Item]], list[T]]:
    """The verb, refused unless the store takes work; one mark for all of a group."""

    @wraps(verb)
    def guarded(work: Work, items: Sequence[Item]) -> list[T]:
        work.require_open()
        return verb(work, items)

    return guarded


def stand(work: Work, steps: Sequence[Step]) -> list[bool]:
    return [_stand(work, step) for step in steps]


def _stand(work: Work, step: Step) -> bool:
    present = from_row(work.run("footing.get").fetchone())
    footing = after(present, step, moment(work.now))
    if footing is None:
        return False
    if footing.stage is Stage.OPEN:
        work.run("footing.clear")
        work.queues.add("")  # whoever waited may have work again
    else:
        bound: dict[str, Any] = to_row(footing)
        work.run("footing.set", **bound)
    return True

"""Numbers after a restore: none that a job has is given again."""

from functools import partial
from typing import Final

from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.context import PAGE, StoreContext
from outlast.store.keyvalue.engine import KeyRange
from outlast.store.keyvalue.unit_of_work import UnitOfWork

MARGIN: Final = 1 << 40
"""Added to the highest number of a job: a group, a document or a plan may have a higher one."""


async def raise_numbers(context: StoreContext) -> None:
    """Raise the numbers if a job has a higher one than will be given next.

    That is so after the records were restored into an engine that counts from a lower number.
    """
    last = await context.engine.last_number(key_layout.NUMBERS)
    highest = await _highest_after(context, last)
    if highest > last:
        await context.run_unit(partial(_raise, last=highest + MARGIN))


async def _highest_after(context: StoreContext, last: int) -> int:
    """Return the highest number of a job; `last` if none is higher."""
    while page := await context.engine.range(
        KeyRange(key_layout.SEQ, key_layout.number(last + 1)), limit=PAGE
    ):
        last = key_layout.from_number(page[-1].key.sort)
    return last


async def _raise(unit: UnitOfWork, *, last: int) -> None:
    await unit.raise_numbers(last)

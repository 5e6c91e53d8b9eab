"""Run operations on many items concurrently, or several per transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Final, TypeVar

from outlast.errors import PayloadTooLarge
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.outcomes import FailedItem, each_of

Item = TypeVar("Item")
Answer = TypeVar("Answer")

AT_ONCE: Final = 16
"""Concurrent requests of one operation."""


async def run_concurrently(
    items: Sequence[Item],
    do: Callable[[Item], Awaitable[Answer]],
    *,
    is_alone: Callable[[Item], bool] = lambda _: False,
    is_order_needed: bool = True,
) -> list[Answer | FailedItem]:
    """Call `do` for each item and return in order its answer, or how it failed.

    Items that are `is_alone` run one by one, in their turn. After one of them has failed, those
    behind it are not sent if their order is needed.
    """
    outcomes: list[Answer | FailedItem] = []
    error: Exception | None = None
    for alone, group in groupby(items, key=is_alone):
        own = list(group)
        if not alone:
            outcomes += await _at_once(own, do)
            continue
        for item in own:
            outcome = await attempt(item, do) if error is None else FailedItem(error)
            if is_order_needed and isinstance(outcome, FailedItem):
                error = outcome.error
            outcomes.append(outcome)
    return outcomes


async def run_in_chunks(
    context: StoreContext,
    items: Sequence[Item],
    do: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
    *,
    records: int,
    most: int = 1_000,
    is_alone: Callable[[Item], bool] = lambda _: False,
    is_order_needed: bool = True,
    size: Callable[[Item], int] = lambda _: 0,
    refused: Callable[[Item, PayloadTooLarge], Answer] | None = None,
) -> list[Answer | FailedItem]:
    """Call `do` for chunks that fit one transaction, by number and by bytes.

    Otherwise as `run_concurrently`. `records` is how many records one item writes, and `size` the
    bytes known of it; see `run_halved` for chunks that turn out too large, and for `refused`.
    """
    parts: list[tuple[bool, list[Item]]] = []
    for alone, group in groupby(items, key=is_alone):
        own = list(group)
        cut = [[item] for item in own] if alone else _filled(context, own, records, most, size)
        parts += [(alone, part) for part in cut]
    told = await run_concurrently(
        parts,
        lambda part: run_halved(part[1], do, refused=refused),
        is_alone=lambda part: part[0],
        is_order_needed=is_order_needed,
    )
    return [each for (_, part), one in zip(parts, told, strict=True) for each in each_of(part, one)]


async def run_halved(
    items: Sequence[Item],
    do: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
    *,
    refused: Callable[[Item, PayloadTooLarge], Answer] | None = None,
) -> list[Answer | FailedItem]:
    """Call `do` for the items; if the engine refuses them as too large, for each half in turn.

    `refused` is the answer of an item that is too large alone; without it, the item has failed.
    """
    try:
        return list(await do(items))
    except PayloadTooLarge as error:
        if len(items) == 1:
            return [FailedItem(error) if refused is None else refused(items[0], error)]
    half = len(items) // 2
    halves = await run_concurrently(
        [items[:half], items[half:]],
        lambda own: run_halved(own, do, refused=refused),
        is_alone=lambda _: True,
    )
    first, second = halves
    return each_of(items[:half], first) + each_of(items[half:], second)


def _filled(
    context: StoreContext,
    items: Sequence[Item],
    records: int,
    most: int,
    size: Callable[[Item], int],
) -> list[list[Item]]:
    limits = context.engine.limits
    most = min(most, max(1, limits.most_writes // records))
    parts: list[list[Item]] = []
    room = 0
    for item in items:
        if not parts or len(parts[-1]) == most or size(item) > room:
            parts.append([])
            room = limits.most_bytes
        parts[-1].append(item)
        room -= size(item)
    return parts


async def _at_once(
    items: Sequence[Item], do: Callable[[Item], Awaitable[Answer]]
) -> list[Answer | FailedItem]:
    if len(items) == 1:
        return [await attempt(items[0], do)]
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: Item) -> Answer | FailedItem:
        async with room:
            return await attempt(item, do)

    asked = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    for answer in asked:  # a cancellation, raised only after all have ended
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in asked if not isinstance(answer, BaseException)]


async def attempt(item: Item, do: Callable[[Item], Awaitable[Answer]]) -> Answer | FailedItem:
    """Call `do` and return its answer, or how it failed."""
    try:
        return await do(item)
    except Exception as error:  # noqa: BLE001 - the caller decides when all have ended
        return FailedItem(error)

"""Run operations on many items concurrently, or several per transaction."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Final, TypeVar

from outlast.store.keyvalue.context import StoreContext

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_TEXT: Final = 300_000
"""Characters of user texts in one transaction of several items."""

AT_ONCE: Final = 16
"""Concurrent requests of one operation."""


async def run_concurrently(
    items: Sequence[Item],
    do: Callable[[Item], Awaitable[Answer]],
    *,
    is_alone: Callable[[Item], bool] = lambda _: False,
) -> list[Answer]:
    """Call `do` for each item and return the answers in order.

    Items that are `is_alone` run one by one, in their turn.
    """
    answers: list[Answer] = []
    for alone, group in groupby(items, key=is_alone):
        own = list(group)
        answers += [await do(item) for item in own] if alone else await _at_once(own, do)
    return answers


async def run_in_chunks(
    context: StoreContext,
    items: Sequence[Item],
    do: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
    *,
    records: int,
    is_alone: Callable[[Item], bool],
    size: Callable[[Item], int],
) -> list[Answer]:
    """Call `do` for chunks that fit one transaction, by number and size.

    Otherwise as `run_concurrently`. `records` is how many records one item writes.
    """
    answers: list[Answer] = []
    for alone, group in groupby(items, key=is_alone):
        own = list(group)
        parts = [[item] for item in own] if alone else _filled(context, own, records, size)
        for told in await run_concurrently(parts, do, is_alone=lambda _, alone=alone: alone):  # type: ignore[misc]
            answers += told
    return answers


def _filled(
    context: StoreContext, items: Sequence[Item], records: int, size: Callable[[Item], int]
) -> list[list[Item]]:
    most = max(1, context.engine.limits.most_writes // records)
    parts: list[list[Item]] = []
    room = 0
    for item in items:
        if not parts or len(parts[-1]) == most or size(item) > room:
            parts.append([])
            room = MOST_TEXT
        parts[-1].append(item)
        room -= size(item)
    return parts


def chunks(
    context: StoreContext, items: Sequence[Item], *, records: int, most: int = 1_000
) -> list[Sequence[Item]]:
    """Return the items in chunks that fit one transaction.

    `records` is how many records one item writes.
    """
    size = min(most, max(1, context.engine.limits.most_writes // records))
    return [items[start : start + size] for start in range(0, len(items), size)]


async def _at_once(items: Sequence[Item], do: Callable[[Item], Awaitable[Answer]]) -> list[Answer]:
    if len(items) == 1:
        return [await do(items[0])]
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: Item) -> Answer:
        async with room:
            return await do(item)

    asked = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    for answer in asked:  # raised only after all have ended
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in asked if not isinstance(answer, BaseException)]

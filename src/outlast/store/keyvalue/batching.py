"""Many items at a time, where the order between them does not matter."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from typing import Final, TypeVar

from outlast.store.keyvalue.context import StoreContext

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MOST_TEXT: Final = 300_000
"""Characters that the users' own texts may have in one transaction of several items."""

AT_ONCE: Final = 16
"""How many requests one verb has under way."""


async def run_concurrently(
    items: Sequence[Item],
    do: Callable[[Item], Awaitable[Answer]],
    *,
    is_alone: Callable[[Item], bool] = lambda _: False,
) -> list[Answer]:
    """What each answered, in the order given; those that go alone keep their turn."""
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
    """As `together`, but as many in one transaction as it takes, by number and by size."""
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
    """As many at a time as one transaction takes, where each writes up to so many records."""
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
    for answer in asked:  # nobody is left behind at work when one has failed
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in asked if not isinstance(answer, BaseException)]

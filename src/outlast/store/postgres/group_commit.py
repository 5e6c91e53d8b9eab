"""Group commit: what is asked while one write is under way goes out together with the next.

No timer and no delay: a lone write goes out at once, and the more arrive the larger the group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from outlast.errors import OperatorError, StoreMoved, StoreSealed

Item = TypeVar("Item")
Answer = TypeVar("Answer")

FOR_SOME: Final = (StoreSealed, StoreMoved)
"""Troubles with the store that not everybody has: what runs may end."""

MOST: Final = 1000
"""How many items one group takes, unless a single request brings more."""


class GroupCommit(Generic[Item, Answer]):
    """Asks of one loop, served group by group in the order in which they came.

    `serve` answers every item of a group in order. If it raises, the group's requests are served
    again one by one, so that each learns its own fate; `alone` says that it is one request.
    """

    def __init__(self, serve: Callable[[Sequence[Item], bool], Awaitable[list[Answer]]]) -> None:
        self._serve = serve
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def submit(self, items: Sequence[Item]) -> list[Answer]:
        """The answers, once what was written is durable."""
        if self._idle.is_set():
            return await self._serve_at_once(items)
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        return await future

    async def flushed(self) -> None:
        """Wait until everything asked so far has been answered."""
        await self._idle.wait()

    async def _serve_at_once(self, items: Sequence[Item]) -> list[Answer]:
        """Nobody is before it: without a task of its own, so that it is sent in this very step."""
        self._idle.clear()
        try:
            return await self._serve(items, True)
        finally:
            if self._waiting:
                self._task = asyncio.create_task(self._serve_all(), name="outlast-gather")
            else:
                self._idle.set()

    async def _serve_all(self) -> None:
        try:
            while self._waiting:
                await self._serve_group(self._next())
        finally:
            self._task = None
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()
            self._idle.set()

    def _next(self) -> list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]:
        count = items = 0
        for asked, _ in self._waiting:
            items += len(asked)
            if count and items > MOST:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _serve_group(
        self, group: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]]
    ) -> None:
        if len(group) == 1:
            await self._serve_alone(*group[0])
            return
        try:
            answers = await self._serve([item for items, _ in group for item in items], False)
        except Exception as error:  # noqa: BLE001 - each is told its own
            is_hopeless = isinstance(error, OperatorError) and not isinstance(error, FOR_SOME)
            for items, future in group:
                if not is_hopeless:
                    await self._serve_alone(items, future)
                elif not future.done():  # the store itself is the trouble
                    future.set_exception(error)
            return
        start = 0
        for items, future in group:
            if not future.done():
                future.set_result(answers[start : start + len(items)])
            start += len(items)

    async def _serve_alone(
        self, items: Sequence[Item], future: asyncio.Future[list[Answer]]
    ) -> None:
        try:
            answers: Any = await self._serve(items, True)
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(answers)

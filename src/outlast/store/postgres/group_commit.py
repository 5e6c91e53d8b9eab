"""Group commit for one event loop: requests that arrive during a write share the next one.

There is no timer: a single request is written at once, and groups grow with the load.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from outlast.errors import OperatorError, StoreMoved, StoreSealed

Item = TypeVar("Item")
Answer = TypeVar("Answer")

PER_REQUEST_ERRORS: Final = (StoreSealed, StoreMoved)
"""Store errors that concern some requests only: finishing a run is still allowed."""

MAX_GROUP_ITEMS: Final = 1000
"""Number of items in one group, unless a single request has more."""


class GroupCommit(Generic[Item, Answer]):
    """Requests of one loop, served in groups in the order of arrival.

    `serve` returns one answer per item; its second argument tells whether the group is a single
    request. If it raises, the requests of the group are served one by one, so that each gets its
    own answer or error.
    """

    def __init__(self, serve: Callable[[Sequence[Item], bool], Awaitable[list[Answer]]]) -> None:
        self._serve = serve
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]] = []
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def submit(self, items: Sequence[Item]) -> list[Answer]:
        """Return the answers to the items once they are durable."""
        if self._idle.is_set():
            return await self._serve_at_once(items)
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        return await future

    async def flushed(self) -> None:
        """Wait until every request submitted so far is answered."""
        await self._idle.wait()

    async def _serve_at_once(self, items: Sequence[Item]) -> list[Answer]:
        """Serve a request without a task, so that it is sent in the same step of the loop."""
        self._idle.clear()
        try:
            return await self._serve(items, True)
        finally:
            if self._waiting:
                self._task = asyncio.create_task(self._serve_all(), name="outlast-group-commit")
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
        for requested, _ in self._waiting:
            items += len(requested)
            if count and items > MAX_GROUP_ITEMS:
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
        except Exception as error:  # noqa: BLE001 - set on the futures
            is_store_error = isinstance(error, OperatorError) and not isinstance(
                error, PER_REQUEST_ERRORS
            )
            for items, future in group:
                if not is_store_error:
                    await self._serve_alone(items, future)
                elif not future.done():  # every request fails with it
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
        except Exception as error:  # noqa: BLE001 - set on the future
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(answers)

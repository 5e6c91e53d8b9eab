"""Numbers of jobs and groups: calls that wait at the same time share one request to the counter."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from outlast.concurrency import PerLoop
from outlast.store.keyvalue import key_layout
from outlast.store.keyvalue.engine import Engine

NumberCall = tuple[int, "asyncio.Future[int]"]
"""How many numbers a call asks for, and where it waits for the first of them."""


@dataclass(slots=True)
class _Draws:
    """Calls of one event loop that wait for numbers, and the task that serves them."""

    waiting: "list[NumberCall]" = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None


class NumberSource:
    """Draws numbers, one request at a time for each event loop.

    A counter takes 1,000 requests per second on DynamoDB: the more calls wait for one, the more
    the next one serves.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._draws = PerLoop(_Draws)

    async def draw(self, count: int) -> int:
        """Return the first of `count` new numbers, higher than all drawn before this call."""
        draws = self._draws.mine()
        drawn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        draws.waiting.append((count, drawn))
        if draws.task is None or draws.task.done():
            draws.task = asyncio.create_task(self._serve(draws))
        return await drawn

    async def _serve(self, draws: _Draws) -> None:
        while draws.waiting:
            served, draws.waiting = draws.waiting, []
            try:
                await self._share(served)
            except Exception as error:  # noqa: BLE001 - each caller raises it
                _fail(served, error)
            except BaseException as error:  # the event loop ends
                _fail([*served, *draws.waiting], error)
                raise

    async def _share(self, served: "Sequence[NumberCall]") -> None:
        total = sum(count for count, _ in served)
        number = await self._engine.advance(key_layout.NUMBERS, total) - total + 1
        for count, drawn in served:
            if not drawn.done():  # its caller may have been cancelled
                drawn.set_result(number)
            number += count


def _fail(calls: Sequence[NumberCall], error: BaseException) -> None:
    for _, drawn in calls:
        if not drawn.done():
            drawn.set_exception(error)

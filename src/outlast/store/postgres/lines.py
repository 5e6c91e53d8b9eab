"""The connections of one event loop: each for one purpose, opened when first needed."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from outlast.clock import Clock
from outlast.errors import OperatorError, StoreClosed, StoreUnavailable
from outlast.store.around import Hint
from outlast.store.postgres.address import Address
from outlast.store.postgres.database import AGAIN, GONE, connect, is_gone, named
from outlast.store.postgres.floors import TIMELESS, Floors, Pace
from outlast.store.postgres.gather import Gather
from outlast.store.postgres.statements import Probe
from outlast.store.postgres.work import Lane, Row, Work, begun

T = TypeVar("T")

READS: Final = 2
TRIES: Final = 10
"""How often a transaction is begun anew that another one got in the way of."""


class Line:
    """One connection, used by one at a time and opened again when it broke."""

    def __init__(self, address: Address, probe: Probe | None, *, plans_once: bool = False) -> None:
        self._address = address
        self._plans_once = plans_once
        self._probe = probe
        self._turn = asyncio.Lock()
        self._lane: Lane | None = None

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[Lane]:
        """The connection, alone. Whatever breaks it, the next one to come gets a new one."""
        async with self._turn:
            if self._lane is None or self._lane.connection.is_closed():
                connection = await connect(self._address, plans_once=self._plans_once)
                self._lane = Lane(connection, self._address.schema, self._probe)
            try:
                yield self._lane
            except asyncio.CancelledError:
                self._drop()  # a statement may be half sent
                raise
            except GONE as error:
                if is_gone(error):
                    self._drop()
                raise

    def _drop(self) -> None:
        if self._lane is not None:
            self._lane.connection.terminate()
            self._lane = None

    async def close(self) -> None:
        async with self._turn:
            if self._lane is not None and not self._lane.connection.is_closed():
                with suppress(*GONE):
                    await self._lane.connection.close(timeout=1)
            self._lane = None

    def terminate(self) -> None:
        """Without waiting, from anywhere: its loop may be gone."""
        with suppress(Exception):
            self._drop()


class Lines:
    """What one loop asks the database through."""

    def __init__(
        self,
        address: Address,
        *,
        clock: Clock | None,
        probe: Probe | None,
        tell: Callable[[Hint], None],
    ) -> None:
        self._address = address
        self._clock = clock
        self._tell = tell
        self._closed = False
        self._lines: dict[str, Line] = {}
        self._gathers: dict[str, Gather[Any, Any]] = {}
        self._probe = probe
        self._reads = 0
        # Loops end without asking anybody, but first they end the generators that began in them.
        self._keeper = self._kept()
        with suppress(StopIteration):
            anext(self._keeper).__await__().send(None)
        time, pace = asyncio.get_running_loop().time, TIMELESS if clock else Pace()
        self.floors = Floors(time, pace)
        self.ahead = Floors(time, pace)  # of claims that only prefetch
        self.piled_up: set[str] = set()  # queues of which the last claim did not take all

    def line(self, purpose: str) -> Line:
        """The connection for that purpose."""
        if self._closed:
            raise StoreClosed(f"{self._address.shown} was closed; open the store again")
        if purpose not in self._lines:
            is_read = purpose.startswith("read")  # whose plans depend on what is asked for
            self._lines[purpose] = Line(self._address, self._probe, plans_once=not is_read)
        return self._lines[purpose]

    def gather(
        self, purpose: str, serve: Callable[[Sequence[Any], bool], Awaitable[list[Any]]]
    ) -> Gather[Any, Any]:
        """What brings together all that this loop asks for that purpose."""
        if purpose not in self._gathers:
            self._gathers[purpose] = Gather(serve)
        return self._gathers[purpose]

    async def rows(self, name: str, /, **values: Any) -> list[Row]:
        """The rows of one question; asked again once if the connection had died."""
        self._reads += 1
        line = self.line(f"read-{self._reads % READS}")
        return await self.patiently(lambda: _fetch(line, name, values), tries=2)

    async def together(self, read: Callable[[Work], Awaitable[T]]) -> T:
        """What `read` makes of several questions, all answered from one and the same moment."""
        line = self.line("read-0")
        return await self.patiently(lambda: self._at_once(line, read), tries=2)

    async def transact(self, verb: Callable[[Work], Awaitable[T]], purpose: str = "write") -> T:
        """What the verb answers, once what it wrote is durable; begun anew after a deadlock."""
        line = self.line(purpose)
        for left in reversed(range(TRIES)):
            try:
                return await self._transact(line, verb)
            except AGAIN as error:
                if not left:
                    raise named(error, self._address) from error
                await asyncio.sleep(0)
            except Exception as error:
                better = named(error, self._address)
                if better is error or not isinstance(better, OperatorError):
                    raise  # what was asked cannot be kept: whoever asked says which part of it
                raise better from error
        raise AssertionError("unreachable")

    async def patiently(self, ask: Callable[[], Awaitable[T]], *, tries: int) -> T:
        """The answer, or our word for what was in the way."""
        for left in reversed(range(tries)):
            try:
                return await ask()
            except StoreUnavailable:
                raise
            except Exception as error:
                if left and is_gone(error):
                    continue
                better = named(error, self._address)
                if better is error:
                    raise
                raise better from error
        raise AssertionError("unreachable")

    async def _transact(self, line: Line, verb: Callable[[Work], Awaitable[T]]) -> T:
        async with line.taken() as lane:
            await lane.change("tx.begin", {})
            try:
                work = await begun(lane, self._clock)
                answer = await verb(work)
                await lane.change("tx.commit", {})
            except BaseException:
                await _roll_back(lane)
                raise
        self._tell(work.hint)
        return answer

    async def _at_once(self, line: Line, read: Callable[[Work], Awaitable[T]]) -> T:
        async with line.taken() as lane:
            await lane.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                return await read(await begun(lane, self._clock))
            finally:
                await _roll_back(lane)

    async def close(self) -> None:
        await self._keeper.aclose()

    async def _kept(self) -> AsyncGenerator[None, None]:
        """Until somebody closes it, or its loop ends."""
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        for gather in tuple(self._gathers.values()):
            await gather.flushed()
        self._closed = True
        for line in self._lines.values():
            await line.close()

    def terminate(self) -> None:
        self._closed = True
        for line in self._lines.values():
            line.terminate()


async def _fetch(line: Line, name: str, values: dict[str, Any]) -> list[Row]:
    async with line.taken() as lane:
        return await lane.fetch(name, values)


async def _roll_back(lane: Lane) -> None:
    with suppress(*GONE):
        await lane.change("tx.rollback", {})

"""An event loop on a thread of its own, so that a server runs beside a test of any kind."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PATIENCE = 120.0


class ServerThread:
    """What it is asked to do is done when the call returns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call(self, function: Callable[[], T]) -> T:
        """Run it there, where nothing else happens meanwhile; its answer."""
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(_answer, function, answer)
        return answer.result(PATIENCE)


@contextmanager
def serving(serve: Serve) -> Iterator[tuple[ServerThread, int]]:
    """Listen on a port of 127.0.0.1, which is answered, and serve whoever connects."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()
    thread = Thread(target=lambda: asyncio.run(_listen(serve, started)), name="outlast-proxy")
    thread.start()
    loop, stop, port = started.result(PATIENCE)
    try:
        yield ServerThread(loop), port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)


async def _listen(
    serve: Serve, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]]
) -> None:
    stop, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass  # whoever was connected is gone, or we are
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    started.set_result((asyncio.get_running_loop(), stop, server.sockets[0].getsockname()[1]))
    await stop.wait()
    server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _answer(function: Callable[[], T], answer: "Future[T]") -> None:
    try:
        answer.set_result(function())
    except BaseException as error:  # noqa: BLE001 - whoever asked gets it
        answer.set_exception(error)

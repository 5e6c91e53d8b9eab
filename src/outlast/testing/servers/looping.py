"""Event loop on a thread: a server that runs beside a synchronous or asynchronous test."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
CALL_TIMEOUT_S = 120.0


class ServerThread:
    """The thread of a server; `call` runs a function on its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call(self, function: Callable[[], T]) -> T:
        """Run the function on the event loop and return its result."""
        answer: Future[T] = Future()
        self._loop.call_soon_threadsafe(_answer, function, answer)
        return answer.result(CALL_TIMEOUT_S)


@contextmanager
def serving(serve: Serve) -> Iterator[tuple[ServerThread, int]]:
    """Listen on a free port of 127.0.0.1, serve its clients, and yield the thread and the port."""
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()
    thread = Thread(target=lambda: asyncio.run(_listen(serve, started)), name="outlast-proxy")
    thread.start()
    loop, stop, port = started.result(CALL_TIMEOUT_S)
    try:
        yield ServerThread(loop), port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(CALL_TIMEOUT_S)


async def _listen(
    serve: Serve, started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]]
) -> None:
    stop, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):  # the client is gone
            await serve(reader, writer)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve_client(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never started

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    started.set_result((asyncio.get_running_loop(), stop, server.sockets[0].getsockname()[1]))
    await stop.wait()
    server.close()
    clients = tuple(tasks)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


def _answer(function: Callable[[], T], answer: "Future[T]") -> None:
    try:
        answer.set_result(function())
    except BaseException as error:  # noqa: BLE001 - the caller receives it
        answer.set_exception(error)

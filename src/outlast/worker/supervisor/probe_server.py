"""Answers the probes of `outlast worker --health` over HTTP, and nothing else."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from outlast.worker.supervisor.health import Unready, WorkerHealth
from outlast.worker.supervisor.probe_address import ProbeAddress

log = logging.getLogger("outlast.worker")

MAX_HEAD_BYTES: Final = 8192
"""Bytes of a request line and its headers at most."""

MAX_CONNECTIONS: Final = 64
"""Open connections at most; a further one is closed at once."""

REQUEST_TIMEOUT_S: Final = 5.0
"""Seconds within which a client must have sent its request."""

ANSWER_TIMEOUT_S: Final = 5.0
"""Seconds within which the store must have counted the jobs that wait."""

REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) ([!-~]{1,2048}) HTTP/1\.[01]")


class ProbeAnswer(NamedTuple):
    """The status and the JSON of an answer."""

    status: HTTPStatus
    body: Mapping[str, Any]


class ProbeServer:
    """Answers GET and HEAD of the probes; every other request is refused or cut off."""

    def __init__(
        self,
        health: WorkerHealth,
        *,
        is_public: bool,
        request_timeout: float = REQUEST_TIMEOUT_S,
        answer_timeout: float = ANSWER_TIMEOUT_S,
    ) -> None:
        """Create a server; one that `is_public` gives no details and no numbers."""
        self._health = health
        self._is_public = is_public
        self._request_timeout = request_timeout
        self._answer_timeout = answer_timeout
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, address: ProbeAddress) -> AsyncIterator[int]:
        """Serve inside the block; yield the port. Raises OSError if the address is not free."""
        server = await asyncio.start_server(
            self._on_connection, address.host, address.port, limit=MAX_HEAD_BYTES
        )
        port = server.sockets[0].getsockname()[1]
        log.info("probes at http://%s", address._replace(port=port))
        try:
            yield port
        finally:
            server.close()
            for task in tuple(self._tasks):
                task.cancel()

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, then close the connection."""
        try:
            with suppress(TimeoutError, EOFError, OSError):
                async with asyncio.timeout(self._request_timeout):
                    method, answer = await self._receive(reader)
                if isinstance(answer, str):
                    answer = await self._answer(answer)
                writer.write(_encode(answer, is_head=method == b"HEAD"))
        finally:
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader) -> tuple[bytes, str | ProbeAnswer]:
        """Return the method and the target of a request, or the answer that refuses it."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return b"", _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        parts = REQUEST_LINE.fullmatch(head.split(b"\r\n", 1)[0])
        if parts is None:
            return b"", _refusal(HTTPStatus.BAD_REQUEST)
        if parts[1] not in {b"GET", b"HEAD"}:
            return parts[1], _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
        return parts[1], parts[2].decode("ascii")

    async def _answer(self, target: str) -> ProbeAnswer:
        try:
            url = urlsplit(target)
            query = parse_qs(url.query, keep_blank_values=True, max_num_fields=4)
        except ValueError:
            return _refusal(HTTPStatus.BAD_REQUEST)
        match url.path:
            case "/healthz":
                return self._live()
            case "/readyz":
                return self._ready()
            case "/backlog" if not self._is_public:
                return await self._backlog(query)
        return _refusal(HTTPStatus.NOT_FOUND)

    def _live(self) -> ProbeAnswer:
        if self._health.is_live:
            return ProbeAnswer(HTTPStatus.OK, {"live": True})
        return self._unavailable("live", "a child process is silent")

    def _ready(self) -> ProbeAnswer:
        why = self._health.unready
        if why is None:
            return ProbeAnswer(HTTPStatus.OK, {"ready": True})
        return self._unavailable("ready", why)

    async def _backlog(self, query: Mapping[str, list[str]]) -> ProbeAnswer:
        if query.keys() - {"queue"} or len(query.get("queue", ())) > 1:
            return _refusal(HTTPStatus.BAD_REQUEST)
        counts = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._answer_timeout):
                counts = await self._health.backlog()
        if counts is None:
            why = self._health.unready or Unready.STORE_AWAY
            return ProbeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, {"reason": why})
        if "queue" not in query:
            return ProbeAnswer(HTTPStatus.OK, {"backlog": sum(counts.values())})
        name = query["queue"][0]
        if name not in counts:
            why_not = "this worker does not serve that queue"
            return ProbeAnswer(HTTPStatus.NOT_FOUND, {"reason": why_not})
        return ProbeAnswer(HTTPStatus.OK, {"backlog": counts[name]})

    def _unavailable(self, what: str, why: str) -> ProbeAnswer:
        details = {} if self._is_public else {"reason": why}
        return ProbeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, {what: False, **details})


def _refusal(status: HTTPStatus) -> ProbeAnswer:
    return ProbeAnswer(status, {"reason": status.phrase.lower()})


def _encode(answer: ProbeAnswer, *, is_head: bool) -> bytes:
    body = json.dumps(answer.body).encode() + b"\n"
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Allow: GET, HEAD\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else body)

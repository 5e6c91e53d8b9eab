"""etcd watch: reports records that are put under prefixes."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp

from outlast.errors import OperatorError
from outlast.store.keyvalue.engines.etcd.client import EtcdClient, RequestOutcomeUnknown

REOPEN_PAUSE_S: Final = 0.5
"""Seconds before a broken watch is opened again; polling covers the gap."""

CONNECT_TIMEOUT_S: Final = 2.0
"""Seconds to connect."""

MAX_LINE_BYTES: Final = 2**24
IDLE_TIMEOUT_S: Final = 60.0
"""Seconds without data after which the connection is opened again, as it may be dead."""

_INTERRUPTIONS: Final = (
    aiohttp.ClientError,
    TimeoutError,
    OSError,
    ValueError,
    RequestOutcomeUnknown,
    OperatorError,
)
"""Errors after which the watch is opened again."""


class EtcdWatch:
    """Watches prefixes; resumes by revision after an interruption.

    Events that etcd compacted meanwhile are missed.
    """

    def __init__(
        self,
        client: EtcdClient,
        prefixes: Sequence[bytes],
        heard: Callable[[Mapping[str, str]], None],
        *,
        since: int | None = None,
    ) -> None:
        """Watch from the revision `since` on, or from now."""
        self._client = client
        self._prefixes = prefixes
        self._heard = heard
        self._next = since
        self._is_connecting = False
        self._is_over = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """End the watch soon.

        A cancel during the TLS handshake would leak the socket, so it waits for the connection.
        """
        self._is_over = True
        if not self._is_connecting and not self._task.get_loop().is_closed():
            self._task.cancel()

    async def stop(self) -> None:
        """End the watch, and wait for it if this is its loop."""
        self.cancel()
        if self._task.get_loop() is asyncio.get_running_loop():
            with suppress(asyncio.CancelledError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await self._task

    async def _run(self) -> None:
        while not self._is_over:
            with suppress(*_INTERRUPTIONS):
                await self._read_events()
            await asyncio.sleep(REOPEN_PAUSE_S)

    async def _read_events(self) -> None:
        session, url, headers = await self._client.stream("/v3/watch")
        timeout = aiohttp.ClientTimeout(
            total=None, sock_read=IDLE_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S
        )
        # All prefixes on one connection: a store has three of them.
        body = "\n".join(json.dumps({"create_request": self._asked(p)}) for p in self._prefixes)
        self._is_connecting = True
        try:
            answer = await session.post(
                url, data=body, headers=headers, timeout=timeout, read_bufsize=MAX_LINE_BYTES
            )
        finally:
            self._is_connecting = False
        try:
            is_refused = await self._follow(answer)
        finally:
            _cut(answer)
        if is_refused:
            await self._renew_token()

    async def _follow(self, answer: aiohttp.ClientResponse) -> bool:
        """Read messages until the watch must be opened again; return True if etcd refused it."""
        async for line in answer.content:
            message = json.loads(line)
            result = message.get("result", {})
            if self._is_over or not self._take(result):
                return "compact_revision" not in result
            if "error" in message:
                return True
        return False

    async def _renew_token(self) -> None:
        """Read a key: etcd refuses a watch with an expired token as it refuses one without rights.

        The read finds out which it was, and renews the token.
        """
        key = b64encode(self._prefixes[0]).decode()
        await self._client.ask("/v3/kv/range", {"key": key, "keys_only": True})

    def _asked(self, prefix: bytes) -> dict[str, Any]:
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        request: dict[str, Any] = {
            "key": b64encode(prefix).decode(),
            "range_end": b64encode(end).decode(),
            "filters": ["NODELETE"],
        }
        return request if self._next is None else {**request, "start_revision": str(self._next)}

    def _take(self, result: Mapping[str, Any]) -> bool:
        """Handle a message; return False if the watch must be opened again."""
        if "compact_revision" in result:
            self._next = None  # the events between are compacted; polling finds them
            return False
        for event in result.get("events", ()):
            self._heard(event["kv"])
        if "header" in result:
            self._next = int(result["header"]["revision"]) + 1
        return not result.get("canceled", False)


def _cut(answer: aiohttp.ClientResponse) -> None:
    """Abort the connection at once: a TLS shutdown needs a reply, and the loop may end before."""
    transport = answer.connection and answer.connection.transport
    if transport is not None:
        transport.abort()
    answer.close()

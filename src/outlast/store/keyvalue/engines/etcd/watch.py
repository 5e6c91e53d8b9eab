"""Hears what is put under prefixes of an etcd cluster, for as long as anybody wants to know."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import aiohttp

from outlast.store.keyvalue.engines.etcd.client import EtcdClient

PAUSE: Final = 0.5
"""Seconds before a broken watch is tried again: polling sees to the rest."""

CONNECT: Final = 2.0
"""Seconds for a connection to be made."""

MOST_LINE: Final = 2**24
IDLE: Final = 60.0
"""Seconds of expiry after which the connection is made anew, for it may be dead."""


class EtcdWatch:
    """Resumes by revision where it was broken off; what was compacted meanwhile is missed."""

    def __init__(
        self,
        client: EtcdClient,
        prefixes: Sequence[bytes],
        heard: Callable[[Mapping[str, str]], None],
        *,
        since: int | None = None,
    ) -> None:
        """From the revision `since` on, or from now."""
        self._client = client
        self._prefixes = prefixes
        self._heard = heard
        self._next = since
        self._is_connecting = False
        self._is_over = False
        self._task = asyncio.get_running_loop().create_task(self._hear_for_ever())

    def cancel(self) -> None:
        """Soon: whoever is cut off amid a TLS handshake leaves a socket that nobody closes."""
        self._is_over = True
        if not self._is_connecting and not self._task.get_loop().is_closed():
            self._task.cancel()

    async def stop(self) -> None:
        self.cancel()
        if self._task.get_loop() is asyncio.get_running_loop():
            with suppress(asyncio.CancelledError, TimeoutError):
                async with asyncio.timeout(CONNECT):
                    await self._task

    async def _hear_for_ever(self) -> None:
        while not self._is_over:
            with suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                await self._read_events()
            await asyncio.sleep(PAUSE)

    async def _read_events(self) -> None:
        session, url, headers = await self._client.stream("/v3/watch")
        timeout = aiohttp.ClientTimeout(total=None, sock_read=IDLE, sock_connect=CONNECT)
        # One message for each, on one connection: a store would need three of them otherwise.
        body = "\n".join(json.dumps({"create_request": self._asked(p)}) for p in self._prefixes)
        self._is_connecting = True
        try:
            answer = await session.post(
                url, data=body, headers=headers, timeout=timeout, read_bufsize=MOST_LINE
            )
        finally:
            self._is_connecting = False
        try:
            async for line in answer.content:
                if self._is_over or not self._take(json.loads(line).get("result", {})):
                    return
        finally:
            _cut(answer)

    def _asked(self, prefix: bytes) -> dict[str, Any]:
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        request: dict[str, Any] = {
            "key": b64encode(prefix).decode(),
            "range_end": b64encode(end).decode(),
            "filters": ["NODELETE"],
        }
        return request if self._next is None else {**request, "start_revision": str(self._next)}

    def _take(self, result: Mapping[str, Any]) -> bool:
        """Whether it goes on; where not, it is to be asked for anew."""
        if "compact_revision" in result:
            self._next = None  # what was in between is gone; polling finds it
            return False
        for event in result.get("events", ()):
            self._heard(event["kv"])
        if "header" in result:
            self._next = int(result["header"]["revision"]) + 1
        return not result.get("canceled", False)


def _cut(answer: aiohttp.ClientResponse) -> None:
    """At once: to take leave by TLS needs another answer, and our loop may be over before."""
    transport = answer.connection and answer.connection.transport
    if transport is not None:
        transport.abort()
    answer.close()

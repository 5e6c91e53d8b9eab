"""etcd client: requests to the cluster's JSON gateway, with endpoint failover and a timeout."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, NamedTuple, NoReturn

import aiohttp

from outlast.errors import (
    OperatorError,
    PayloadTooLarge,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

REQUEST_TIMEOUT_S: Final = 1.5
"""Seconds for one request: a follower without a leader does not answer."""

TOTAL_TIMEOUT_S: Final = 30.0
"""Seconds for all attempts of one request, on all endpoints."""

RETRY_PAUSE_S: Final = 0.05
_UNAUTHENTICATED: Final = 16
_DENIED: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Hosts and credentials of an etcd cluster."""

    hosts: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs of all hosts."""
        scheme = "http" if self.tls is None else "https"
        return tuple(f"{scheme}://{host}" for host in self.hosts)


class RequestOutcomeUnknown(Exception):
    """No reply arrived: the request may have been executed."""


class EtcdClient:
    """Sends requests to one endpoint after another until one replies."""

    def __init__(self, cluster: Cluster, *, timeout: float = TOTAL_TIMEOUT_S) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._at = 0
        self._token: str | None = None
        self._sessions: dict[asyncio.AbstractEventLoop, _Opened] = {}
        self.date: datetime | None = None

    @property
    def where(self) -> str:
        """Hosts of the cluster, for messages."""
        return ", ".join(self._cluster.hosts)

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send an idempotent request until it is answered; raise StoreUnavailable on timeout."""
        over = asyncio.get_running_loop().time() + self._timeout
        while True:
            try:
                return await self.ask_once(path, body)
            except RequestOutcomeUnknown as error:
                if asyncio.get_running_loop().time() > over:
                    raise self.unreachable(error) from error
                await asyncio.sleep(RETRY_PAUSE_S)

    async def ask_once(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request once.

        If no reply arrives, raises RequestOutcomeUnknown and moves on to the next endpoint.
        """
        asked, endpoint = self._at, self._endpoint()
        try:
            return await self._post(endpoint, path, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._turn_from(asked)
            raise RequestOutcomeUnknown(
                f"{endpoint}: {str(error) or type(error).__name__}"
            ) from error
        except RequestOutcomeUnknown:
            self._turn_from(asked)
            raise

    def _endpoint(self) -> str:
        return self._cluster.endpoints[self._at % len(self._cluster.endpoints)]

    def _turn_from(self, asked: int) -> None:
        """Move on to the next endpoint, once for all concurrent requests to this one."""
        self._at = max(self._at, asked + 1)

    def unreachable(self, error: BaseException) -> StoreUnavailable:
        """Return the error for a cluster that does not answer."""
        return StoreUnavailable(
            f"no etcd endpoint of {self.where} answered for {self._timeout:.0f} s (the last one: "
            f"{error}); requests wait until one answers, so check the cluster"
        )

    async def stream(self, path: str) -> tuple[aiohttp.ClientSession, str, Mapping[str, str]]:
        """Return session, URL and headers for a request that stays open."""
        return await self._session(), self._endpoint() + path, self._headers()

    async def close(self) -> None:
        """Close this loop's session; sessions of other loops close with their loop."""
        await self.release_loop()
        self._sessions.clear()

    async def release_loop(self) -> None:
        """Close this loop's session."""
        opened = self._sessions.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.until.aclose()

    async def _post(self, endpoint: str, path: str, body: Mapping[str, Any]) -> Any:
        if self._cluster.user is not None and self._token is None:
            await self._authenticate(endpoint)
        session = await self._session()
        async with session.post(
            endpoint + path, data=json.dumps(body), headers=self._headers()
        ) as answer:
            text = await answer.read()
            self._note_date(answer.headers.get("Date"))
            if answer.status == 200:  # noqa: PLR2004 - HTTP OK
                return json.loads(text)
        return self._fail(text, answer.status)

    async def _authenticate(self, endpoint: str) -> None:
        wanted = {"name": self._cluster.user, "password": self._cluster.password or ""}
        session = await self._session()
        async with session.post(
            f"{endpoint}/v3/auth/authenticate", data=json.dumps(wanted)
        ) as answer:
            text = await answer.read()
            if answer.status != 200:  # noqa: PLR2004 - same
                self._fail(text, answer.status)
        self._token = json.loads(text)["token"]

    def _headers(self) -> Mapping[str, str]:
        return {} if self._token is None else {"Authorization": self._token}

    async def _session(self) -> aiohttp.ClientSession:
        """Return this loop's session: several loops may use a store."""
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            for ended in [each for each in self._sessions if each.is_closed()]:
                del self._sessions[ended]
            until = _session(self._cluster)
            self._sessions[loop] = _Opened(await anext(until), until)
        return self._sessions[loop].session

    def _note_date(self, text: str | None) -> None:
        self.date = None if text is None else parsedate_to_datetime(text)

    def _fail(self, text: bytes, status: int) -> NoReturn:
        try:
            told = json.loads(text)
        except ValueError:
            raise RequestOutcomeUnknown(f"status {status}") from None
        message, code = str(told.get("message") or told.get("error") or told), told.get("code")
        is_old = code == _UNAUTHENTICATED or "auth store is old" in message
        if is_old and self._cluster.user is not None and self._token is not None:
            self._token = None  # expired, or the permissions changed
            raise RequestOutcomeUnknown(message)
        error = _translated(code, message, self.where)
        raise error if error is not None else RequestOutcomeUnknown(message)


class _Opened(NamedTuple):
    """A session, and the generator that closes it."""

    session: aiohttp.ClientSession
    until: AsyncGenerator[aiohttp.ClientSession, None]


async def _session(cluster: Cluster) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Yield a session and close it with its loop, which closes its generators when it ends."""
    connector = aiohttp.TCPConnector(ssl=cluster.tls or True, limit=64)
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield session


def _translated(code: int | None, message: str, where: str) -> Exception | None:
    """Return the error that every endpoint would return; None to ask again."""
    if code in (_DENIED, _UNAUTHENTICATED) or "authentication failed" in message:
        return StoreReadOnly(
            f"etcd at {where} refuses access: {message}; give user and password in the URL, and "
            "grant that user the prefix"
        )
    if "user name is empty" in message:
        return StoreReadOnly(f"etcd at {where} requires a user: etcd://user:password@host/prefix")
    if "too large" in message or "too many operations" in message:
        return PayloadTooLarge(f"the transaction is too large for etcd at {where}: {message}")
    if "space exceeded" in message:
        return StoreFull(
            f"etcd at {where} is full: {message}; compact and defragment it, then disarm its alarm"
        )
    return _unknown(code, message, where)


def _unknown(code: int | None, message: str, where: str) -> OperatorError | None:
    is_ours = code in {3, 12}  # invalid argument, or unimplemented
    return (
        StoreCorrupt(f"etcd at {where} did not understand the request: {message}")
        if is_ours
        else None
    )


def hosts(text: str) -> Sequence[str]:
    """Return the hosts of `a:2379,b`, each with its port."""
    return [each if _has_port(each) else f"{each}:2379" for each in text.split(",") if each]


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdigit() and not host.endswith("]")

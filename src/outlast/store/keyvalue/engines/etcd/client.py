"""etcd client: requests to the cluster's JSON gateway, with endpoint failover and a timeout."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import aiohttp

from outlast.clock import SystemClock
from outlast.core.address import is_loopback
from outlast.errors import (
    OperatorError,
    PayloadTooLarge,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from outlast.store.keyvalue.engine import ServerTime
from outlast.store.keyvalue.engines.etcd.auth import (
    UNAUTHENTICATED,
    AuthToken,
    TokenRefused,
    is_refused_token,
)
from outlast.store.keyvalue.engines.etcd.password import VARIABLE, permission_warning
from outlast.store.keyvalue.pacing import MAX_TRIES, RequestPace

SILENCE_TIMEOUT_S: Final = 1.5
"""Seconds to connect, and without a byte of an answer: a follower without a leader sends none."""

SLOWEST_UPLOAD: Final = 1_000_000
"""Bytes per second: a large request may take that much longer until its answer begins."""

TOTAL_TIMEOUT_S: Final = 30.0
"""Seconds for all attempts of one request, on all endpoints."""

MAX_RENEWALS: Final = 5
"""Tokens refused in a row before a request counts as unanswered."""

_DENIED: Final = 7
_TOO_MANY_REQUESTS: Final = 429
_TOO_LARGE: Final = ("too large", "larger than max", "too many operations")
"""What etcd says of a request over its limit, and gRPC of one that etcd does not see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Hosts and credentials of an etcd cluster."""

    hosts: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: Path | None = None
    tls: ssl.SSLContext | None = None

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Base URLs of all hosts."""
        scheme = "http" if self.tls is None else "https"
        return tuple(f"{scheme}://{host}" for host in self.hosts)

    @property
    def is_readable(self) -> bool:
        """Whether the network between here and a host can read the requests."""
        return self.tls is None and not all(map(is_loopback, self.hosts))


class RequestOutcomeUnknown(Exception):
    """No reply arrived: the request may have been executed."""


class EtcdClient:
    """Sends requests to one endpoint after another until one replies."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        timeout: float = TOTAL_TIMEOUT_S,
        pace: RequestPace | None = None,
    ) -> None:
        self.pace = pace or RequestPace()
        self._cluster = cluster
        self._timeout = timeout
        self._at = 0
        self._token = AuthToken()
        self._sessions: dict[asyncio.AbstractEventLoop, _Opened] = {}
        self.latest_time: ServerTime | None = None

    @property
    def where(self) -> str:
        """Hosts of the cluster, for messages."""
        return ", ".join(self._cluster.hosts)

    def connection_warnings(self) -> list[str]:
        """Return what an operator should change about the connection and the password's file."""
        cluster, warnings = self._cluster, []
        if cluster.is_readable:
            sent = "jobs" if cluster.password is None else "the password and jobs"
            warnings.append(
                f"requests to etcd at {self.where} go over plain HTTP: {sent} are sent in clear; "
                "use TLS: add ?ca=ca.pem"
            )
        if cluster.password_file and (told := permission_warning(cluster.password_file)):
            warnings.append(told)
        return warnings

    async def ask(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send an idempotent request until it is answered; raise StoreUnavailable on timeout."""
        over = asyncio.get_running_loop().time() + self._timeout
        for number in count():
            try:
                return await self.ask_once(path, body)
            except RequestOutcomeUnknown as error:
                if asyncio.get_running_loop().time() > over:
                    raise self.unreachable(error) from error
                await self.pace.pause(number)
        raise AssertionError  # `count` has no end

    async def ask_once(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request once, or a few times while the cluster throttles: StoreBusy after those.

        If no reply arrives, raises RequestOutcomeUnknown and moves on to the next endpoint.
        """
        return await self.pace.repeat(lambda: self._ask_endpoint(path, body))

    async def _ask_endpoint(self, path: str, body: Mapping[str, Any]) -> Any:
        asked, endpoint = self._at, self._endpoint()
        try:
            return await self._post_with_token(endpoint, path, body)
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
        endpoint = self._endpoint()
        try:
            headers = _headers(await self._current_token(endpoint))
        except TokenRefused as error:
            raise RequestOutcomeUnknown(str(error)) from error
        return await self._session(), endpoint + path, headers

    async def close(self) -> None:
        """Close this loop's session; sessions of other loops close with their loop."""
        await self.release_loop()
        self._sessions.clear()

    async def release_loop(self) -> None:
        """Close this loop's session."""
        opened = self._sessions.pop(asyncio.get_running_loop(), None)
        if opened is not None:
            await opened.until.aclose()

    async def _post_with_token(self, endpoint: str, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request, again with another token whenever its token is refused."""
        message = ""
        for _ in range(MAX_RENEWALS):
            try:
                token = await self._current_token(endpoint)
                return await self._post(endpoint + path, body, token)
            except TokenRefused as error:
                message = str(error)
        raise RequestOutcomeUnknown(message)

    async def _current_token(self, endpoint: str) -> str | None:
        if self._cluster.user is None:
            return None
        return await self._token.current(lambda: self._authenticate(endpoint))

    async def _authenticate(self, endpoint: str) -> str:
        wanted = {"name": self._cluster.user, "password": self._cluster.password or ""}
        answer = await self._post(f"{endpoint}/v3/auth/authenticate", wanted, None)
        token: str = answer["token"]
        return token

    async def _post(self, url: str, body: Mapping[str, Any], token: str | None) -> Any:
        session, data = await self._session(), json.dumps(body).encode()
        sent = SystemClock().monotonic()
        async with session.post(
            url, data=BytesIO(data), headers=_headers(token), timeout=_timeout(len(data))
        ) as answer:
            text = await answer.read()
            self._note_date(answer.headers.get("Date"), sent)
            if answer.status == 200:  # noqa: PLR2004 - HTTP OK
                return json.loads(text)
        return self._fail(text, answer.status, token)

    async def _session(self) -> aiohttp.ClientSession:
        """Return this loop's session: several loops may use a store."""
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            for ended in [each for each in self._sessions if each.is_closed()]:
                del self._sessions[ended]
            until = _session(self._cluster)
            self._sessions[loop] = _Opened(await anext(until), until)
        return self._sessions[loop].session

    def _note_date(self, text: str | None, sent: int) -> None:
        if text is not None:
            received = SystemClock().monotonic()
            self.latest_time = ServerTime(parsedate_to_datetime(text), sent, received)

    def _fail(self, text: bytes, status: int, token: str | None) -> NoReturn:
        try:
            told = json.loads(text)
        except ValueError:
            if status == 404:  # noqa: PLR2004 - not found, and no answer of the gateway
                raise _no_gateway(self.where) from None
            told = {"message": f"status {status}"}
        message, code = str(told.get("message") or told.get("error") or told), told.get("code")
        if token is not None and is_refused_token(code, message):
            self._token.refuse(token)
            raise TokenRefused(message)
        error = _translated(code, message, self.where)
        if error is None and (status == _TOO_MANY_REQUESTS or "too many requests" in message):
            error = _throttled(message, self.where)
        raise error if error is not None else RequestOutcomeUnknown(message)


def _headers(token: str | None) -> Mapping[str, str]:
    return {} if token is None else {"Authorization": token}


def _timeout(size: int) -> aiohttp.ClientTimeout:
    """Return the timeouts of a request of `size` bytes; a large answer may take its time."""
    silence = SILENCE_TIMEOUT_S + size / SLOWEST_UPLOAD
    return aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_TIMEOUT_S, sock_read=silence)


class _Opened(NamedTuple):
    """A session, and the generator that closes it."""

    session: aiohttp.ClientSession
    until: AsyncGenerator[aiohttp.ClientSession, None]


async def _session(cluster: Cluster) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Yield a session and close it with its loop, which closes its generators when it ends."""
    connector = aiohttp.TCPConnector(ssl=cluster.tls or True, limit=64)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


def _throttled(message: str, where: str) -> StoreBusy:
    return StoreBusy(
        f"etcd at {where} throttles: {message}; the request was sent {MAX_TRIES} times, so try "
        "again later or send fewer"
    )


def _translated(code: int | None, message: str, where: str) -> Exception | None:
    """Return the error that every endpoint would return; None to ask again."""
    if code in (_DENIED, UNAUTHENTICATED) or "authentication failed" in message:
        return StoreReadOnly(
            f"etcd at {where} refuses access: {message}; give the user in the URL and its password "
            f"in {VARIABLE}, and grant that user the prefix"
        )
    if "user name is empty" in message:
        return StoreReadOnly(
            f"etcd at {where} requires a user: etcd://user@host/prefix, with its password in "
            f"{VARIABLE}"
        )
    if "authentication is not enabled" in message:
        return StoreReadOnly(
            f"etcd at {where} takes no password: {message}; remove the user and the password from "
            "the URL, or enable it with `etcdctl auth enable`"
        )
    if any(words in message for words in _TOO_LARGE):
        return PayloadTooLarge(f"the transaction is too large for etcd at {where}: {message}")
    if "space exceeded" in message:
        return StoreFull(
            f"etcd at {where} is full: {message}; compact and defragment it, then disarm its alarm"
        )
    return _unknown(code, message, where)


def _no_gateway(where: str) -> OperatorError:
    return OperatorError(
        f"a server at {where} answers, but not as etcd's JSON gateway; start etcd with "
        "--enable-grpc-gateway=true, and check that the URL names its client port"
    )


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

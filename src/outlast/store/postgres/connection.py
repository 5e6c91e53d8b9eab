"""Connections to the server, and translation of its errors."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import asyncpg

from outlast.errors import (
    ConfigurationError,
    InvalidArgument,
    OperatorError,
    OutlastError,
    StoreBusy,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from outlast.store.contract.transfer import closed_error, from_row
from outlast.store.postgres.url import PostgresUrl

CONNECT_TIMEOUT_S: Final = 5.0
"""Seconds within which the server must accept a connection."""

DEADLINE_S: Final = 30.0
"""Seconds within which a statement must be answered, on connections that are not watched."""

KEEPALIVE_IDLE_S: Final = 10
"""Seconds without traffic after which TCP probes the other end."""

TCP_OPTIONS: Final = (
    ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 3),
    ("TCP_USER_TIMEOUT", 25_000),  # milliseconds for which sent data may be unacknowledged
)

SETTINGS: Final = {
    "application_name": "outlast",
    # Single statements; transactions name their isolation level when they begin.
    "default_transaction_isolation": "read committed",
    # The live tables may be empty when they are analysed and full soon after: a plan with a
    # sequential scan would be kept.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # A bitmap scan reads every match before the first row: a page would cost the whole table.
    "enable_bitmapscan": "off",
    "jit": "off",
    # The server notices a client that is gone, and gives up what it had locked.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "25000",
    "idle_in_transaction_session_timeout": "60000",
}

_PLANS_ONCE: Final = {"plan_cache_mode": "force_generic_plan"}

NOT_OPEN_STATE: Final = "OL001"
"""SQLSTATE of a write while the store is not open: the message is the transfer status."""

CONNECTION_ERRORS = (
    ConnectionError,
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
)
"""The server is unavailable, restarts, or has too many connections: a retry may succeed."""


def is_connection_error(error: BaseException) -> bool:
    """Return whether the connection is broken; a value that cannot be sent does not break it."""
    return isinstance(error, CONNECTION_ERRORS) and not isinstance(error, ValueError)


RETRYABLE = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
)
"""Nothing was written, and a retry may succeed."""


async def connect(
    address: PostgresUrl,
    *,
    plans_once: bool = False,
    deadline: float = DEADLINE_S,
) -> asyncpg.Connection:
    """Open a connection with the settings of the store; raises OperatorError.

    `plans_once`: use generic plans, for statements that find their rows by key. Planning them for
    each call would take longer than running them. `deadline`: seconds that a statement may take.
    """
    settings = {} if address.pooler else SETTINGS | (_PLANS_ONCE if plans_once else {})
    cache = {"statement_cache_size": 0} if address.pooler else {}
    with translated(address):
        try:
            connection = await asyncpg.connect(
                address.dsn,
                timeout=CONNECT_TIMEOUT_S,
                command_timeout=deadline,
                server_settings=settings,
                **cache,
            )
        except (
            ValueError,
            TypeError,
            OverflowError,
        ) as error:  # of the URL, before connecting
            raise ConfigurationError(
                f"{address.safe_text} names no database server: {error}"
            ) from error
        try:
            keep_alive(connection)
            await connection.set_type_codec(
                "uuid", encoder=str, decoder=str, schema="pg_catalog", format="text"
            )
        except BaseException:  # a cancelled caller cannot close it
            connection.terminate()
            raise
        return connection


def socket_of(connection: asyncpg.Connection) -> Any:
    """Return the socket of a connection."""
    return connection._transport.get_extra_info("socket")  # noqa: SLF001 - asyncpg has no public access


def keep_alive(connection: asyncpg.Connection) -> None:
    """Let TCP notice within half a minute that the other end is gone."""
    sock = socket_of(connection)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in TCP_OPTIONS:
        if hasattr(socket, name):  # not every system has them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


@contextmanager
def translated(address: PostgresUrl) -> Iterator[None]:
    """Translate errors of the driver and the server that leave the block."""
    try:
        yield
    except OutlastError:
        raise
    except Exception as error:
        raise translate_error(error, address) from error


def translate_error(error: Exception, address: PostgresUrl) -> Exception:
    """Return the Outlast error for an error of the driver, or the error itself if unknown."""
    if isinstance(error, OutlastError):
        return error
    if getattr(error, "sqlstate", None) == NOT_OPEN_STATE:
        return closed_error(from_row(json.loads(str(error).splitlines()[0])))
    for kinds, error_type, message in TRANSLATIONS:
        if isinstance(error, kinds):
            values = {"url": address.safe_text, "schema": address.schema, "why": _first_line(error)}
            return error_type(message.format_map(values))
    return error


TRANSLATIONS: Final[tuple[tuple[tuple[type[Exception], ...], type[OutlastError], str], ...]] = (
    (
        (asyncpg.InvalidAuthorizationSpecificationError,),
        OperatorError,
        "{url} refused the login: {why}; check user and password in the URL",
    ),
    (
        (asyncpg.InvalidCatalogNameError,),
        OperatorError,
        "{url}: {why}; create it with createdb, or name another in the URL",
    ),
    (
        (asyncpg.InsufficientPrivilegeError,),
        OperatorError,
        "{url}: {why}; grant the role that privilege, or let an owner run: outlast db migrate",
    ),
    (
        (asyncpg.ReadOnlySQLTransactionError,),
        StoreReadOnly,
        "{url} accepts no writes: it is a standby, or set read-only; name the primary in the URL",
    ),
    (
        (asyncpg.DiskFullError,),
        StoreFull,
        "{url} has no space left on disk; free some space. Nothing was written",
    ),
    (
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        StoreCorrupt,
        "{url} is damaged: {why}",
    ),
    (
        (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError),
        OperatorError,
        "{url} has no Outlast tables in schema {schema}; create them: outlast db migrate",
    ),
    (
        (asyncpg.UndefinedObjectError,),
        OperatorError,
        "{url}: {why}; the options of Outlast are schema, pooler, wait and notify",
    ),
    (RETRYABLE, StoreBusy, "{url}: {why}; try again"),
    ((asyncpg.DataError, ValueError), InvalidArgument, "the value cannot be stored: {why}"),
    (CONNECTION_ERRORS, StoreUnavailable, "{url} does not answer: {why}"),
)
"""Error types, the Outlast error and its message; the first match counts."""


def _first_line(error: Exception) -> str:
    """Return the first line of a message: later lines may show the row."""
    text = str(error) or type(error).__name__
    return text.splitlines()[0][:200]


def count(status: Any) -> int:
    """Return the number of changed rows from a command tag such as `UPDATE 3`."""
    last = str(status).rpartition(" ")[2]
    return int(last) if last.isdigit() else 0

"""Driver connections of SQLAlchemy's sessions and connections, without importing SQLAlchemy."""

import sys
from typing import Any


def is_instance(thing: Any, module: str, name: str) -> bool:
    """Return whether the object is of that class, without importing its module."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(thing, kind)


def is_sync(tx: Any) -> bool:
    """Return whether it is a Connection or Session."""
    is_connection = is_instance(tx, "sqlalchemy.engine", "Connection")
    return is_connection or is_instance(tx, "sqlalchemy.orm", "Session")


def is_async(tx: Any) -> bool:
    """Return whether it is an AsyncConnection or AsyncSession."""
    names = ("AsyncConnection", "AsyncSession")
    return any(is_instance(tx, "sqlalchemy.ext.asyncio", name) for name in names)


def is_error(error: BaseException) -> bool:
    """Return whether SQLAlchemy raised the error."""
    return is_instance(error, "sqlalchemy.exc", "SQLAlchemyError")


def dialect_of(tx: Any) -> Any:
    """Return the dialect, with its `name` and `driver`."""
    return (tx.get_bind() if hasattr(tx, "get_bind") else tx).dialect


def driver_connection(tx: Any) -> Any:
    """Return the connection of the driver, in a transaction that SQLAlchemy has begun."""
    connection = tx.connection() if is_instance(tx, "sqlalchemy.orm", "Session") else tx
    connection.exec_driver_sql("SELECT 1").close()  # SQLAlchemy commits only what it began
    return connection.connection.driver_connection


async def async_driver_connection(tx: Any) -> Any:
    """Return the connection of the async driver, in a transaction that SQLAlchemy has begun."""
    is_session = is_instance(tx, "sqlalchemy.ext.asyncio", "AsyncSession")
    connection = await tx.connection() if is_session else tx
    (await connection.exec_driver_sql("SELECT 1")).close()
    return (await connection.get_raw_connection()).driver_connection

"""Savepoints, and the bisection of a batch with a value that the server refuses."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from outlast.store.postgres.unit_of_work import PostgresUnitOfWork

T = TypeVar("T")
Item = TypeVar("Item")

_DATA_ERROR_CLASSES: Final = ("22", "23", "54")
"""SQLSTATE classes about a value: invalid, against a constraint, or too large."""

_UNIQUE_VIOLATION: Final = "23505"
_PYTHON_DATA_ERRORS: Final = (ValueError, OverflowError)


async def with_savepoint(work: PostgresUnitOfWork, step: Callable[[], Awaitable[T]]) -> T:
    """Run a step under a savepoint; if it raises, roll back to the savepoint and raise."""
    await work.run("savepoint.save")
    try:
        result = await step()
    except Exception:
        await work.run("savepoint.undo")
        await work.run("savepoint.keep")
        raise
    await work.run("savepoint.keep")
    return result


async def bisect_failures(
    items: Sequence[Item],
    together: Callable[[Sequence[Item]], Awaitable[list[T]]],
    refused: Callable[[Item, str], T],
) -> list[T]:
    """Process items together; after a data error, each half, until the bad item is alone.

    Returns one result per item; `refused` builds the result of a bad item from its reason.
    """
    try:
        return await together(items)
    except Exception as error:
        if not is_data_error(error):
            raise
        if len(items) == 1:
            return [refused(items[0], refusal_reason(error))]
    half = len(items) // 2
    first = await bisect_failures(items[:half], together, refused)
    return first + await bisect_failures(items[half:], together, refused)


def is_data_error(error: Exception) -> bool:
    """Return whether the error is about a value, so that other items may succeed."""
    if isinstance(error, _PYTHON_DATA_ERRORS):
        return True
    state = getattr(error, "sqlstate", None) or ""
    return state.startswith(_DATA_ERROR_CLASSES) and state != _UNIQUE_VIOLATION


def is_unique_violation(error: Exception) -> bool:
    """Return whether a concurrent transaction wrote the same key: a new lookup finds it."""
    return getattr(error, "sqlstate", None) == _UNIQUE_VIOLATION


_REASON_BY_CONSTRAINT = {
    "type_name": "its type is not a name",
    "job_name": "its name is not a name",
    "queue_name": "its queue is not a name",
    "series_name": "its slot's series is not a name",
    "known_delivery": "its delivery is not one a store can keep",
    "params_size": "its params are over 256 KiB",
    "attempts": "its max_attempts is out of bounds",
    "key_size": "its key is empty or too long",
    "bucket_size": "its bucket is too long",
}
_REASON_BY_STATE = {
    "22P02": "its params are not JSON",
    "22021": "it holds text that cannot be stored",
    "54001": "its params are nested too deeply",
}


def refusal_reason(error: Exception) -> str:
    """Return why an item was refused, without the value: messages of the server may show it."""
    if isinstance(error, _PYTHON_DATA_ERRORS) and not hasattr(error, "sqlstate"):
        is_unicode = isinstance(error, UnicodeError)
        return "it holds text that is not Unicode" if is_unicode else str(error)
    reason = _REASON_BY_CONSTRAINT.get(_constraint(error))
    state = getattr(error, "sqlstate", "")
    return reason or _REASON_BY_STATE.get(state, "it holds what no store can keep")


def _constraint(error: Any) -> str:
    """Return the name of the violated constraint, from asyncpg or psycopg."""
    diagnostics = getattr(error, "diag", error)
    return getattr(diagnostics, "constraint_name", None) or ""

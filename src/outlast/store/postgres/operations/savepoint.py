"""One bad item never sinks its neighbours: what the database refuses is found and left out."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from outlast.store.postgres.unit_of_work import UnitOfWork

T = TypeVar("T")
Item = TypeVar("Item")

_REFUSED: Final = ("22", "23", "54")
"""Classes of errors that are about a value: it is no such thing, not allowed, or too large."""

_UNIQUE: Final = "23505"
_DOUBTFUL: Final = (ValueError, OverflowError)


async def in_savepoint(work: UnitOfWork, step: Callable[[], Awaitable[T]]) -> T | str:
    """Do it under a savepoint of its own; why the database refused it, if it did."""
    try:
        return await saved(work, step)
    except Exception as error:
        if not is_data_error(error):
            raise
        return why(error)


async def saved(work: UnitOfWork, step: Callable[[], Awaitable[T]]) -> T:
    """Do it under a savepoint: whatever it raises, the transaction stands as it did before."""
    await work.run("savepoint.save")
    try:
        done = await step()
    except Exception:
        await work.run("savepoint.undo")
        await work.run("savepoint.keep")
        raise
    await work.run("savepoint.keep")
    return done


async def bisect_failures(
    items: Sequence[Item],
    together: Callable[[Sequence[Item]], Awaitable[list[T]]],
    refused: Callable[[Item, str], T],
) -> list[T]:
    """Do them together; if something is refused, half and half, until it stands alone."""
    try:
        return await together(items)
    except Exception as error:
        if not is_data_error(error):
            raise
        if len(items) == 1:
            return [refused(items[0], why(error))]
    half = len(items) // 2
    first = await bisect_failures(items[:half], together, refused)
    return first + await bisect_failures(items[half:], together, refused)


def is_data_error(error: Exception) -> bool:
    """Whether the error is about what was asked, so that others may well succeed."""
    if isinstance(error, _DOUBTFUL):
        return True
    state = getattr(error, "sqlstate", None) or ""
    return state.startswith(_REFUSED) and state != _UNIQUE


def is_unique_violation(error: Exception) -> bool:
    """Whether somebody else wrote the same meanwhile: a look will show what."""
    return getattr(error, "sqlstate", None) == _UNIQUE


_REFUSALS = {
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
_KINDS = {
    "22P02": "its params are not JSON",
    "22021": "it holds text that cannot be stored",
    "54001": "its params are nested too deeply",
}


def why(error: Exception) -> str:
    """In our words: the server's and the driver's may show the value itself."""
    if isinstance(error, _DOUBTFUL) and not hasattr(error, "sqlstate"):
        return "it holds text that is not Unicode" if _is_text(error) else str(error)
    named = _REFUSALS.get(_constraint(error))
    return named or _KINDS.get(getattr(error, "sqlstate", ""), "it holds what no store can keep")


def _is_text(error: Exception) -> bool:
    return isinstance(error, UnicodeError)


def _constraint(error: Any) -> str:
    """The name of the constraint that refused it, from either driver."""
    told = getattr(error, "diag", error)
    return getattr(told, "constraint_name", None) or ""

"""Base of the operation classes, and the guard against a sealed store."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.locks import KeyValueLocks
from outlast.store.keyvalue.operations.transfer_status import StatusCache

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
Operations = TypeVar("Operations", bound="KeyValueOperations")


class KeyValueOperations(ABC):
    """What an operation class needs of the store; each part raises StoreClosed before `open()`."""

    @property
    @abstractmethod
    def _context(self) -> StoreContext:
        """Engine in units of work, clocks, numbers and notifications."""

    @property
    @abstractmethod
    def _locks(self) -> KeyValueLocks:
        """Named locks that this store holds."""

    @property
    @abstractmethod
    def _status_cache(self) -> StatusCache:
        """Transfer status of the store, read at most once per second."""


def requires_open_store(
    method: Callable[Concatenate[Operations, Parameters], Awaitable[Answer]],
) -> Callable[Concatenate[Operations, Parameters], Coroutine[Any, Any, Answer]]:
    """Decorate a method that raises StoreSealed or StoreMoved while the store is in transfer."""

    @wraps(method)
    async def guarded(
        self: Operations, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Answer:
        await self._status_cache.require_open()
        return await method(self, *args, **kwargs)

    return guarded

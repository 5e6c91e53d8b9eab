"""Base of the operation classes, and the guard against a sealed store."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from outlast.errors import StoreMoved, StoreSealed
from outlast.store.keyvalue.context import StoreContext
from outlast.store.keyvalue.engine import StoredItem
from outlast.store.keyvalue.locks import KeyValueLocks
from outlast.store.keyvalue.operations import quarantine
from outlast.store.keyvalue.transfer_gate import TransferGate

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
    def _gate(self) -> TransferGate:
        """Gate that refuses new work unless the store is open."""

    async def _gated(self) -> StoreContext:
        """Return the context for new work; raise StoreSealed or StoreMoved unless it is open."""
        await self._gate.enter()
        return replace(self._context, gate=self._gate)

    async def _set_aside(self, suspects: Sequence[StoredItem]) -> None:
        """Set aside entries whose job is damaged, unless the store is in transfer."""
        if suspects:
            with suppress(StoreSealed, StoreMoved):
                await quarantine.set_aside(await self._gated(), suspects)


def requires_open_store(
    method: Callable[Concatenate[Operations, StoreContext, Parameters], Awaitable[Answer]],
) -> Callable[Concatenate[Operations, Parameters], Coroutine[Any, Any, Answer]]:
    """Decorate a method that begins new work, and give it the context that only writes that.

    It raises StoreSealed or StoreMoved while the store is in transfer.
    """

    @wraps(method)
    async def guarded(
        self: Operations, /, *args: Parameters.args, **kwargs: Parameters.kwargs
    ) -> Answer:
        return await method(self, await self._gated(), *args, **kwargs)

    return guarded

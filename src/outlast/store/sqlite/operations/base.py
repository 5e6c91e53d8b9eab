"""Base class of the SQLite operations, and the guard of a store that is in transfer."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.reader import Reader
from outlast.store.sqlite.writer import Writer, WriteTransaction

T = TypeVar("T")
Item = TypeVar("Item")
WriteFunction = Callable[[WriteTransaction, Sequence[Item]], list[T]]


class SqliteOperations(ABC):
    """What every operation needs: the file, the clock, the id source, the writer, the readers."""

    path: Path
    _clock: Clock
    _ids: Ids

    @property
    @abstractmethod
    def _writer(self) -> Writer:
        """The writer of the open store; raises StoreClosed if it is not open."""

    @property
    @abstractmethod
    def _reader(self) -> Reader:
        """The readers of the open store; raises StoreClosed if it is not open."""

    @abstractmethod
    async def free_locks(self, names: Collection[str]) -> frozenset[str]:
        """Return the names that no process holds a lock on."""

    async def _jobs(self, name: str, **values: Any) -> list[Job]:
        return [job_rows.job(row) for row in await self._reader.rows(name, **values)]


def require_open_store(function: "WriteFunction[Item, T]") -> "WriteFunction[Item, T]":
    """Make a write function raise StoreSealed or StoreMoved unless the store accepts work."""

    @wraps(function)
    def guarded(tx: WriteTransaction, items: Sequence[Item]) -> list[T]:
        tx.require_open()
        return function(tx, items)

    return guarded

"""What every page of verbs needs: the one writer, the readers, the clock."""

from pathlib import Path
from typing import Any

from outlast.clock import Clock
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.store.rows import jobs as job_rows
from outlast.store.sqlite.reader import Reader
from outlast.store.sqlite.writer import Writer


class SqliteOperations:
    """A store on a file, as its verbs see it."""

    path: Path
    _clock: Clock
    _ids: Ids

    @property
    def _writer(self) -> Writer:
        raise NotImplementedError

    @property
    def _reader(self) -> Reader:
        raise NotImplementedError

    async def _jobs(self, name: str, **values: Any) -> list[Job]:
        return [job_rows.job(row) for row in await self._reader.rows(name, **values)]

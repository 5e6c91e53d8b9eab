"""What every page of verbs needs: the lines of the running loop, the clock, the ids."""

from typing import Any

from outlast.clock import Clock, to_micros
from outlast.core.ids import Ids
from outlast.core.job import Job
from outlast.store.contract.notifications import Notification
from outlast.store.postgres.pool import ConnectionPool
from outlast.store.postgres.statements import Probe
from outlast.store.postgres.url import PostgresUrl
from outlast.store.rows import jobs as job_rows


class PostgresOperations:
    """A store on a server, as its verbs see it."""

    address: PostgresUrl
    _clock: Clock | None
    _ids: Ids
    _probe: Probe | None

    @property
    def _lines(self) -> ConnectionPool:
        """Those of the running loop; StoreClosed if the store is not open."""
        raise NotImplementedError

    def _require_open(self) -> None:
        """StoreClosed if it is not open in this process."""
        raise NotImplementedError

    def _tell(self, hint: Notification) -> None:
        """Something was committed here; never waits."""
        raise NotImplementedError

    @property
    def _now(self) -> int | None:
        """For `coalesce(:now, outlast.micros())`: the database's own clock but in tests."""
        return None if self._clock is None else to_micros(self._clock.now())

    @property
    def _mono(self) -> int | None:
        """The same for leases, which a wall clock that is set must not end."""
        return None if self._clock is None else self._clock.monotonic()

    async def _jobs(self, name: str, **values: Any) -> list[Job]:
        return [job_rows.job(tuple(row)) for row in await self._lines.rows(name, **values)]

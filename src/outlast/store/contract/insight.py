"""Contract: reads for people, such as the state of the store and why a job waits."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from outlast.core.explain import WaitFacts
from outlast.core.ids import JobId
from outlast.core.overview import Overview


class InsightReads(Protocol):
    """Each result is one snapshot; nothing is written."""

    async def overview(self, *, span: timedelta) -> Overview:
        """Return what waits and runs now, by queue and type, and what ended within `span`.

        The cost grows with live and recently ended jobs, not with history.
        """
        ...

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        """Return everything that decides when this job is claimed; None if it does not exist.

        Ahead of it are the jobs of its queue that a claim of every type would select first,
        counted up to `MOST_AHEAD` + 1.
        """
        ...

    async def describe(self) -> Mapping[str, str]:
        """Return what an operator should know about the store, a few words per entry."""
        ...

    def connection_warnings(self) -> list[str]:
        """Return warnings about how the open store is reached, without a request to it."""
        ...

    async def health_warnings(self) -> list[str]:
        """Return warnings for the operator, those of the connection too; empty if all is well."""
        ...

"""The contract's reads for people: how the whole store stands, and why one job waits."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from outlast.core.explain import WaitFacts
from outlast.core.ids import JobId
from outlast.core.overview import Overview


class InsightReads(Protocol):
    """Each answer is one consistent moment; none of them changes anything."""

    async def overview(self, *, span: timedelta) -> Overview:
        """What waits and runs now, by queue and type, and what ended within the last `span`.

        It costs what is live and what ended lately, not what is kept.
        """
        ...

    async def wait_facts(self, job_id: JobId) -> WaitFacts | None:
        """All that decides when this job is taken; None if there is no such job.

        Ahead of it are the jobs of its queue that a claim of every type would take before it,
        counted up to `MOST_AHEAD` + 1.
        """
        ...

    async def describe(self) -> Mapping[str, str]:
        """What an operator should know of the store, in a few words each."""
        ...

    async def health_warnings(self) -> list[str]:
        """What an operator should worry about; empty when all is well."""
        ...

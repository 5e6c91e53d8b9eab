"""S0's settings of each job: when it runs, how long that may take, how late it may begin."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

STALE_FACTOR: Final = 2
"""S0 7: a run counts as stale after twice the time that the longest one is expected to take."""

MISFIRE_GRACE: Final = timedelta(seconds=300)
"""S0 9: how late a frequent job may still begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What S0 asks to be said for each job; `threshold` is S0's MAX_RUNTIME_THRESHOLD."""

    cron: str
    expected_max_runtime: timedelta
    coalesce: bool
    misfire_grace: timedelta = MISFIRE_GRACE
    threshold: timedelta | None = None

    @property
    def max_runtime(self) -> timedelta:
        """The threshold that is in force."""
        return self.threshold or STALE_FACTOR * self.expected_max_runtime


RULES: Final[Mapping[str, Rules]] = {
    "rss_ingestion": Rules(
        cron="*/15 * * * *", expected_max_runtime=timedelta(minutes=5), coalesce=True
    ),
    "event_clustering": Rules(
        cron="5-59/15 * * * *", expected_max_runtime=timedelta(minutes=5), coalesce=True
    ),
    "retention_cleanup": Rules(
        cron="30 3 * * *",
        expected_max_runtime=timedelta(minutes=10),
        coalesce=True,
        misfire_grace=timedelta(hours=1),
    ),
    "brief_publication": Rules(
        cron="0 6 * * *",
        expected_max_runtime=timedelta(minutes=2),
        coalesce=True,
        misfire_grace=timedelta(hours=6),
    ),
}
"""Times are UTC. The first three are S0's core jobs; the last makes what they are for."""

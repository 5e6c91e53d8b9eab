"""The settings of each job in S0: schedule, expected runtime, misfire grace."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

STALE_FACTOR: Final = 2
"""S0 7: a run is stale after twice the longest expected runtime."""

MISFIRE_GRACE: Final = timedelta(seconds=300)
"""S0 9: how late a frequent job may still start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that S0 requires per job; `threshold` is S0's MAX_RUNTIME_THRESHOLD."""

    cron: str
    expected_max_runtime: timedelta
    coalesce: bool
    misfire_grace: timedelta = MISFIRE_GRACE
    threshold: timedelta | None = None

    @property
    def max_runtime(self) -> timedelta:
        """Return the effective threshold."""
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
"""The jobs, with times in UTC: the three core jobs of S0, and the one that publishes."""

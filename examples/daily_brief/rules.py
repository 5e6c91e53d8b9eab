"""The settings of each job in S0: schedule, expected runtime, misfire grace."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from outlast.config import UnknownOwnerPolicy
from outlast.core.duration import parse_duration

SCOPE: Final = "brief"
"""S0 3: one active worker process of the brief, in whatever way it is started."""

UNKNOWN_INSTANCE: Final[UnknownOwnerPolicy] = "threshold"
"""S0 7.1: at its start a worker closes running rows of unknown instances past their threshold."""

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
    misfire_grace: timedelta
    threshold: timedelta | None = None

    @property
    def max_runtime(self) -> timedelta:
        """Return the effective threshold."""
        return self.threshold or STALE_FACTOR * self.expected_max_runtime


RULES: Final[Mapping[str, Rules]] = {
    "rss_ingestion": Rules(
        cron="*/15 * * * *",
        expected_max_runtime=timedelta(minutes=5),
        coalesce=True,
        misfire_grace=MISFIRE_GRACE,
    ),
    "event_clustering": Rules(
        cron="5-59/15 * * * *",
        expected_max_runtime=timedelta(minutes=5),
        coalesce=True,
        misfire_grace=MISFIRE_GRACE,
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


def rules_of(environment: Mapping[str, str]) -> Mapping[str, Rules]:
    """Return the rules with the threshold of the variable MAX_RUNTIME_THRESHOLD, such as 10m."""
    given = environment.get("MAX_RUNTIME_THRESHOLD")
    if given is None:
        return RULES
    threshold = parse_duration(given, what="MAX_RUNTIME_THRESHOLD")
    return {name: replace(rules, threshold=threshold) for name, rules in RULES.items()}

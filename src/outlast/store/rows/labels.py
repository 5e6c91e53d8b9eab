"""Choice of the statement that finds jobs by labels, for the SQL stores."""

from collections.abc import Sequence
from typing import Any, Final

LABEL_SAMPLE: Final = 10_000
"""Up to this many jobs of a label are counted; a label with as many is common."""

SEARCHED_BY_LABEL: Final = frozenset({"jobs.find", "jobs.find_live"})
"""Statements that `by_label` may replace."""


def by_label(
    name: str, values: dict[str, Any], counts: Sequence[Sequence[Any]]
) -> tuple[str, dict[str, Any]]:
    """Return the statement and values that read the fewest rows.

    It goes down the jobs of the rarest label. If that is common, a search for live jobs goes down
    the state tables instead.

    Args:
        name: One of `SEARCHED_BY_LABEL`.
        values: Its values.
        counts: Each label and how many jobs have it, at most `LABEL_SAMPLE`.
    """
    rarest, number = min(counts, key=lambda row: row[1])
    if name == "jobs.find_live" and number >= LABEL_SAMPLE:
        return name, values
    others = [label for label, _ in counts if label != rarest]
    return "jobs.find_label", {**values, "label": rarest, "labels": others or None}

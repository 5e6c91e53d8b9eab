"""Measured figures as values, per side and per round."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Definition of a figure: its measurement, its key there, its label and its target."""

    what: str
    key: str
    label: str
    unit: str
    asked: str
    digits: int = 0
    low_is_good: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one figure in several rounds."""

    values: Sequence[float]

    @property
    def middle(self) -> float:
        return median(self.values)

    def over(self, other: "Series") -> "Series":
        """Return the ratio per round: measurements close in time share the same noise."""
        return Series([mine / its for mine, its in zip(self.values, other.values, strict=True)])


@dataclass(frozen=True, slots=True)
class Line:
    """A figure with the rounds of both sides; `huey` is None if it was not measured."""

    figure: Figure
    ours: Series
    huey: Series | None

    @property
    def ratio(self) -> Series | None:
        """Return how many times better Outlast is; below one means worse."""
        if self.huey is None:
            return None
        better, other = self.ours, self.huey
        return other.over(better) if self.figure.low_is_good else better.over(other)

    def as_dict(self) -> dict[str, Any]:
        """Every round, for a file."""
        series = {"outlast": self.ours, "huey": self.huey, "ratio": self.ratio}
        rounds = {name: list(each.values) for name, each in series.items() if each is not None}
        return {"unit": self.figure.unit, **rounds}


FIGURES = (
    Figure(what="drain", key="per_second", label="drain", unit="jobs/s", asked="at least 5x"),
    Figure(what="one", key="per_second", label="enqueue one", unit="jobs/s", asked="at least 1x"),
    Figure(
        what="bulk", key="per_second", label="enqueue many", unit="jobs/s", asked="at least 10x"
    ),
    Figure(
        what="latency",
        key="p50_ms",
        label="pick-up p50",
        unit="ms",
        asked="under 1 ms",
        digits=2,
        low_is_good=True,
    ),
    Figure(
        what="latency",
        key="p99_ms",
        label="pick-up p99",
        unit="ms",
        asked="",
        digits=2,
        low_is_good=True,
    ),
)

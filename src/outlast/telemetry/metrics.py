"""Events as numbers: counts and durations with few labels, for any system of metrics."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outlast.telemetry.events import Sink, TelemetryEvent

Labels = Mapping[str, str]


class MetricKind(StrEnum):
    """How the values of a metric belong together."""

    COUNT = "count"  # add them up
    SECONDS = "seconds"  # each is one duration: a histogram, or sum and number


@dataclass(frozen=True, slots=True)
class Sample:
    """One value: `Sample("runs_ended_total", Kind.COUNT, 1, {"type": "report", "status": …})`.

    Labels have few values: types, states, reasons; never ids, names of schedules or arguments.
    """

    name: str
    kind: MetricKind
    value: float
    labels: Labels


def metrics(push: Callable[[Sample], None]) -> Sink:
    """A sink that gives every sample to `push`: `listen(metrics(to_statsd))`."""

    def sink(told: TelemetryEvent) -> None:
        for sample in samples(told):
            push(sample)

    return sink


def samples(told: TelemetryEvent) -> Iterator[Sample]:
    """What one event adds to which metric; nothing for one that is none of them."""
    facts = told.fields
    match told.event:
        case "job_start":
            yield _count("runs_started_total", facts, "type")
        case "job_end":
            yield _count("runs_ended_total", facts, "type", "status")
            yield _count("rows_processed_total", facts, "type", by=facts["rows_processed"])
            yield _seconds("run_duration_seconds", facts, "type", of="duration_seconds")
        case "job_error":
            yield _count("run_errors_total", facts, "type", "error")
        case "job_lost":
            yield _count("runs_lost_total", facts, "reason")
        case "late_write_refused":
            yield _count("late_writes_refused_total", facts)
        case "recovered":
            yield _count("recovered_total", facts, "reason")
        case "slot":
            yield _count("slots_total", facts, "outcome")
            yield _seconds("slot_lateness_seconds", facts, "outcome", of="lateness_seconds")
        case _:  # no number of its own
            return


class InMemoryMetrics:
    """A sink that adds up, for whoever shows or asserts it: `listen(totals := Totals())`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: defaultdict[tuple[str, frozenset[tuple[str, str]]], list[float]]
        self._all = defaultdict(lambda: [0.0, 0])

    def __call__(self, told: TelemetryEvent) -> None:
        for sample in samples(told):
            with self._lock:
                total = self._all[sample.name, frozenset(sample.labels.items())]
                total[0] += sample.value
                total[1] += 1

    def value(self, name: str, **labels: str) -> float:
        """The sum of all samples of that name that have those labels."""
        return sum(total[0] for total in self._matching(name, labels))

    def number(self, name: str, **labels: str) -> int:
        """How many they were."""
        return sum(int(total[1]) for total in self._matching(name, labels))

    def _matching(self, name: str, labels: Labels) -> list[list[float]]:
        wanted = frozenset(labels.items())
        with self._lock:
            return [
                total
                for (known, has), total in self._all.items()
                if known == name and wanted <= has
            ]


def _count(name: str, facts: Mapping[str, Any], *labels: str, by: float = 1) -> Sample:
    return Sample(name, MetricKind.COUNT, by, _labels(facts, labels))


def _seconds(name: str, facts: Mapping[str, Any], *labels: str, of: str) -> Sample:
    return Sample(name, MetricKind.SECONDS, facts[of], _labels(facts, labels))


def _labels(facts: Mapping[str, Any], names: tuple[str, ...]) -> Labels:
    return {name: str(facts.get(name)) for name in names}

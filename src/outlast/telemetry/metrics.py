"""Metrics from events: counts and durations with few labels, for any metrics system."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outlast.telemetry.events import Sink, TelemetryEvent

Labels = Mapping[str, str]


class MetricKind(StrEnum):
    """How the values of a metric are combined."""

    COUNT = "count"  # sum
    SECONDS = "seconds"  # durations: a histogram, or sum and number


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric.

    `Sample("runs_ended_total", MetricKind.COUNT, 1, {"type": "report", "status": …})`. Labels
    have few values: types, states, reasons; never ids, schedule names or arguments.
    """

    name: str
    kind: MetricKind
    value: float
    labels: Labels


def metrics(push: Callable[[Sample], None]) -> Sink:
    """Return a sink that passes every sample to `push`: `subscribe(metrics(to_statsd))`."""

    def sink(event: TelemetryEvent) -> None:
        for sample in samples(event):
            push(sample)

    return sink


def samples(event: TelemetryEvent) -> Iterator[Sample]:
    """Yield the samples of one event; none if the event has no metric."""
    fields = event.fields
    match event.event:
        case "job_start":
            yield _count("runs_started_total", fields, "type")
        case "job_end":
            yield _count("runs_ended_total", fields, "type", "status")
            yield _count("rows_processed_total", fields, "type", by=fields["rows_processed"])
            yield _seconds("run_duration_seconds", fields, "type", of="duration_seconds")
        case "job_error":
            yield _count("run_errors_total", fields, "type", "error")
        case "job_unfit":
            yield _count("runs_refused_total", fields, "type", "to")
        case "job_lost":
            yield _count("runs_lost_total", fields, "reason")
        case "late_write_refused":
            yield _count("late_writes_refused_total", fields)
        case "recovered":
            yield _count("recovered_total", fields, "reason")
        case "slot":
            yield _count("slots_total", fields, "outcome")
            yield _seconds("slot_lateness_seconds", fields, "outcome", of="lateness_seconds")
        case _:  # no metric
            return


class InMemoryMetrics:
    """A sink that adds up samples: `subscribe(totals := InMemoryMetrics())`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: defaultdict[tuple[str, frozenset[tuple[str, str]]], list[float]]
        self._all = defaultdict(lambda: [0.0, 0])

    def __call__(self, event: TelemetryEvent) -> None:
        """Add the samples of an event."""
        for sample in samples(event):
            with self._lock:
                total = self._all[sample.name, frozenset(sample.labels.items())]
                total[0] += sample.value
                total[1] += 1

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of all samples of that name with those labels."""
        return sum(total[0] for total in self._matching(name, labels))

    def number(self, name: str, **labels: str) -> int:
        """Return the number of samples of that name with those labels."""
        return sum(int(total[1]) for total in self._matching(name, labels))

    def _matching(self, name: str, labels: Labels) -> list[list[float]]:
        wanted = frozenset(labels.items())
        with self._lock:
            return [
                total
                for (known, has), total in self._all.items()
                if known == name and wanted <= has
            ]


def _count(name: str, fields: Mapping[str, Any], *labels: str, by: float = 1) -> Sample:
    return Sample(name, MetricKind.COUNT, by, _labels(fields, labels))


def _seconds(name: str, fields: Mapping[str, Any], *labels: str, of: str) -> Sample:
    return Sample(name, MetricKind.SECONDS, fields[of], _labels(fields, labels))


def _labels(fields: Mapping[str, Any], names: tuple[str, ...]) -> Labels:
    return {name: str(fields.get(name)) for name in names}

"""Telemetry: log lines, metrics and sinks, all fed by the same events."""

from outlast.telemetry.error_log import log_full_errors
from outlast.telemetry.events import Sink, TelemetryEvent, subscribe
from outlast.telemetry.metrics import InMemoryMetrics, MetricKind, Sample, metrics, samples

__all__ = [
    "InMemoryMetrics",
    "MetricKind",
    "Sample",
    "Sink",
    "TelemetryEvent",
    "log_full_errors",
    "metrics",
    "samples",
    "subscribe",
]

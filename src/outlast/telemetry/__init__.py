"""What happens, for whoever wants to know: log lines and metrics, made from the same events."""

from outlast.telemetry.errors import errors_in_full
from outlast.telemetry.metrics import Kind, Sample, Totals, metrics, samples
from outlast.telemetry.tell import Sink, Told, listen

__all__ = [
    "Kind",
    "Sample",
    "Sink",
    "Told",
    "Totals",
    "errors_in_full",
    "listen",
    "metrics",
    "samples",
]

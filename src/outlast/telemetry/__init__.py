"""What happens, for whoever wants to know: log lines and metrics, made from the same events."""

from outlast.telemetry.error_log import errors_in_full
from outlast.telemetry.events import Sink, Told, listen
from outlast.telemetry.metrics import Kind, Sample, Totals, metrics, samples

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

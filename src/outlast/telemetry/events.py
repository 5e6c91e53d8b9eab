"""The event bus: every event becomes a log line and goes to the subscribed sinks."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from outlast.core.printable import log_value

log = logging.getLogger("outlast.telemetry")


@dataclass(frozen=True, slots=True)
class TelemetryEvent:
    """Something that happened: `job_end`, `slot`, `recovered` and so on.

    Attributes:
        event: Name of the event.
        fields: Its data.
        error_text: Message and traceback of an error. They may quote arguments, so no log line
            of Outlast contains them.
    """

    event: str
    fields: Mapping[str, Any]
    error_text: str | None = None


Sink = Callable[[TelemetryEvent], None]
"""Receives every event of the process."""


_sinks: list[Sink] = []


def subscribe(sink: Sink) -> Callable[[], None]:
    """Call `sink` with every event of this process; the returned function ends that.

    There is one list of sinks per process, as with the handlers of `logging`. A sink is called
    where the event happens, mostly on the event loop, and must return quickly. An error it
    raises affects no job. In the app's module it receives all events of `outlast worker`:
    processes that do not load the app forward theirs to one that does.
    """
    guarded = _GuardedSink(sink)
    _sinks.append(guarded)

    def unsubscribe() -> None:
        with suppress(ValueError):  # idempotent
            _sinks.remove(guarded)

    return unsubscribe


def emit(
    logger: logging.Logger,
    level: int,
    event: str,
    fields: Mapping[str, Any],
    error_text: str | None = None,
) -> None:
    """Log the event and pass it to the sinks; never raises.

    A value with a blank, `=`, a quote or a control character is quoted in the line.
    """
    if logger.isEnabledFor(level):
        pairs = " ".join(f"{key}={log_value(value)}" for key, value in fields.items())
        with suppress(Exception):  # a log filter or handler of the app raised
            logger.log(level, "%s %s", event, pairs, extra={"facts": {"event": event, **fields}})
    if _sinks:
        forward(TelemetryEvent(event, fields, error_text))


def forward(event: TelemetryEvent) -> None:
    """Pass an event to the sinks without a log line, which its own process has written."""
    for sink in tuple(_sinks):
        sink(event)


def has_audience(logger: logging.Logger, level: int) -> bool:
    """Return whether the event would be logged or received; if not, skip collecting its fields."""
    return bool(_sinks) or logger.isEnabledFor(level)


def has_sinks() -> bool:
    """Return whether this process has sinks."""
    return bool(_sinks)


class _GuardedSink:
    """A sink that never raises; its first error is logged."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._has_failed = False

    def __call__(self, event: TelemetryEvent) -> None:
        try:
            self._sink(event)
        except Exception as error:  # noqa: BLE001 - raised by the app's own code
            if not self._has_failed:
                self._has_failed = True
                log.warning(
                    "telemetry sink failed error=%s event=%s; its further errors are not logged",
                    type(error).__name__,
                    event.event,
                )

"""The one place every event goes through: to its line in the log, and to whoever listens."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("outlast.telemetry")


@dataclass(frozen=True, slots=True)
class TelemetryEvent:
    """Something that happened: `job_end`, `slot`, `recovered` and so on, with its facts.

    `words` are an error's message and traceback. They may quote arguments, so no log line of ours
    has them.
    """

    event: str
    fields: Mapping[str, Any]
    error_text: str | None = None


Sink = Callable[[TelemetryEvent], None]

_sinks: list[Sink] = []


def subscribe(sink: Sink) -> Callable[[], None]:
    """Hand every event of this process to `sink` from now on; what comes back ends that.

    As with the handlers of `logging` there is one list, whichever app it is. A sink is called where
    the event happens, mostly on the event loop: let it be quick. What it raises changes no job.
    In an app's own module it hears all of `outlast worker`: what happens where none of your code
    is loaded is passed on to a process where it is.
    """
    once = _Guarded(sink)
    _sinks.append(once)

    def leave() -> None:
        with suppress(ValueError):  # twice is fine
            _sinks.remove(once)

    return leave


def emit(
    logger: logging.Logger,
    level: int,
    event: str,
    facts: Mapping[str, Any],
    words: str | None = None,
) -> None:
    """Write the line and hand the event on; nothing that goes wrong there comes back."""
    if logger.isEnabledFor(level):
        pairs = " ".join(f"{key}={value}" for key, value in facts.items())
        with suppress(Exception):  # a filter or handler of the app's raised: no fault of the job's
            logger.log(level, "%s %s", event, pairs, extra={"facts": {"event": event, **facts}})
    if _sinks:
        forward(TelemetryEvent(event, facts, words))


def forward(told: TelemetryEvent) -> None:
    """Hand an event to the sinks, without a line: the process where it happened wrote that."""
    for sink in tuple(_sinks):
        sink(told)


def has_audience(logger: logging.Logger, level: int) -> bool:
    """Whether anybody would know; if not, its facts need not be gathered."""
    return bool(_sinks) or logger.isEnabledFor(level)


def has_sinks() -> bool:
    """Whether anybody listens in this process."""
    return bool(_sinks)


class _Guarded:
    """A sink that raises for nobody, and of whose faults the first is logged."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._has_failed = False

    def __call__(self, told: TelemetryEvent) -> None:
        try:
            self._sink(told)
        except Exception as error:  # noqa: BLE001 - the app's own code, and no fault of the job's
            if not self._has_failed:
                self._has_failed = True
                name = type(error).__name__
                log.warning("a sink raised %s at %s; the next ones are not told", name, told.event)

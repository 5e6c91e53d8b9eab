"""A sink that logs errors in full, for apps whose logs may quote arguments."""

import logging
from textwrap import indent

from outlast.core.printable import INDENT, printable_lines
from outlast.telemetry.events import Sink, TelemetryEvent


def log_full_errors(logger: logging.Logger) -> Sink:
    """Return a sink that logs each error with its message and traceback.

    Use it as `subscribe(log_full_errors(log))`. Messages and tracebacks may quote arguments, so
    no other log line contains them. They are stored with the run in any case (`outlast show`).
    """

    def sink(event: TelemetryEvent) -> None:
        if event.error_text is not None:
            fields = {"event": event.event, **event.fields, "traceback": event.error_text}
            text = indent(printable_lines(event.error_text), INDENT)
            logger.error(
                "%s job=%s\n%s", event.event, event.fields["job"], text, extra={"facts": fields}
            )

    return sink

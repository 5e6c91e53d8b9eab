"""Errors in full, for an app that may show what its handlers say."""

import logging

from outlast.telemetry.events import Sink, TelemetryEvent


def log_full_errors(logger: logging.Logger) -> Sink:
    """A sink that logs each error with its message and traceback: `listen(errors_in_full(log))`.

    They may quote arguments, so nothing does this unless it is asked to. They are on the run too,
    whether or not (`outlast show`).
    """

    def sink(told: TelemetryEvent) -> None:
        if told.error_text is not None:
            facts = {"event": told.event, **told.fields, "traceback": told.error_text}
            logger.error(
                "%s job=%s\n%s",
                told.event,
                told.fields["job"],
                told.error_text,
                extra={"facts": facts},
            )

    return sink

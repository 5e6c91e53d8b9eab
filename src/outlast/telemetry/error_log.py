"""Errors in full, for an app that may show what its handlers say."""

import logging

from outlast.telemetry.events import Sink, Told


def errors_in_full(logger: logging.Logger) -> Sink:
    """A sink that logs each error with its message and traceback: `listen(errors_in_full(log))`.

    They may quote arguments, so nothing does this unless it is asked to. They are on the run too,
    whether or not (`outlast show`).
    """

    def sink(told: Told) -> None:
        if told.words is not None:
            facts = {"event": told.event, **told.facts, "traceback": told.words}
            logger.error(
                "%s job=%s\n%s", told.event, told.facts["job"], told.words, extra={"facts": facts}
            )

    return sink

"""What an app calls around its runs: lifespan and failure sinks."""

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from outlast.config import Settings
from outlast.core.failure import Sink
from outlast.core.failure_sink import FailureSink
from outlast.core.limits import repr_short
from outlast.jobs.lifespan import Lifespan

S = TypeVar("S", bound=Sink)


class Hooks:
    """The registrations of an app that are no job types."""

    settings: Settings
    _lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None
    _failure_sinks: list[FailureSink]

    def _new_lifespan(self) -> Lifespan | None:
        """Return the lifespan for one process or worker, not started; None if there is none."""
        enter = self._lifespan
        if enter is None:
            return None
        name = str(getattr(enter, "__qualname__", repr_short(enter)))
        return Lifespan(lambda: enter(self), name=name, timeout=self.settings.lifespan_timeout)

    def on_failure(self, sink: S, *, show: Iterable[str] = ()) -> S:
        """Call `sink` for every failed attempt: `app.on_failure(Sentry(), show=["user_id"])`.

        The worker of the attempt calls it with a `Failure`, in a separate thread; register it
        before the worker is created. Its errors do not affect the job. It gets the names of all
        params and the values of those in `show` (`order.city` for a nested one); other values
        are redacted from the error text too. Also usable as a decorator.
        """
        self._failure_sinks.append(FailureSink.new(sink, show))
        return sink

"""Registry of an app's job types, by name."""

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from outlast.core.envelope import plain
from outlast.core.limits import read_json
from outlast.core.suggestion import did_you_mean, nearest
from outlast.errors import InvalidType, TypeNotFound
from outlast.jobs.envelopes import Envelopes
from outlast.jobs.jobtype import JobType

log = logging.getLogger("outlast.jobs")

MAX_CHECKED_QUEUES: Final = 1000
"""Queue names of enqueues that are compared with those of the types at most."""

__all__ = ["JobType", "Registry"]


class Registry:
    """Job types by name: filled by `@app.job`, read by the app and its workers.

    `envelopes` are those of the app, for its workers.
    """

    def __init__(self, envelopes: Envelopes | None = None) -> None:
        self.envelopes: Final = envelopes or Envelopes()
        self._types: dict[str, JobType[..., Any]] = {}
        self._checked_queues: set[str] = set()
        self._watchers: list[Callable[[], None]] = []

    def add(self, job_type: JobType[..., Any]) -> None:
        """Register a job type; InvalidType if its name is taken."""
        self.require_free([job_type])
        self._types[job_type.name] = job_type
        self.tell_watchers()

    def require_free(self, job_types: Iterable[JobType[..., Any]]) -> None:
        """Raise InvalidType if the name of one of these is taken, with both places."""
        for each in job_types:
            if (there := self._types.get(each.name)) is not None:
                raise InvalidType(
                    f'job type "{each.name}" is registered already, by {there.place}, and '
                    f"{each.place} has that name too; give one of them a `name=`"
                )

    def all(self) -> list[JobType[..., Any]]:
        """Return all types, by name."""
        return [self._types[name] for name in self.names()]

    def tell_watchers(self) -> None:
        """Call the watchers: what the app tells its workers has changed."""
        for changed in tuple(self._watchers):
            changed()

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each registration; return a function that ends this."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def get(self, name: str) -> JobType[..., Any]:
        """Return the type of that name; TypeNotFound lists the known ones."""
        try:
            return self._types[name]
        except KeyError:
            raise TypeNotFound(
                f"job type {ascii(name)[:140]} is not registered; {did_you_mean(name, self._types)}"
            ) from None

    def names(self) -> list[str]:
        """Return the names of all types, sorted."""
        return sorted(self._types)

    def retentions(self) -> dict[str, timedelta | None]:
        """Return how long the types that say it keep their ended jobs; None: for ever."""
        given = ((name, each.policy.retention) for name, each in self._types.items())
        return {
            name: None if span == "forever" else span for name, span in given if span is not None
        }

    def queues(self) -> list[str]:
        """Return the queues of all types and the default queue, sorted."""
        return sorted({"default", *(each.policy.queue for each in self._types.values())})

    def unknown_queue(self, name: str) -> str | None:
        """Return a warning about a queue that no type uses by default; None if one does."""
        known = self.queues()
        if name in known:
            return None
        return f"no job type of this app uses queue {name} by default; {did_you_mean(name, known)}"

    def warn_of_queue(self, name: str) -> None:
        """Log a warning, once per name, if a queue is most likely misspelt.

        A queue need not be that of a type: jobs may be routed to names made at run time. So only
        a name that is nearly one of them is reported, and no name is refused.
        """
        if name in self._checked_queues or len(self._checked_queues) >= MAX_CHECKED_QUEUES:
            return
        self._checked_queues.add(name)
        if nearest(name, self.queues()) not in (None, name):
            log.warning(self.unknown_queue(name))

    def dump_params(self, type_name: str, params: dict[str, Any]) -> str:
        """Return the payload of params of a type; TypeNotFound if it is not registered."""
        return self.get(type_name).encode_params((), params)

    def load_result(self, type_name: str, text: str | None) -> Any:
        """Return a result by its type's annotation; plain JSON values if it is not registered."""
        if type_name in self._types:
            return self._types[type_name].load_result(text)
        what = f'result of "{type_name}"'
        return None if text is None else read_json(plain(text, what), what=what)

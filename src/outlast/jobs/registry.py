"""Registry of an app's job types, by name."""

import json
from collections.abc import Callable
from typing import Any

from outlast.core.suggestion import did_you_mean
from outlast.errors import InvalidType, TypeNotFound
from outlast.jobs.jobtype import JobType

__all__ = ["JobType", "Registry"]


class Registry:
    """Job types by name: filled by `@app.job`, read by the app and its workers."""

    def __init__(self) -> None:
        self._types: dict[str, JobType[..., Any]] = {}
        self._watchers: list[Callable[[], None]] = []

    def add(self, job_type: JobType[..., Any]) -> None:
        """Register a job type; InvalidType if its name is taken."""
        if job_type.name in self._types:
            raise InvalidType(
                f'job type "{job_type.name}" is registered already; give one of them a `name=`'
            )
        self._types[job_type.name] = job_type
        self.tell_watchers()

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

    def queues(self) -> list[str]:
        """Return the queues of all types and the default queue, sorted."""
        return sorted({"default", *(each.policy.queue for each in self._types.values())})

    def dump_params(self, type_name: str, params: dict[str, Any]) -> str:
        """Return the payload of params of a type; TypeNotFound if it is not registered."""
        return self.get(type_name).encode_params((), params)

    def load_result(self, type_name: str, text: str | None) -> Any:
        """Return a result by its type's annotation; plain JSON values if it is not registered."""
        if type_name in self._types:
            return self._types[type_name].load_result(text)
        return None if text is None else json.loads(text)

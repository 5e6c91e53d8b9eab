"""The job types one app knows, by name."""

import json
from typing import Any

from outlast.errors import InvalidType, TypeNotFound
from outlast.jobs.jobtype import JobType

__all__ = ["JobType", "Registry"]


class Registry:
    """Filled by `@app.job`, read by the app and its workers."""

    def __init__(self) -> None:
        self._types: dict[str, JobType[..., Any]] = {}

    def add(self, job_type: JobType[..., Any]) -> None:
        """Register it; InvalidType if its name is taken."""
        if job_type.name in self._types:
            raise InvalidType(
                f'job type "{job_type.name}" is registered already; give one of them a `name=`'
            )
        self._types[job_type.name] = job_type

    def get(self, name: str) -> JobType[..., Any]:
        """The type of that name; TypeNotFound lists the known ones."""
        try:
            return self._types[name]
        except KeyError:
            known = ", ".join(self.names()[:20]) or "none"
            raise TypeNotFound(
                f"job type {ascii(name)[:140]} is not registered; known: {known}"
            ) from None

    def names(self) -> list[str]:
        """The names of all types, sorted."""
        return sorted(self._types)

    def queues(self) -> list[str]:
        """The queues these types go to unless told otherwise, and the default one, sorted."""
        return sorted({"default", *(each.policy.queue for each in self._types.values())})

    def dump_params(self, type_name: str, params: dict[str, Any]) -> str:
        """The JSON text of the arguments of that type; TypeNotFound if it is not known here."""
        return self.get(type_name).encode_params((), params)

    def load_result(self, type_name: str, text: str | None) -> Any:
        """A result by its type's annotation; as plain JSON, if the type is not known here."""
        if type_name in self._types:
            return self._types[type_name].load_result(text)
        return None if text is None else json.loads(text)

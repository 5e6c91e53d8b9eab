"""Where jobs were when they were last seen, so that both steps to one are asked for at once."""

from typing import Final

MOST: Final = 10_000


class LocationCache:
    """Guesses: whoever reads by one compares it with what the index says, in the same request."""

    def __init__(self) -> None:
        self._sorts: dict[str, str] = {}

    def at(self, job_id: str) -> str | None:
        return self._sorts.get(job_id)

    def note(self, job_id: str, sort: str) -> None:
        self._sorts.pop(job_id, None)
        self._sorts[job_id] = sort
        if len(self._sorts) > MOST:
            del self._sorts[next(iter(self._sorts))]

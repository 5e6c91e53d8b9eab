"""Runs that failed claims may have opened: their transactions failed without a certain outcome."""

from collections.abc import Mapping
from typing import Final

from outlast.core.ids import JobId, RunId
from outlast.core.run import LeaseHolder

MAX_LOOKED_UP: Final = 500
"""Runs that one claim looks up."""


class UnansweredClaims:
    """Runs that may be open without the knowledge of their worker, by holder and queue."""

    def __init__(self) -> None:
        self._runs: dict[tuple[LeaseHolder, str], dict[RunId, JobId]] = {}

    def note(self, holder: LeaseHolder, queue: str, runs: Mapping[RunId, JobId]) -> None:
        """Remember runs of a claim that failed."""
        if runs:
            self._runs.setdefault((holder, queue), {}).update(runs)

    def of(self, holder: LeaseHolder, queue: str) -> dict[RunId, JobId]:
        """Return the runs to look up."""
        runs = self._runs.get((holder, queue), {})
        return dict(list(runs.items())[:MAX_LOOKED_UP])

    def forget(self, holder: LeaseHolder, queue: str, run_id: RunId) -> None:
        """Forget a run: its worker has it now, or it can no longer be opened."""
        runs = self._runs.get((holder, queue), {})
        runs.pop(run_id, None)
        if not runs:
            self._runs.pop((holder, queue), None)

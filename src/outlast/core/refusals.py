"""Refusals: claims of a job in a row whose workers' code its params do not fit."""

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

UNFIT: Final = "unfit_params"
"""Reason code of a refusal, and of the end that follows refusals."""

MAX_UNFIT: Final = timedelta(hours=1)
"""Default of the setting `max_unfit`."""

MAX_WORKERS: Final = 8
"""Workers that are remembered by name: the last that refused."""

FIRST_DELAY: Final = timedelta(seconds=1)
LONGEST_DELAY: Final = timedelta(minutes=1)
MAX_DOUBLINGS: Final = 10
"""More doublings would not change the delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """How often a job was refused in a row, since when, and by which workers."""

    count: int
    since: datetime
    workers: tuple[str, ...]

    @property
    def text(self) -> str:
        """The refusals in words: `refused 3 times since 2026-01-05 12:00:00 UTC by w1, w2`."""
        times = "once" if self.count == 1 else f"{self.count:,} times"
        since = f"{self.since:%Y-%m-%d %H:%M:%S} UTC"
        return f"refused {times} since {since} by {', '.join(self.workers)}"

    def end_text(self, max_unfit: timedelta) -> str:
        """Return the refusals in words, and when they end the job."""
        return (
            f"{self.text}: its params do not fit their code; a dead letter at the first refusal "
            f"after {self.since + max_unfit:%Y-%m-%d %H:%M:%S} UTC"
        )


def delay_after(count: int) -> timedelta:
    """Return the wait after that many refusals: 1 s, doubled after each, at most 1 min."""
    doubled: int = 2 ** min(count - 1, MAX_DOUBLINGS)
    return min(LONGEST_DELAY, FIRST_DELAY * doubled)


def refusal_detail(before: Refusals | None, worker: str) -> str:
    """Return the text that the event of the next refusal keeps; `since` is missing in the first."""
    if before is None:
        return json.dumps({"refusals": 1, "workers": [worker]})
    others = [name for name in before.workers if name != worker]
    return json.dumps(
        {
            "refusals": before.count + 1,
            "workers": [*others, worker][-MAX_WORKERS:],
            "since": before.since.isoformat(),
        }
    )


def read_refusals(detail: str | None, at: datetime) -> Refusals | None:
    """Return the refusals up to an event at `at`; None if the text is not that of a refusal."""
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        found = json.loads(detail or "")
        since = found.get("since")
        return Refusals(
            count=int(found["refusals"]),
            since=at if since is None else datetime.fromisoformat(since),
            workers=tuple(str(name) for name in found["workers"])[-MAX_WORKERS:],
        )
    return None

"""The app of the companion: one queue, the settings of S2, and two job types."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from outlast import Backoff, Handle, JobType, Outlast
from outlast.sentry import Sentry
from outlast.store.contract import Store

from .chat import Chat
from .handlers import HANDLERS, BaseJobHandler, World
from .memory import Memory

SHOWN: Final = ("user_id", "day")
"""Payload fields that are sent to Sentry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings of S2 with its defaults; S2 does not specify `lease_seconds`."""

    poll_seconds: float = 30  # interval of polling, in addition to notifications
    batch: int = 25  # how many jobs run at a time
    base_delay_seconds: float = 60
    max_attempts: int = 5
    lease_seconds: float = 15

    def retry(self) -> Backoff:
        """Return the backoff of S2: base · 2^(attempts - 1), without jitter and without a cap."""
        base = timedelta(seconds=self.base_delay_seconds)
        return Backoff(self.max_attempts, base=base, cap="3650d", jitter=False)


class Companion:
    """The app of one folder: `await Companion(folder).schedule_summary("ada", day)`.

    Its jobs are in the store at `url`, by default a file in the folder. The memory and the chat
    are in the folder. Without a DSN nothing is sent to Sentry.
    """

    def __init__(
        self,
        folder: Path,
        url: str | Store | None = None,
        *,
        rules: Rules = Rules(),
        sentry_dsn: str | None = None,
    ) -> None:
        self.folder: Final = folder.absolute()
        self.world: Final = World(Memory(self.folder / "memory.db"), Chat(self.folder / "chat"))
        self.rules: Final = rules
        lease = timedelta(seconds=rules.lease_seconds)
        self.app: Final = Outlast(
            url or f"sqlite:///{self.folder / 'jobs.db'}",
            poll=timedelta(seconds=rules.poll_seconds),
            concurrency=rules.batch,
            prefetch=0,
            lease=lease,
            renew=lease / 3,
            max_unfit="0s",  # validation errors are permanent here
        )
        self.types: Final = {name: self._register(name, each) for name, each in HANDLERS.items()}
        self.app.on_failure(Sentry(sentry_dsn), show=SHOWN)

    async def schedule_summary(
        self, user_id: str, day: date, *, at: datetime | None = None
    ) -> Handle[None]:
        """Enqueue the summary of a user's day, once for ever.

        `created` of the handle is False if the job existed before.
        """
        once = self.types["daily_summary"].options(
            key=f"summary#{user_id}", bucket=day.isoformat(), at=at
        )
        return await once.enqueue(user_id=user_id, day=day)

    async def schedule_sync(self, user_id: str) -> Handle[None]:
        """Enqueue a sync of a user, or return the handle of one that has not ended."""
        sync = self.types["user_sync"].options(active_key=f"sync#{user_id}")
        return await sync.enqueue(user_id=user_id)

    def _register(self, name: str, handler: type[BaseJobHandler]) -> JobType[Any, None]:
        # Runs create handlers without arguments, so the resources are an attribute of the class.
        here = type(handler.__name__, (handler,), {"world": self.world})
        here.__module__ = handler.__module__
        return self.app.job(name=name, retry=self.rules.retry())(here)

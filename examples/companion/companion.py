"""The companion: one queue, S2's settings, and the two ways to schedule something."""

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
"""What Sentry may see of a payload; here that is all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """S2's settings and their defaults; `lease_seconds` it leaves open."""

    poll_seconds: float = 30  # how often to look, beneath the wake-ups
    batch: int = 25  # how many jobs one look takes at most
    base_delay_seconds: float = 60
    max_attempts: int = 5
    lease_seconds: float = 15

    def retry(self) -> Backoff:
        """base · 2^(attempts - 1), exactly, and without an end of its own."""
        base = timedelta(seconds=self.base_delay_seconds)
        return Backoff(self.max_attempts, base=base, cap="3650d", jitter=False)


class Companion:
    """The app of one folder: `await Companion(folder).schedule_summary("ada", day)`.

    Its jobs are at `url`, whichever store that is; a file in the folder unless told otherwise. Its
    memory and the chat are in the folder. Without a DSN nothing is sent to Sentry.
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
        )
        self.types: Final = {name: self._register(name, each) for name, each in HANDLERS.items()}
        self.app.on_failure(Sentry(sentry_dsn), show=SHOWN)

    async def schedule_summary(
        self, user_id: str, day: date, *, at: datetime | None = None
    ) -> Handle[None]:
        """The summary of a user's day, of which there is one for ever; `created` says whether
        this call made it."""
        once = self.types["daily_summary"].options(
            key=f"summary#{user_id}", bucket=day.isoformat(), at=at
        )
        return await once.enqueue(user_id=user_id, day=day)

    async def schedule_sync(self, user_id: str) -> Handle[None]:
        """A sync of that user; the one that has not ended yet, if there is one."""
        sync = self.types["user_sync"].options(active_key=f"sync#{user_id}")
        return await sync.enqueue(user_id=user_id)

    def _register(self, name: str, handler: type[BaseJobHandler]) -> JobType[Any, None]:
        # A run makes its handler without arguments, so this app's has its world in the class.
        here = type(handler.__name__, (handler,), {"world": self.world})
        here.__module__ = handler.__module__
        return self.app.job(name=name, retry=self.rules.retry())(here)

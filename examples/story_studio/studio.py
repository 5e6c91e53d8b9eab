"""The app of the studio: one queue and two job types, in one folder."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final
from uuid import uuid4

from pydantic import Field

from outlast import Backoff, Command, Outlast, Queue, Run, Schedule, Skip

from . import views

QUEUE: Final = "studio"
GAP: Final = 100
MAX_RETRIES: Final = 3
NO_DELAY: Final = Backoff(max_attempts=1 + MAX_RETRIES, base="0s", jitter=False)
RESERVATION: Final = "5m"
MISFIRE_GRACE: Final = "5m"

WRITER: Final = Path(__file__).with_name("writer.py")
SHELF: Final = Path(__file__).with_name("shelf.txt")

Title = Annotated[str, Field(min_length=1, max_length=200)]
Topic = Annotated[str, Field(pattern="^[a-z]+(-[a-z]+)*$", max_length=40)]
"""A word such as `lighthouses`; it is used as a file name, hence the restriction."""
Pages = Annotated[int, Field(ge=1, le=20)]


class Studio:
    """The app of one folder, with its job types: `await Studio(folder).story.enqueue("…")`.

    Each job executes at most once (`linked`): a job that fails, or whose worker dies, is retried as
    a new job with `retry_of`, at most three times. One job runs at a time, in the order of the
    queue. The folder has `studio.db`, `notes/`, `stories/` and `logs/`; with a `url` the jobs are
    in that store.
    """

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.folder: Final = folder.absolute()
        self.app: Final = Outlast(
            url or f"sqlite:///{self.folder / 'studio.db'}",
            logs=self.folder / "logs",
            reservation=RESERVATION,
        )
        a_command = self.app.job(
            name="story", delivery="linked", queue=QUEUE, retry=NO_DELAY, executor="command"
        )
        self.story: Final = a_command(self._story)
        a_function = self.app.job(name="research", delivery="linked", queue=QUEUE, retry=NO_DELAY)
        self.research: Final = a_function(self._research)

    async def prepare(self) -> Queue:
        """Configure the queue as S1 requires, and create S1's tables as views. Idempotent."""
        queue = await self.app.queues.save(QUEUE, ordering="position", concurrency=1, gap=GAP)
        await views.install(self.app.store)
        return queue

    async def schedule(
        self,
        *,
        template_id: str,
        name: str,
        cron_expression: str,
        timezone: str = "UTC",
        enabled: bool = True,
        param_overrides: Mapping[str, Any] | None = None,
    ) -> Schedule:
        """Create a schedule from S1's fields alone; `name` is a label for people.

        What S1 does not say has the studio's defaults: of several late triggers the last one runs,
        unless it is later than `MISFIRE_GRACE`.
        """
        words = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
        return await self.app.schedules.save(
            f"{words or 'schedule'}-{uuid4().hex[:8]}",
            cron_expression,
            label=name,
            template=template_id,
            params=param_overrides,
            timezone=timezone,
            enabled=enabled,
            coalesce=True,
            misfire_grace=MISFIRE_GRACE,
        )

    def notes(self, topic: str) -> Path:
        """Return the file for the research on a topic."""
        return self.folder / "notes" / f"{topic}.txt"

    def _story(
        self, run: Run, title: Title, topic: Topic | None = None, pages: Pages = 1
    ) -> Command:
        """Write a story in a separate program, which fails without notes on the topic."""
        text = self.folder / "stories" / f"{run.job_id}.txt"
        about = ["--notes", str(self.notes(topic))] if topic else []
        return Command(
            [sys.executable, WRITER, "--pages", str(pages), *about, "--", title, text],
            cwd=self.folder,
            artifacts=[text.relative_to(self.folder)],
        )

    def _research(self, run: Run, topic: Topic) -> int | Skip:
        """Copy the facts on a topic from the shelf; return their number."""
        notes = self.notes(topic)
        if notes.exists():
            return Skip(f"there are notes on {topic} already")
        found = [line.partition(": ")[2] for line in _shelf() if line.startswith(f"{topic}: ")]
        if not found:
            raise LookupError(f"nothing on the shelf is about {topic}")
        draft = notes.with_suffix(".draft")  # a retry never sees a partial file
        draft.parent.mkdir(exist_ok=True)
        draft.write_text("".join(f"{fact}\n" for fact in found), encoding="utf-8")
        run.attach(draft.replace(notes))
        return len(found)


def _shelf() -> list[str]:
    return SHELF.read_text(encoding="utf-8").splitlines()


app: Final = Studio(Path()).app
"""The studio of the current folder, for `outlast worker story_studio.studio:app`."""

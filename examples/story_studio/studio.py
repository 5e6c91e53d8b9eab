"""The studio: one queue, two kinds of job, and a folder that holds all of it."""

import sys
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from outlast import Backoff, Command, Outlast, Queue, Run, Skip

QUEUE: Final = "studio"
GAP: Final = 100
MAX_RETRIES: Final = 3
AT_ONCE: Final = Backoff(max_attempts=1 + MAX_RETRIES, base="0s", jitter=False)
RESERVATION: Final = "5m"

WRITER: Final = Path(__file__).with_name("writer.py")
SHELF: Final = Path(__file__).with_name("shelf.txt")

Title = Annotated[str, Field(min_length=1, max_length=200)]
Topic = Annotated[str, Field(pattern="^[a-z]+(-[a-z]+)*$", max_length=40)]
"""A word such as `lighthouses`: it names a file, so nothing else may be in it."""
Pages = Annotated[int, Field(ge=1, le=20)]


class Studio:
    """The app of one folder, with its job types: `await Studio(folder).story.enqueue("…")`.

    Each job executes at most once (`linked`): what fails, or runs while its worker dies, goes on
    as a new job with `retry_of`, three times at most. One job runs at a time, in the order of the
    queue. The folder has `studio.db`, `notes/`, `stories/` and `logs/`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Final = folder.absolute()
        self.app: Final = Outlast(
            f"sqlite:///{self.folder / 'studio.db'}",
            logs=self.folder / "logs",
            reservation=RESERVATION,
        )
        a_command = self.app.job(
            name="story", delivery="linked", queue=QUEUE, retry=AT_ONCE, executor="command"
        )
        self.story: Final = a_command(self._story)
        a_function = self.app.job(name="research", delivery="linked", queue=QUEUE, retry=AT_ONCE)
        self.research: Final = a_function(self._research)

    async def prepare(self) -> Queue:
        """Set the queue as S1 has it; doing it again changes nothing."""
        return await self.app.queues.save(QUEUE, ordering="position", concurrency=1, gap=GAP)

    def notes(self, topic: str) -> Path:
        """Where the research on a topic is, once it is done."""
        return self.folder / "notes" / f"{topic}.txt"

    def _story(
        self, run: Run, title: Title, topic: Topic | None = None, pages: Pages = 1
    ) -> Command:
        """Have it written by a program of its own, which fails without notes on the topic."""
        text = self.folder / "stories" / f"{run.job_id}.txt"
        about = ["--notes", str(self.notes(topic))] if topic else []
        return Command(
            [sys.executable, WRITER, "--pages", str(pages), *about, "--", title, text],
            cwd=self.folder,
            artifacts=[text.relative_to(self.folder)],
        )

    def _research(self, run: Run, topic: Topic) -> int | Skip:
        """Note down what the shelf has on the topic; how many facts that is."""
        notes = self.notes(topic)
        if notes.exists():
            return Skip(f"there are notes on {topic} already")
        found = [line.partition(": ")[2] for line in _shelf() if line.startswith(f"{topic}: ")]
        if not found:
            raise LookupError(f"nothing on the shelf is about {topic}")
        draft = notes.with_suffix(".draft")  # so that a retry never takes half of them for all
        draft.parent.mkdir(exist_ok=True)
        draft.write_text("".join(f"{fact}\n" for fact in found), encoding="utf-8")
        run.attach(draft.replace(notes))
        return len(found)


def _shelf() -> list[str]:
    return SHELF.read_text(encoding="utf-8").splitlines()


app: Final = Studio(Path()).app
"""The studio of the current folder, for `outlast worker story_studio.studio:app`."""
